"""Random chains: 2 to 6 statements, random sizes and layouts, transposes, α, β, batches, dropout."""

from hypothesis import strategies as st
from strategies import layout_texts

from umm.program import Copy, Map, Multiply, Outline, Sum
from umm.program.outline import Shape

SIZES = st.integers(1, 5)
LIKE = {  # of one matrix, a matrix of its shape
    "relu": st.just({}),
    "gelu": st.just({}),
    "softmax": st.just({}),
    "scale": st.fixed_dictionaries({"factor": st.sampled_from([0.5, -1.5])}),
    "dropout": st.fixed_dictionaries({"rate": st.sampled_from([0.0, 0.25, 0.5]), "seed": st.integers(0, 99)}),
}
WITH = {"add": "rc", "mul": "rc", "bias": "1c", "mul_cols": "1c", "mul_rows": "r1", "norm_grad": "rc,r1"}
LESS = {"row_sum": "r1", "row_sum_squares": "r1", "row_max": "r1", "col_sum": "1c"}


class Drawing:
    """A chain that grows by a statement at a time."""

    def __init__(self, draw):
        self.draw = draw
        self.ranks = draw(st.integers(1, 6))
        self.tensors, self.texts = {}, {}
        self.summed = set()  # whose replicas differ
        self.statements = []
        self.written = set()

    def new(self, shape, role):
        name = f"T{len(self.tensors)}"
        self.tensors[name] = Shape(name, *shape, "float64", role)
        self.texts[name] = self.draw(layout_texts(shape, self.ranks))
        return name

    def shape(self, name):
        return self.tensors[name].rows, self.tensors[name].cols

    def readable(self, shape=None):
        """A tensor that holds something, perhaps of this shape; at times a new input, or if there is none."""
        choices = [
            name
            for name, x in self.tensors.items()
            if (name in self.written or x.role == "input")
            and name not in self.summed
            and shape in (None, self.shape(name))
        ]
        if choices and self.draw(st.integers(0, 3)):
            return self.draw(st.sampled_from(choices))
        return self.new(shape or self.draw(st.tuples(SIZES, SIZES)), "input")

    def target(self, shape, *reads):
        """A statement's target: a new tensor, or a written one that is not read."""
        choices = [x for x in sorted(self.written) if self.shape(x) == shape and x not in reads]
        if choices and self.draw(st.booleans()):
            return self.draw(st.sampled_from(choices))
        return self.new(shape, "work")

    def multiply(self):
        draw = self.draw
        batch = draw(st.sampled_from([1, 1, 2, 3]))
        shared = draw(st.sampled_from([None, 0, 1, 2]))
        groups = tuple(batch if place == shared else 1 for place in range(3))
        axes = draw(st.tuples(*[st.integers(0, 1)] * 3))
        sequences = draw(st.sampled_from([1, 1, 2]))
        trans = draw(st.sampled_from([(), ("a",), ("b",), ("a", "b")]))
        m, n, k = draw(SIZES), draw(SIZES), draw(SIZES)
        shapes = [[m, n], [k, m] if "a" in trans else [m, k], [n, k] if "b" in trans else [k, n]]
        for shape, axis, group in zip(shapes, axes, groups, strict=True):
            shape[axis] *= batch // group
            shape[0] *= sequences
        out_shape, *read_shapes = map(tuple, shapes)
        a, b = map(self.readable, read_shapes)
        out = self.target(out_shape, a, b)
        beta = draw(st.sampled_from([0.0, 1.0, -0.5])) if out in self.written else 0.0
        alpha = draw(st.sampled_from([1.0, 0.5]))
        return Multiply(out, a, b, trans, alpha, beta, batch, axes, groups, sequences)

    def add_product(self):
        """A product that is added to that of the last statement."""
        out, k = self.statements[-1].out, self.draw(SIZES)
        m, n = self.shape(out)
        a, b = (
            self.new(shape, "input") if x == out else x
            for shape in ((m, k), (k, n))
            for x in (self.readable(shape),)
        )
        return Multiply(out, a, b, alpha=self.draw(st.sampled_from([1.0, 0.5])), beta=1.0)

    def map(self):
        draw = self.draw
        x = self.readable()
        rows, cols = self.shape(x)
        shapes = {"rc": (rows, cols), "r1": (rows, 1), "1c": (1, cols)}
        fn = draw(st.sampled_from([*LIKE, *WITH, *LESS]))
        reads = (x, *(self.readable(shapes[shape]) for shape in WITH[fn].split(","))) if fn in WITH else (x,)
        parameters = draw(LIKE[fn]) if fn in LIKE else {}
        shape = shapes[LESS.get(fn, "rc")]
        in_place = x in self.written and fn not in LESS and draw(st.booleans())
        return Map(x if in_place else self.target(shape, *reads), fn, reads, parameters)

    def copy(self):
        x = self.readable()
        return Copy(self.target(self.shape(x), x), x)

    def sum(self):
        if self.draw(st.booleans()):
            x = self.new(self.draw(st.tuples(SIZES, SIZES)), "both")
            return Sum(x, x)
        x = self.new(self.draw(st.tuples(SIZES, SIZES)), "input")
        self.summed.add(x)
        return Sum(self.target(self.shape(x), x), x)

    def grow(self):
        kind = self.draw(
            st.sampled_from([self.multiply, self.multiply, self.map, self.map, self.copy, self.sum])
        )
        if self.statements and isinstance(self.statements[-1], Multiply) and self.draw(st.booleans()):
            kind = self.add_product
        statement = kind()
        self.statements.append(statement)
        self.written.add(statement.out)

    def outline(self):
        """The drawn chain; the last result goes out, and some of the others."""
        tensors = []
        for name, x in self.tensors.items():
            last = name == self.statements[-1].out
            goes = x.role == "work" and (last or self.draw(st.booleans()))
            tensors.append(Shape(name, x.rows, x.cols, x.dtype, "output") if goes else x)
        return Outline("drawn", tensors, self.statements, layouts={"drawn": self.texts})


@st.composite
def drawn_chains(draw):
    """A chain before and after it is laid out."""
    drawing = Drawing(draw)
    for _ in range(draw(st.integers(2, 6))):
        drawing.grow()
    outline = drawing.outline()
    return outline, outline.laid_out("drawn", drawing.ranks)
