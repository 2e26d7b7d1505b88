"""A graph of operations on matrices: a framework's operations on arrays, their views folded.

Elementwise operations are kept as trees, so that those that one kernel does are written as one map.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from umm.program.graph.folds import COLS, NONE, ROWS, Atom, Dim, Value, dim, folded, length, lines, merged

MAX_LEAVES = 9  # operands that one map reads


class Leaf(NamedTuple):
    """An operand of an expression: a node, and which lines of the result it has."""

    node: "Node"  # writes it
    lines: str  # `rc`, or `1c`, `r1` and `11` where it repeats


Tree = Any  # A `Leaf`, a number, `const`, or a tuple of an operator or function and its operands
CONST = "const"


@dataclass(eq=False)
class Node:
    """A matrix in the making."""

    # What writes it: `input`, `weight`, `given` (by what is not understood), `expr`, `multiply`, `attention`,
    # `embed`, `rows`, `dispatch`, `scores`, `grouped`, `combine`, `slice`.
    kind: str
    rows: int  # rows
    cols: int  # columns
    reads: tuple["Node", ...] = field(default=(), repr=False)  # nodes that it reads
    # What the kind needs besides; of an expression its tree.
    how: dict[str, Any] = field(default_factory=dict, repr=False)
    order: tuple[int, ...] = ()  # where it comes in the graph
    block: str = ""  # name of the repeated part of the model that it is in; empty outside
    label: str = ""  # what it may be called
    width: int = 0  # columns over which its elements repeat, of a mean of each so many; 0 if they do not

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.cols


class Constant(NamedTuple):
    """An array that is the same for all inputs of a shape, so that it is computed once: a mask, positions."""

    shape: tuple[int, ...]  # length of each dimension
    source: Any = None  # the reader's name for it


class Graph:
    """The nodes in order, written by a reader of some framework's graph."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []  # all nodes
        self.block = ""  # the repeated part that operations are in now
        self.label = ""  # what the next node may be called
        self.unknown: dict[str, int] = {}  # operations that are not understood, with their flop
        self.left_out: dict[str, int] = {}  # what is not priced, with how often
        self.without_gradient: dict[str, None] = {}  # why it has no gradients, or not those of the rules

    def add(self, kind: str, rows: int, cols: int, *reads: Node, **how: Any) -> Node:
        """Add a node that reads others."""
        width = how.pop("width", 0)
        node = Node(kind, rows, cols, reads, how, (len(self.nodes),), self.block, self.label, width)
        self.nodes.append(node)
        return node

    def leaf(self, kind: str, shape: Sequence[int], flipped: bool = False) -> Value:
        """Add an input or a weight; its last dimension is its columns, or of a flipped matrix its rows."""
        rows, cols = list(shape[:-1]), list(shape[-1:])
        if flipped:
            node = self.add(kind, prod(cols), prod(rows))
            value = folded(node, cols, rows)
            return Value(node, value.dims[1:] + value.dims[:1])
        node = self.add(kind, prod(rows), prod(cols))
        return folded(node, rows, cols)

    def not_understood(self, name: str, shape: Sequence[int], flop: int = 0) -> Value:
        """Return an array that something gives that is not understood."""
        self.unknown[name] = self.unknown.get(name, 0) + flop
        return self.leaf("given", shape)

    def leave_out(self, what: str) -> None:
        """Note something that is not priced."""
        self.left_out[what] = self.left_out.get(what, 0) + 1

    # Elements

    def elements(self, op: str, *operands: "Value | Constant | float", shape: Sequence[int]) -> Value | None:
        """Return an elementwise function of arrays in a shape; None if they have no common fold."""
        main = main_operand(operands, shape)
        if main is None:
            return None
        trees: list[Tree] = []
        for x in operands:
            if isinstance(x, Value):
                kind = lines_read(x, main)
                if kind is None and needs_input(x.node):
                    return None
                if kind is None:
                    self.leave_out("operands that repeat otherwise than by rows or columns")
                trees.append(CONST if kind is None else Leaf(x.node, kind))
            elif isinstance(x, Constant):
                trees.append(1.0 if op == "*" and prod(x.shape) == 1 else CONST)
            else:
                trees.append(float(x))
        of_main = main.node
        node = self.add("expr", *of_main.shape, *leaves_of(trees), tree=simple((op, *trees)))
        constants = [x for x in operands if isinstance(x, Constant)]
        if len(constants) == 1:
            node.how["constant"] = constants[0]
        # Only where all operands repeat over a group of columns does the result.
        widths = {x.node.width for x in operands if isinstance(x, Value) and x.node.shape == of_main.shape}
        node.width = 0 if 0 in widths else min(widths, default=0)
        return Value(node, main.dims)

    def of_rows(
        self, op: str, x: Value, axes: Sequence[int], keep: bool, *more: float, same: bool = False
    ) -> Value | None:
        """Return a function of rows over some dimensions; None if these are not columns beside each other.

        Args:
            keep: Whether they stay, of length 1.
            more: Numbers that the function takes after the width.
            same: Whether the result has the array's shape, as a softmax has.
        """
        axes = sorted(a % len(x.dims) for a in axes)
        runs = sorted((y for a in axes for y in x.dims[a]), key=lambda y: y.stride)
        width = 1
        for run in runs:
            if run.axis != COLS or run.stride != width:
                return None
            width *= run.size
        if x.node.width and width % x.node.width:
            return None
        node = self.add("expr", *x.node.shape, x.node, tree=(op, Leaf(x.node, "rc"), width, *more))
        if same:
            return Value(node, x.dims)
        node.width = width
        dims: list[Dim] = [() if i in axes else y for i, y in enumerate(x.dims)]
        return Value(node, tuple(y for i, y in enumerate(dims) if keep or i not in axes))

    def stopped(self, x: Value) -> Value:
        """Return an array without its gradient."""
        tree = ("stop", Leaf(x.node, "rc"))
        node = self.add("expr", *x.node.shape, x.node, tree=tree, width=x.node.width)
        return Value(node, x.dims)

    # Products

    def contract(self, a: Value, b: Value, of_a: str, of_b: str, of_out: str, **how: Any) -> Value | None:
        """Return the product of two arrays over the letters that the result lacks, as one (batched) multiply.

        None if an array's rows and columns are not what one multiply takes.

        Args:
            of_a: A letter for each of its dimensions.
            of_b: A letter for each dimension of b.
            how: Of the multiply, besides.
        """
        sizes = dict(zip(of_a, a.shape, strict=True)) | dict(zip(of_b, b.shape, strict=True))
        shared = [x for x in of_out if x in of_a and x in of_b and sizes[x] > 1]
        m = [x for x in of_out if x in of_a and x not in of_b and sizes[x] > 1]
        n = [x for x in of_out if x in of_b and x not in of_a and sizes[x] > 1]
        k = [x for x in of_a if x in of_b and x not in of_out and sizes[x] > 1]
        made = _member(a, of_a, shared, m, k), _member(b, of_b, shared, k, n)
        left, right = made
        if left is None or right is None or left.second != right.first:
            return None
        # The batch: letters outside all others in every operand's rows are sequences, the rest members.
        count = 0
        while count < len(shared) and all(
            x.rows[: count + 1] == shared[: count + 1] and not x.repeats.get(shared[count]) for x in made if x
        ):
            count += 1
        outer, inner = shared[:count], shared[count:]
        axes = []
        for x in (left, right):
            axis = _axis(x, outer, inner)
            if axis is None:
                return None
            axes.append(axis)
        repeats = [{y: z for y, z in x.repeats.items() if z > 1} for x in (left, right)]
        if any(set(x) - set(inner[-1:]) for x in repeats):
            return None
        axis = int(1 in axes) if inner else 0
        rows = outer + (inner if axis == 0 else []) + left.first
        cols = (inner if axis == 1 else []) + right.second
        node = self.add(
            "multiply", prod(sizes[x] for x in rows), prod(sizes[x] for x in cols), a.node, b.node,
            trans=tuple(name for name, x in (("a", left), ("b", right)) if x.transposed),
            batch=prod(sizes[x] for x in inner), batch_axes=(axis, *axes),
            groups=(1, *(prod(x.values()) for x in repeats)), sequences=prod(sizes[x] for x in outer),
            **how,
        )  # fmt: skip
        placed = folded(node, [sizes[x] for x in rows], [sizes[x] for x in cols])
        by_letter = dict(zip(rows + cols, placed.dims, strict=True))
        return Value(node, tuple(by_letter.get(x, ()) for x in of_out))

    def sliced(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value | None:
        """Return some indices of a dimension; None if it runs over rows and columns both."""
        axis %= len(x.dims)
        size = length(x.dims[axis])
        start, stop = (min(max(y + size if y < 0 else y, 0), size) for y in (start, stop))
        count = max(0, -(-(stop - start) // step))
        if count == size:
            return x
        runs = merged(x.dims[axis])
        if len(runs) != 1 or count == 0 or runs[0].axis == NONE:
            return Value(x.node, (*x.dims[:axis], (), *x.dims[axis + 1 :])) if count and not runs else None
        run = runs[0]
        rows, cols = x.node.shape
        rows, cols = (rows // size * count, cols) if run.axis == ROWS else (rows, cols // size * count)
        node = self.add("slice", rows, cols, x.node, run=run, start=start, step=step, count=count)

        def moved(y: Atom) -> Atom:
            if y.axis != run.axis or y.stride <= run.stride:
                return y
            return Atom(y.axis, y.stride // size * count, y.size)

        dims = [tuple(map(moved, y)) for y in x.dims]
        dims[axis] = dim(run.axis, count, run.stride)
        return Value(node, tuple(dims))


def simple(tree: Tree) -> Tree:
    """Return an expression without a factor of 1 and a summand of 0."""
    match tree:
        case ("*", x, 1.0) | ("*", 1.0, x) | ("+", x, 0.0) if not isinstance(x, float):
            return tree if isinstance(x, str) else ("same", x)
    return tree


def main_operand(operands: Sequence[Any], shape: Sequence[int]) -> Value | None:
    """Return the first operand that has the shape of the result, and repeats nowhere."""
    values = [
        x
        for x in operands
        if isinstance(x, Value)
        and x.shape == tuple(shape)
        and not any(y.axis == NONE for runs in x.dims for y in runs)
    ]
    # What repeats over a group of columns stands for fewer elements than it has.
    return min(values, key=lambda x: (x.node.width > 0, not needs_input(x.node)), default=None)


def lines_read(x: Value, main: Value) -> str | None:
    """Return which lines of another array's matrix an operand has; None if it repeats in another way."""
    before = len(main.dims) - len(x.dims)
    if before < 0:
        return None
    kinds = {"rc", "1c", "r1", "11"}
    if x.node.shape != main.node.shape:
        kinds.discard("rc")
    kinds -= {y for y in kinds if ("r" in y and x.node.rows != main.node.rows)}
    kinds -= {y for y in kinds if ("c" in y and x.node.cols != main.node.cols)}
    kinds -= {y for y in kinds if ("r" not in y and x.node.rows != 1) or ("c" not in y and x.node.cols != 1)}
    for number, theirs in enumerate(main.dims):
        mine = tuple(y for y in (x.dims[number - before] if number >= before else ()) if y.axis != NONE)
        theirs = merged(theirs)
        for kind in list(kinds):
            wanted = tuple(y for y in theirs if y.axis in kind)
            grouped = (
                kind == "rc"
                and not mine
                and all(y.axis == COLS and y.stride * y.size <= x.node.width for y in theirs)
            )
            if merged(mine) != wanted and not grouped:
                kinds.discard(kind)
    return next((y for y in ("rc", "1c", "r1", "11") if y in kinds), None)


def needs_input(node: Node) -> bool:
    """Whether an array depends on the inputs, and not on weights alone."""
    if "needs" not in node.how:
        node.how["needs"] = node.kind in ("input", "given") or any(map(needs_input, node.reads))
    return bool(node.how["needs"])


def leaves_of(trees: Sequence[Tree]) -> tuple[Node, ...]:
    """Return the nodes that expressions read, each once."""
    seen: dict[Node, None] = {}
    stack = list(reversed(trees))
    while stack:
        x = stack.pop()
        if isinstance(x, Leaf):
            seen.setdefault(x.node)
        elif isinstance(x, tuple):
            stack.extend(reversed(x[1:]))
    return tuple(seen)


class _Member(NamedTuple):
    """An operand of a multiply: the letters of its rows and of its columns, the slowest first."""

    rows: list[str]  # letters of its rows
    cols: list[str]  # letters of its columns
    transposed: bool  # whether its summed letters are where the multiply's own are not
    first: list[str]  # letters of the rows it is to have, in order, without those of a batch
    second: list[str]  # letters of the columns
    repeats: Mapping[str, int]  # how many members of the multiply share one of it, by letter


def _member(
    x: Value, letters: str, shared: Sequence[str], first: Sequence[str], second: Sequence[str]
) -> _Member | None:
    """Return an operand whose rows are to be ``first`` and its columns ``second``, or the other way round."""
    placed = lines(x, range(len(x.dims)))
    if placed is None:
        return None
    rows, cols = ([letters[i] for i in y] for y in placed)
    sizes = dict(zip(letters, x.shape, strict=True))
    repeats = {
        letter: length(y for y in runs if y.axis == NONE)
        for letter, runs in zip(letters, x.dims, strict=True)
    }
    for letter, runs in zip(letters, x.dims, strict=True):
        repeated = any(y.axis == NONE for y in runs)
        if repeated and (letter not in shared or (runs[0].axis == NONE and len(runs) > 1)):
            return None
    elements = prod(size // repeats[letter] for letter, size in sizes.items())
    if elements != x.node.rows * x.node.cols or len(set(letters)) < len(letters):
        return None
    down = [y for y in rows if y not in shared]
    across = [y for y in cols if y not in shared]
    transposed = set(down) != set(first) or set(across) != set(second)
    if transposed and (set(down) != set(second) or set(across) != set(first)):
        return None
    parts = (across, down) if transposed else (down, across)
    return _Member(rows, cols, transposed, parts[0], parts[1], repeats)


def _axis(x: _Member, outer: Sequence[str], inner: Sequence[str]) -> int | None:
    """Return along which axis members lie; None if they do not lie outside all else."""
    inner = [y for y in inner if y in x.rows + x.cols]  # one of which every member is a repeat lies in none
    if not inner:
        return 0
    rows = x.rows[len(outer) :]
    for axis, letters in enumerate((rows, x.cols)):
        if letters[: len(inner)] == inner:
            return axis
    return None
