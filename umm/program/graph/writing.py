"""A graph's nodes as statements: elementwise operations fused into maps, slices into their multiplies."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from umm.errors import ProblemError
from umm.program.functions.expressions import LETTERS, MARK
from umm.program.functions.expressions import ROWS as ROW_FUNCTIONS
from umm.program.graph.folds import COLS, ROWS, Atom
from umm.program.graph.nodes import CONST, MAX_LEAVES, Graph, Leaf, Node, Tree, leaves_of, needs_input
from umm.program.mixture import outline as mixture_outline
from umm.program.outline import Outline
from umm.program.statements import of_kind
from umm.program.statements.attention import Attention
from umm.program.statements.combine import Combine
from umm.program.statements.dispatch import Dispatch
from umm.program.statements.grouped import Grouped
from umm.program.statements.multiply import Multiply
from umm.program.writing import Writing

MAX_TEXT = 1000  # characters of an expression; what is longer becomes two passes
HEAVY = ("multiply", "grouped")
TOKENS, INNER = "tokens", "inner"


@dataclass(frozen=True)
class Part:
    """A stretch of a model that is one chain, as often as it comes."""

    block: str  # name of the repeated part of the model; empty of what comes once
    outline: Outline  # its chain
    count: int = 1  # how many such there are


def settled(graph: Graph, outputs: Sequence[Node]) -> tuple[list[Node], dict[Node, Node]]:
    """Return the nodes that outputs need, in order, slices resolved; and each node's stand-in."""
    done: dict[Node, Node] = {}
    slices: dict[tuple[Any, ...], Node] = {}
    made: list[Node] = []

    def sliced(x: Node, how: Mapping[str, Any]) -> Node:
        """Return a slice of a settled node as a smaller multiply, expression, weight or input."""
        key = (x, how["run"], how["start"], how["step"], how["count"])
        if key in slices:
            return slices[key]
        run: Atom = how["run"]
        shape = (
            (x.rows // run.size * how["count"], x.cols)
            if run.axis == ROWS
            else (x.rows, x.cols // run.size * how["count"])
        )
        part = replace(
            x, rows=shape[0], cols=shape[1], how=dict(x.how), order=(*x.order, len(slices) + 1),
            label=f"{x.label or 'H'}.{how['start'] // how['count'] if how['step'] == 1 else how['start']}",
        )  # fmt: skip
        if x.kind == "expr" and run.axis == COLS and not x.width:
            part.how["tree"] = _sliced_tree(x.how["tree"], lambda y: sliced(y, how))
            part.reads = leaves_of([part.how["tree"]])
        elif x.kind in HEAVY and run.axis == COLS:
            # The run of the weight's lines that gives this run of the product's columns.
            transposed = x.kind == "multiply" and "b" in x.how["trans"]
            lines = run._replace(axis=ROWS if transposed else COLS)
            weight = sliced(x.reads[1], {**how, "run": lines})
            part.reads = (x.reads[0], weight, *x.reads[2:])
            part.how["beside"] = x
        elif x.kind not in ("weight", "input", "given"):
            of_rows = run.axis == ROWS
            part = replace(part, kind="rows" if of_rows else "given", reads=(x,) * of_rows, how={}, width=0)
            if not of_rows:
                part.how["apart"] = x.kind
        slices[key] = part
        made.append(part)
        return part

    def unstopped(x: Node) -> Node:
        """Return the node that one without gradient copies, for readers that are no expressions."""
        if x.kind == "expr" and x.how["tree"][0] == "stop":
            graph.without_gradient["an array without gradient is read by more than a map"] = None
            return unstopped(x.reads[0])
        return x

    for node in graph.nodes:
        if node.kind == "slice":
            done[node] = sliced(done[node.reads[0]], node.how)
            continue
        node.reads = tuple(done[x] for x in node.reads)
        if node.kind == "expr":
            node.how["tree"] = _sliced_tree(node.how["tree"], lambda y: done[y], every=True)
            node.reads = leaves_of([node.how["tree"]])
        elif node.kind != "weight":
            node.reads = tuple(unstopped(x) for x in node.reads)
            for x in node.reads:
                if x.kind == "expr" and not needs_input(x):  # made of weights, once
                    x.kind, x.label, x.reads = "weight", next((y.label for y in x.reads if y.label), ""), ()
        done[node] = node
        made.append(node)
    needed: dict[Node, None] = {}
    done |= {x: unstopped(done[x]) for x in outputs}
    stack = [done[x] for x in outputs]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed[node] = None
            stack.extend(node.reads)
    for node in needed:
        if "apart" in node.how:
            graph.leave_out(f"columns of {node.how['apart']} taken apart")
    return sorted(needed, key=lambda x: x.order), done


def _sliced_tree(tree: Tree, part: Any, every: bool = False) -> Tree:
    if isinstance(tree, Leaf):
        return Leaf(part(tree.node), tree.lines) if every or "c" in tree.lines else tree
    if isinstance(tree, tuple):
        return (tree[0], *(_sliced_tree(x, part, every) for x in tree[1:]))
    return tree


def passes(nodes: Sequence[Node], outputs: set[Node]) -> set[Node]:
    """Return the expressions that are written to memory: others go on in the registers of one of these.

    An expression is written if something else than an expression reads it, or if two that are written do.
    """
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for x in node.reads:
            users.setdefault(x, []).append(node)
    written, roots = set(outputs), dict[Node, set[Node]]()
    for node in reversed(nodes):
        if node.kind != "expr":
            continue
        above: set[Node] = set()
        for user in users.get(node, ()):
            apart = user.kind != "expr" or user.block != node.block
            above |= {node} if apart else {user} if user in written else roots[user]
        if needs_input(node) and (node in above or len(above) > 1):
            written.add(node)
        roots[node] = above - {node}
    return written


def parts(
    graph: Graph, outputs: Sequence[Node], name: str, dtype: str, counted: Sequence[tuple[Node, int]] = ()
) -> list[Part]:
    """Return a graph as chains: one for each repeated part of the model, and those between.

    Args:
        counted: Nodes with their flop; what no output needs counts as not understood, for what breaks its
            way to one is.
    """
    nodes, done = settled(graph, outputs)
    results = {done[x] for x in outputs}
    written = passes(nodes, {x for x in results if x.kind == "expr"})
    steps = [
        x for x in nodes if x.kind not in ("weight", "input", "given") and (x.kind != "expr" or x in written)
    ]
    if not steps:
        raise ProblemError(f"{name} ends in {', '.join(graph.unknown)}, which no statement is; leave it out")
    needed = {*nodes, *(x.how["beside"] for x in nodes if "beside" in x.how)}
    if lost := sum(flop for x, flop in counted if done[x] not in needed):
        graph.unknown["what leads to them alone"] = lost
    steps = _latents_first(_at_once(steps, written))
    stretches = [(block, list(of_block)) for block, of_block in groupby(steps, key=lambda x: x.block)]
    made: list[Part] = []
    for number, (block, of_block) in enumerate(stretches):
        later = {y for _, others in stretches[number + 1 :] for x in others for y in _read(x, written)}
        given = {x for x in of_block if x in later or x in results}
        outline = _Stretch(f"{name}-layer" if block else name, dtype, written, given, of_block).outline()
        kind = re.sub(r"\.\d+$", "", block)
        content = kind, outline.tensors, outline.statements
        others = [(x.block, x.outline.tensors, x.outline.statements) for x in made if block]
        alike = others.index(content) if content in others else None
        if alike is None:
            made.append(Part(kind, outline))
        else:
            made[alike] = replace(made[alike], count=made[alike].count + 1)
    return made


def _at_once(steps: Sequence[Node], written: set[Node]) -> list[Node]:
    """Return steps with each map that reads one result right after it, so that transfers begin early."""
    # Multiplies that are one kernel stay beside each other.
    after: dict[Node, list[Node]] = {}
    places = set(steps)
    for x in steps:
        read = [y for y in _read(x, written) if y.kind != "weight"]
        alone = x.kind == "expr" and len(read) == 1 and read[0] in places and "beside" not in read[0].how
        if alone and read[0].block == x.block:
            after.setdefault(read[0], []).append(x)
    moved = {x for others in after.values() for x in others}
    result: list[Node] = []
    stack = [x for x in reversed(steps) if x not in moved]
    while stack:
        x = stack.pop()
        result.append(x)
        stack += reversed(after.get(x, []))
    return result


def _latents_first(steps: Sequence[Node]) -> list[Node]:
    """Return steps with multiplies of one matrix together where a multiply of their results stands between.

    Latent queries and latent keys are both computed before either is waited for.
    """
    result: list[Node] = []
    for x in steps:
        at = len(result)
        if x.kind == "multiply" and all(y.kind == "weight" for y in x.reads[1:]):
            crossed = False
            for place in reversed(range(len(result))):
                y = result[place]
                if y.kind not in ("multiply", "expr") or y.block != x.block:
                    break
                if y.kind == "multiply" and y.reads[0] is x.reads[0]:
                    at = place + 1 if crossed else at
                    break
                crossed = crossed or y.kind == "multiply"
        result.insert(at, x)
    return result


def _read(node: Node, written: set[Node]) -> list[Node]:
    """Return the nodes in memory that a statement reads, through expressions that are not written."""
    result: dict[Node, None] = {}
    stack = list(reversed(node.reads))
    while stack:
        x = stack.pop()
        if x.kind == "expr" and x not in written:
            stack.extend(reversed(x.reads))
        else:
            result.setdefault(x)
    return list(result)


@dataclass
class _Stretch:
    """The statements of some nodes, written to an outline."""

    name: str  # name of the chain
    dtype: str  # type of all tensors
    written: set[Node]  # expressions that are written
    given: set[Node]  # nodes that others read later, or that are results
    nodes: list[Node]  # in order
    names: dict[Node, str] = field(default_factory=dict)

    def outline(self) -> Outline:
        """Return the chain."""
        routed = [x.how["routing"] for x in self.nodes if "routing" in x.how]
        mine, enters = set(self.nodes), dict[Node, None]()
        for node in self.nodes:
            enters |= dict.fromkeys(x for x in _read(node, self.written) if x not in mine)
        states = [x for x in enters if x.kind != "weight"]
        last = next((x for x in reversed(self.nodes) if x in self.given), self.nodes[-1])
        named = any(x.how.get("named") for x in states)
        first = max((x for x in states if x.shape == last.shape), key=lambda x: x.order, default=None)
        first = first or max(states, key=lambda x: x.rows * x.cols, default=None)
        self.w, self.latent = Writing(last.rows, self.dtype), set(self._latents())
        first = None if named else first
        self.taken, self.last = {"X", "Y"} if first else {"Y"}, last
        for x in enters:
            if x.kind == "weight":
                continue
            self.names[x] = "X" if x is first else self._name(x.label or "X")
            self.w.tensor(self.names[x], x.rows, x.cols, TOKENS, "input")
        for node in self.nodes:
            for x in _read(node, self.written):
                self._weight(x, node)
            getattr(self, f"_{node.kind}")(node)
        if not routed:
            return self.w.outline(self.name, {})
        for name, place in self.w.places.items():
            self.w.places[name] = {"statistics": TOKENS, "scores": INNER}.get(place, place)
        return mixture_outline(self.w, self.name, routed[0])

    def _latents(self) -> Iterator[Node]:
        """Yield products that all heads share: latent vectors, normalised for a multiply, and positions."""
        for node in self.nodes:
            if node.kind == "attention":
                yield from (y for x in node.reads[4:] for y in ([x] if x.kind != "expr" else x.reads))
            if node.kind != "multiply" or node.reads[1].kind != "weight" or node.reads[0].kind != "expr":
                continue
            (read, *others) = [x for x in _read(node.reads[0], self.written) if x.kind != "weight"] or [node]
            if read.kind == "multiply" and not others and _whole_rows(node.reads[0].how["tree"], read.cols):
                yield read

    def _name(self, label: str) -> str:
        """Return a name that no other tensor of the chain has."""
        label = re.sub(r"[^A-Za-z0-9_.]", "_", label)
        label = label if re.match(r"[A-Za-z_]", label) else f"t{label}"
        label = label[-56:].lstrip("._0123456789") or "t"
        name, number = label, 1
        while name in self.taken:
            number += 1
            name = f"{label}_{number}"
        self.taken.add(name)
        return name

    def _weight(self, x: Node, reader: Node) -> None:
        """Add a weight where a statement first reads it: as the first of two, or the second."""
        if x in self.names:
            return
        place = "scale"
        if reader.kind == "grouped":
            place = "weight"
        elif reader.kind == "embed":
            place = "second weight"
        elif reader.kind == "multiply":
            left = next(y for y in reader.reads if y is not x) if len(set(reader.reads)) > 1 else x
            of_inner = self.w.places.get(self.names.get(left, ""), TOKENS) == INNER
            place = "second weight" if of_inner else "first weight"
            if reader.how.get("router") or reader in self.latent:
                place = "scale"
        self.names[x] = self._name(x.label or "W")
        self.w.weight(self.names[x], x.rows, x.cols, place)

    def _out(self, node: Node, label: str, place: str, cols: int = 0) -> str:
        """Add the tensor that a node writes; return its name."""
        name = "Y" if node is self.last else self._name(node.label or label)
        self.names[node] = name
        role = "output" if node in self.given else "work"
        return self.w.tensor(name, node.rows, cols or node.cols, place, role)

    def _place(self, *nodes: Node) -> str:
        """Return the place of an elementwise function of some nodes."""
        places = [self.w.places[self.names[x]] for x in nodes if x.kind != "weight"]
        for place in ("routed inner", "product", "routed", INNER):
            if place in places:
                return place
        return TOKENS

    def _expr(self, node: Node) -> None:
        leaves: list[Leaf] = []
        text = self._text(node.how["tree"], leaves, "rc")
        out = "r1" if node.width == node.cols else "rc"
        names = [self.names[x.node] for x in leaves]
        label, fn, order, parameters = named(text, [x.lines for x in leaves], out)
        place = self._place(*(x.node for x in leaves))
        if node is self.last and place == INNER and any(self.names[x.node] == "X" for x in leaves):
            place = TOKENS
        place, cols = ("statistics", 1) if out == "r1" else (place, 0)
        self.w.fused_map(self._out(node, label, place, cols), fn, *(names[i] for i in order), **parameters)

    def _text(self, tree: Tree, leaves: list[Leaf], lines: str) -> str:
        """Return an expression as text, its leaves by letters, those in registers written out."""
        match tree:
            case Leaf(node=node, lines=of_leaf):
                kind = "".join("1" if "1" in pair else pair[0] for pair in zip(lines, of_leaf, strict=True))
                if node.kind == "expr" and node not in self.written:
                    return self._text(node.how["tree"], leaves, kind)
                leaf = Leaf(node, f"{kind[0]}1" if node.width == node.cols else kind)
                if leaf not in leaves:
                    leaves.append(leaf)
                if len(leaves) > MAX_LEAVES:
                    raise ProblemError(
                        f"an elementwise pass of {self.name} reads more than {MAX_LEAVES} tensors"
                    )
                return LETTERS[leaves.index(leaf)]
            case ("same", x):
                return self._text(x, leaves, lines)
            case (op, *operands):
                texts = [self._text(x, leaves, lines) for x in operands]
                if op in ("+", "-", "*", "/", "**") and len(texts) == 2:
                    return f"({texts[0]} {op} {texts[1]})"
                return f"(-{texts[0]})" if op == "neg" else f"{op}({', '.join(texts)})"
        return tree if tree == CONST else _number(tree)

    def _multiply(self, node: Node) -> None:
        a, b, *_ = node.reads
        how = {
            x: y for x, y in node.how.items() if x in ("batch", "batch_axes", "groups", "sequences", "alpha")
        }
        places = [self.w.places[self.names[x]] for x in (a, b)]
        place = TOKENS if INNER in places and b.kind == "weight" else INNER
        if node.how.get("router") or node in self.latent:
            place = TOKENS
        elif a.kind != "weight" and b.kind != "weight":
            place = INNER if INNER in places else TOKENS
        first = node.how.get("beside")
        for before in of_kind(Multiply, self.w.statements[-1:]):
            if first is None or before.a != self.names[a]:
                continue
            theirs = next((x for x, name in self.names.items() if name == before.out), None)
            if theirs is not None and theirs.how.get("beside") is first:
                how |= {
                    "beside": before.beside or before.out,
                    "besides": before.besides + self.w.shapes[before.out].cols,
                }
        out = self._out(node, "H", place)
        self.w.multiply(out, self.names[a], self.names[b], *node.how["trans"], **how)

    def _attention(self, node: Node) -> None:
        q, k, v, *turned = (self.names[x] for x in node.reads)
        how, w = node.how["how"], self.w
        for x in (k, v):
            w.shapes[x] = replace(w.shapes[x], head=how["head"])
            for made in of_kind(Multiply, w.statements):
                if made.out == x and made.b in w.weights:
                    w.shapes[made.b] = replace(w.shapes[made.b], head=how["head"])
        out = self._out(node, "O", INNER)
        lse = w.tensor(self._name("L"), node.rows, node.cols // how["head"], INNER)
        w.statements.append(Attention(out, q, k, v, lse, rotary=tuple(turned), **how))
        if how["causal"]:
            w.front_and_back = "zigzag" if how["sequences"] == 1 else f"zigzag:{how['sequences']}"

    def _embed(self, node: Node) -> None:
        table, tokens = (self.names[x] for x in node.reads)
        self.w.shapes[tokens] = replace(self.w.shapes[tokens], dtype="float32")  # whole numbers up to 2^24
        self.w.places[tokens] = "statistics"
        self.w.map(self._out(node, "E", TOKENS), "embed", table, tokens)

    def _rows(self, node: Node) -> None:
        """Take some rows, as the last token of each sequence."""
        (x,) = node.reads
        at = self.w.tensor(self._name("at"), node.rows, 1, "statistics", "input")
        self.w.shapes[at] = replace(self.w.shapes[at], dtype="float32")
        self.w.map(self._out(node, "rows", TOKENS), "embed", self.names[x], at)

    def _scores(self, node: Node) -> None:
        """Write each token's shares of its experts."""
        out = self._out(node, "P", TOKENS)
        self.w.map(out, "routed_softmax", self.names[node.reads[0]], routing=str(node.how["routing"]))

    def _dispatch(self, node: Node) -> None:
        gates, text = node.how.get("gates", False), str(node.how["routing"])
        out = self._out(node, "S" if gates else "R", "routed")
        self.w.statements.append(Dispatch(out, self.names[node.reads[0]], text, gates=gates))

    def _grouped(self, node: Node) -> None:
        a, b = (self.names[x] for x in node.reads)
        place = "product" if node.how["trans"] else "routed inner"
        out, first = self._out(node, "H", place), node.how.get("beside")
        beside = next((x.out for x in of_kind(Grouped, self.w.statements[-1:]) if x.a == a), "")
        joint = next((x.how.get("beside") for x, name in self.names.items() if name == beside), None)
        beside = beside if first is not None and joint is first else ""  # parts of one weight
        text, trans = str(node.how["routing"]), node.how["trans"]
        self.w.statements.append(Grouped(out, a, b, text, trans, beside=beside))

    def _combine(self, node: Node) -> None:
        z, gates = (self.names[x] for x in node.reads)
        out = self._out(node, "M", TOKENS)
        self.w.statements.append(Combine(out, z, str(node.how["routing"]), gates))


_MEAN = r"rsqrt\(\(mean\(\({x} \*\* 2\), \d+\) \+ (?P<epsilon>\S+?)\)\)"
_TURNED = r"\((?P<_0>a), (?P<head>\d+), (?P<positions>\d+), (?P<base>\S+), (?P<first>\d+)"
_KNOWN = (
    ("add", r"\((?P<_0>a) \+ (?P<_1>b)\)", ("rc", "rc")),
    ("bias", r"\((?P<_0>a) \+ (?P<_1>b)\)", ("rc", "1c")),
    ("mul", r"\((?P<_0>a) \* (?P<_1>b)\)", ("rc", "rc")),
    ("silu_mul", r"\(silu\((?P<_0>a)\) \* (?P<_1>b)\)", ("rc", "rc")),
    ("silu_mul", r"\(\((?P<_0>a) \* sigmoid\(a\)\) \* (?P<_1>b)\)", ("rc", "rc")),
    ("silu", r"\((?P<_0>a) \* sigmoid\(a\)\)", ("rc",)),
    ("silu_mul", r"\((?P<_1>a) \* silu\((?P<_0>b)\)\)", ("rc", "rc")),
    ("silu", r"silu\((?P<_0>a)\)", ("rc",)),
    ("gelu", r"gelu\((?P<_0>a)\)", ("rc",)),
    ("relu", r"relu\((?P<_0>a)\)", ("rc",)),
    ("rms_norm", rf"\(\((?P<_0>a) \* {_MEAN.format(x='a')}\) \* (?P<_1>b)\)", ("rc", "1c")),
    ("rms_norm", rf"\((?P<_1>a) \* \((?P<_0>b) \* {_MEAN.format(x='b')}\)\)", ("1c", "rc")),
    ("rope", rf"rope{_TURNED}, 0\)", ("rc",)),
    ("rope_halves", rf"rope_halves{_TURNED}, (?P<turned>\d+)\)", ("rc",)),
)
"""Functions that have a name: its expression with its operands in order, and the lines of a, b, …"""
USUAL = (("base", 10000.0), ("first", 0), ("turned", 0))  # parameters that need not be written


def named(text: str, lines: Sequence[str], out: str) -> tuple[str, str, Sequence[int], dict[str, Any]]:
    """Return a label, the function of an expression, the order of its operands and its parameters.

    >>> named("(a * silu(b))", ["rc", "rc"], "rc")
    ('silu_mul', 'silu_mul', [1, 0], {})
    """
    for name, pattern, wanted in _KNOWN:
        match = re.fullmatch(pattern, text)
        if match and tuple(lines) == wanted and out == "rc":
            groups = match.groupdict()
            order = [LETTERS.index(groups.pop(f"_{i}")) for i in range(len(lines))]
            how = {x: float(y) if x in ("epsilon", "base") else int(y) for x, y in groups.items()}
            how = {x: y for x, y in how.items() if (x, y) not in USUAL}
            return name, name, order, how
    if "rotated" in text:
        raise ProblemError("halves of columns are swapped otherwise than for rotary positions")
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT]
        raise ProblemError(f"the expression {text}… is too long for one pass")
    if text.startswith("(") and text.endswith(")") and _closes_last(text):
        text = text[1:-1]
    called = [x for x in re.findall(r"[a-z_]{3,}", text) if x != CONST]
    return called[0] if called else "sum", f"{text}{MARK}{','.join(lines)}->{out}", range(len(lines)), {}


def _whole_rows(tree: Tree, cols: int) -> bool:
    """Whether an expression has a function of rows of so many columns."""
    if isinstance(tree, Leaf):
        return tree.node.kind == "expr" and _whole_rows(tree.node.how["tree"], cols)
    if not isinstance(tree, tuple):
        return False
    return (tree[0] in ROW_FUNCTIONS and cols in tree[1:]) or any(_whole_rows(x, cols) for x in tree[1:])


def _closes_last(text: str) -> bool:
    depth = 0
    for number, x in enumerate(text):
        depth += {"(": 1, ")": -1}.get(x, 0)
        if depth == 0:
            return number == len(text) - 1
    return False


def _number(x: float) -> str:
    return str(int(x)) if x == int(x) and abs(x) < 1e9 else repr(float(x))
