"""A chain before it is laid out: statements on tensors of known shapes, and layouts to choose from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isqrt, prod
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umm.dtypes import COMPLEX
from umm.errors import InputError, ProblemError, did_you_mean, expect
from umm.files import fields_of, shown, whole_number
from umm.layouts.edges import RULES
from umm.layouts.layout import Layout
from umm.layouts.places import mesh_sizes
from umm.layouts.text import read_form
from umm.numbers import parse_whole, whole_in
from umm.program.chain import LONG, Chain, in_short
from umm.program.schemes import is_scheme, scheme_layouts, text_of
from umm.program.statements import Statement, reading, statement_from_dict, statement_to_dict
from umm.program.tensors import Tensor

DEFAULT = "row"
MAX_NAME = 200  # characters of a name of layouts
BY_EXPERT = "experts"
_EXPERT_MESH = re.compile(r"experts@((?:[1-9]\d{0,5}x)*[1-9]\d{0,5}):([rc-]+)")
_EXPERT_SCHEME = re.compile(r"ep([1-9]\d{0,5})(?:-tp([1-9]\d{0,5}))?")
_EVERY_RANK = re.compile(r"@p(?=$|:)")
_LAYERED = {
    "2d:dqxq": lambda d, q: f"2d:{d * q}x{q}",
    "2d:qxq@d": lambda d, q: f"2d:{q}x{q}@{d}",
    "row@q:interleaved": lambda d, q: f"row@{q}:interleaved",
}


@dataclass(frozen=True)
class Shape:
    """A tensor before it is laid out."""

    name: str  # as of a `umm.program.tensors.Tensor`, and so are the dtype and the role
    rows: int
    cols: int  # its columns
    dtype: str  # type of its elements
    role: str = "work"  # `input`, `output`, `both` or `work`
    # The first row of each expert and the number of rows at the end, of rows sorted by expert.
    experts: tuple[int, ...] = ()
    whole: bool = False  # whether `experts/2` is copies, for its columns are not those of an expert's weights
    # Columns of a head of keys or values, 0 if it is of something else. Ranks that cut columns have whole
    # heads, several ranks the same where there are more ranks than heads.
    head: int = 0
    # Rows of each sequence, of keys or values of earlier tokens; 0 if it is of something else. Ranks that cut
    # rows have those of whole sequences, of the ones whose next token they have.
    context: int = 0
    stored: str = ""  # as of a tensor

    def laid_out(self, text: str, ranks: int) -> Tensor:
        """Return the tensor in a layout; ``@p`` in its text is a replica on every rank.

        ``2d:dqxq``, ``2d:qxq@d`` and ``row@q:interleaved`` are of d layers of q×q ranks, as many layers as
        there can be, d ≤ q. ``experts`` cuts rows between experts, ``experts:4x2`` into 4 groups of experts
        and columns into 2; ``experts@2`` into half as many groups as ranks, each at 2 ranks beside each
        other. ``experts/2`` is ``experts@2`` of what is ``whole``, else 2 cuts of columns.
        ``experts/whole`` is all experts' weights on every rank, and a share of the routed rows.
        ``experts@16x8:-r`` is along a mesh of ranks: 8 groups of experts, each at 16 ranks.
        """
        whole_number(ranks, "ranks", 1)
        expect(text, str, f"the layout of {self.name}", "a text such as col@2")
        if text.startswith(BY_EXPERT):
            text = self._by_expert(text, ranks)
        text = self._of_whole_sequences(_written_out(self._of_whole_heads(text, ranks), ranks), ranks)
        layout = Layout.parse(text, (self.rows, self.cols), ranks)
        return Tensor(self.name, layout, self.dtype, self.role, self.stored)

    def _of_whole_heads(self, text: str, ranks: int) -> str:
        """Return the text of a layout that cuts columns, so that no head is cut if that is even."""
        kind, _, mesh = text.partition("@") if text != "col" else ("col", "", f"{ranks}:c")
        match = re.fullmatch(r"([\dx]+):([rc-]+)", mesh)
        heads = self.cols // self.head if self.head else 0
        if not heads or match is None or kind.startswith(("cyclic", "edges")):
            return text
        sizes, axes = [parse_whole(x) for x in match[1].split("x")], match[2]
        shared, rest = divmod(prod(x for x, use in zip(sizes, axes, strict=False) if use == "c"), heads)
        last = axes.rfind("c")
        if rest or shared < 2 or len(axes) != len(sizes) or sizes[last] % shared:
            return text
        sizes[last : last + 1] = [sizes[last] // shared, shared]
        # The mesh makes the grid, which has fewer columns now than a grid that was written beside it.
        kind = re.sub(r"^2d:\d+x\d+", "2d", kind)
        return text_of(kind, axes[: last + 1] + "-" + axes[last + 1 :], tuple(sizes))

    def _of_whole_sequences(self, text: str, ranks: int) -> str:
        """Return the text of a layout that cuts rows as it would cut a row for each sequence."""
        # A server keeps the keys of a sequence where its tokens are decoded; cut evenly, those of one
        # sequence would be on all ranks, and move for each token.
        form = read_form(text) if self.context else None
        if form is None or form.rule not in ("row", "2d") or ranks % form.where.replicas:
            return text
        down, across = form.process_grid(ranks // form.where.replicas)
        rule = RULES["balanced" if form.balanced else "ceil"]
        rows = rule(self.rows // self.context, down) * self.context
        if np.array_equal(rows, rule(self.rows, down)):
            return text
        edges = tuple(rows.tolist()), tuple(rule(self.cols, across).tolist())
        grid = None if form.where.mesh else (down, across)
        return str(replace(form, rule="edges", edges=edges, grid=grid, balanced=False))

    def _by_expert(self, text: str, ranks: int) -> str:
        """Return the edges that a layout by experts means."""
        if text == f"{BY_EXPERT}/whole" and self.experts:
            return f"row@{ranks}" if self.role in ("input", "output") else DEFAULT
        share = re.fullmatch(r"experts/([1-9]\d{0,5})", text)
        if share is not None:
            parts = parse_whole(share[1])
            text = f"experts@{parts}" if self.whole else f"experts:{max(1, ranks // parts)}x{parts}"
        mesh = _EXPERT_MESH.fullmatch(text)
        if mesh is not None and self.experts and mesh[1].count("x") + 1 == len(mesh[2]):
            _, groups, cuts = mesh_sizes([parse_whole(x) for x in mesh[1].split("x")], mesh[2])
            return self._edges_by_expert(groups, cuts, f"@{mesh[1]}:{mesh[2]}")
        match = re.fullmatch(r"experts(?::([1-9]\d{0,5})x([1-9]\d{0,5})|@([1-9]\d{0,5}))?", text)
        if match is None or not self.experts:
            rows = "" if self.experts else f", and rows of {self.name} are not sorted by expert"
            raise ProblemError(f"{shown(text)} is not experts, experts/2, experts:4x2 or experts@2{rows}")
        groups, cuts, copies = (parse_whole(x or "0") for x in match.groups())
        cuts, copies = cuts or 1, copies or 1
        groups = groups or ranks // copies
        if groups * cuts * copies != ranks:
            raise ProblemError(f"{text} is for {groups * cuts * copies} ranks, not for {ranks}")
        beside = f"@{copies}:interleaved" if copies > 1 else ""
        return self._edges_by_expert(groups, cuts, f":{groups}x{cuts}{beside}")

    def _edges_by_expert(self, groups: int, cuts: int, where: str) -> str:
        """Return edges between groups of experts and even ones of columns, with a suffix."""
        count = len(self.experts) - 1
        rows = "-".join(str(self.experts[group * count // groups]) for group in range(groups + 1))
        width = -(-self.cols // cuts)
        cols = "-".join(str(min(cut * width, self.cols)) for cut in range(cuts + 1))
        return f"edges:{rows}x{cols}{where}"


@dataclass(frozen=True)
class Outline:
    """Statements on tensors that have no layouts yet.

    >>> product = Outline(
    ...     "product",
    ...     (Shape("X", 4, 6, "float32", "input"), Shape("W", 6, 8, "float32", "input"),
    ...      Shape("Y", 4, 8, "float32", "output")),
    ...     (statement_from_dict({"kind": "multiply", "out": "Y", "a": "X", "b": "W"}),),
    ...     layouts={"data": {"W": "row@p"}},
    ... )
    >>> [str(x.layout) for x in product.laid_out("data", ranks=2).tensors]
    ['row', 'row@2', 'row']
    """

    kind: ClassVar[Literal["outline"]] = "outline"
    name: str  # what it is called
    tensors: tuple[Shape, ...]
    statements: tuple[Statement, ...]  # what is done, in order
    # Tensors of the forward part that the backward part reads; none of a forward part alone.
    kept: tuple[str, ...] = ()
    # By name, a layout for each tensor that has another than `row`; the first is the default.
    layouts: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    weights: tuple[str, ...] = ()  # tensors that are learnt, for which an optimizer may keep a state
    # Where some inputs lie before: a layout as text. Each is copied to where it is wanted before it is first
    # read, unless it lies so.
    given: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check it by laying it out on one rank, by each of its layouts."""
        for name in ("tensors", "statements", "kept", "weights"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for x in self.tensors:
            if x.dtype in COMPLEX:
                raise ProblemError(f"{x.name} is {x.dtype}, a type of one multiply, not of chains")
        for name in self.layouts:
            if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MAX_NAME:
                raise InputError(f"{shown(name)} cannot name layouts; write a name like best or tp-2")
        self._laid_out({}, 1, {})  # what is given elsewhere may need more ranks
        for texts in (*self.layouts.values(), dict.fromkeys((*self.kept, *self.weights), DEFAULT)):
            self._check_names(texts)
        self._check_names(self.given)
        roles = {x.name: x.role for x in self.tensors}
        summed = {y for x in self.statements if x.sums_replicas for y in x.reads}
        for name in self.given:
            if roles[name] != "input" or name in summed:
                able = ", ".join(x for x, role in roles.items() if role == "input" and x not in summed)
                raise ProblemError(
                    f"{name} of chain {self.name} cannot be given elsewhere; choose from its inputs {able}"
                )
            if not any(name in x.reads for x in self.statements):
                raise ProblemError(f"{name} of chain {self.name} is never read, so it cannot be given")

    @property
    def title(self) -> str:
        """The chain's name, for a title."""
        return self.name

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The tensors before they are laid out."""
        return self.tensors

    @property
    def default_layouts(self) -> Mapping[str, str]:
        """The first of its layouts; nothing if it has none, so that all is ``row``."""
        return next(iter(self.layouts.values()), {})

    def laid_out(self, layouts: str | Mapping[str, str] | None = None, ranks: int = 1) -> Chain:
        """Return the chain in a layout for each tensor.

        InputError in one line, if there are none of that name, or a text is not a layout.

        Args:
            layouts: The name of some of its layouts, or a text for each tensor, where ``@p`` is a replica
                on every rank; a tensor that is left out is ``row``. None for the first of its layouts. Or a
                scheme sized for these ranks: ``tp8-dp4``, ``sp8-dp4``, ``fsdp32``, ``hsdp8x4``,
                ``fsdp4-tp8``, ``2d8x4``; of experts ``ep4-tp2``. Only tensors are placed: the copies by
                which FSDP gathers weights are of ``umm.schedule(…, layouts="fsdp32")``.
        """
        return self._laid_out(layouts, ranks, self.given)

    def _laid_out(
        self, layouts: str | Mapping[str, str] | None, ranks: int, given: Mapping[str, str]
    ) -> Chain:
        from umm.program.statements.copies import Copy

        texts = self.layouts_of(layouts, ranks)
        self._check_names(texts)
        tensors = {x.name: x.laid_out(texts.get(x.name, DEFAULT), ranks) for x in self.tensors}
        elsewhere = self.given_elsewhere(tensors) if given else {}
        here, statements = dict[str, str](), list[Statement]()
        for statement in self.statements:
            for name in dict.fromkeys(statement.reads):
                if name in elsewhere and name not in here:
                    here[name] = f"{name}.here"
                    tensors[here[name]] = replace(tensors[name], name=here[name], role="work")
                    tensors[name] = elsewhere[name]
                    statements.append(Copy(here[name], name))
            statements.append(reading(statement, here))
        return Chain(self.name, tuple(tensors.values()), tuple(statements), ranks)

    def on(self, ranks: int) -> Chain:
        """Return the chain on so many ranks in the first of its layouts."""
        return self.laid_out(ranks=ranks)

    def reference(self, operands: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.float64]]:
        """Compute it in float64 on complete matrices, as :meth:`Chain.reference` of any layouts does."""
        return self.on(1).reference(operands)

    def given_elsewhere(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the inputs that do not lie where some laid-out tensors have them, as they lie before."""
        elsewhere = {}
        for x in self.tensors:
            if x.name in self.given and x.name in tensors:
                wanted = tensors[x.name].layout
                before = x.laid_out(self.given[x.name], wanted.ranks)
                if (before.layout, before.layout.cuts) != (wanted, wanted.cuts):
                    elsewhere[x.name] = before
        return elsewhere

    def with_given(self, given: str | Mapping[str, str]) -> "Outline":
        """Return it with inputs that lie elsewhere before.

        ProblemError if one is not an input, or its replicas hold different values; or for a part of the text
        that is not of this form.

        Args:
            given: A layout as text for each, or all in one text: ``X=row,W1=2d``.
        """
        if isinstance(given, str):
            parts = [x.strip() for x in given.split(",")]
            given = dict(_named_layout(x, "given", "X=row") for x in parts if x)
        return replace(self, given=dict(given))

    def with_layouts(self, name: str, layouts: Mapping[str, str]) -> "Outline":
        """Return it with some layouts before its own, so that they are the default."""
        others = {x: texts for x, texts in self.layouts.items() if x != name}
        return replace(self, layouts={name: layouts, **others})

    def layouts_of(self, layouts: str | Mapping[str, str] | None, ranks: int) -> Mapping[str, str]:
        """Return the texts that :meth:`laid_out` takes for these layouts.

        ProblemError if there are none of that name, or a part of the text is neither.

        Args:
            layouts: As :meth:`laid_out` takes them; or a text of a name, then others for some tensors, or of
                these alone: ``sequence,W1=2d@2``.
        """
        if layouts is None:
            return self.default_layouts
        if not isinstance(layouts, str):
            return layouts
        first, *others = (part.strip() for part in layouts.split(","))
        if "=" in first:
            texts, others = dict(self.default_layouts), [first, *others]
        elif first not in self.layouts and self.has_experts and _EXPERT_SCHEME.fullmatch(first):
            texts = self._experts_within(first, ranks)
        elif first not in self.layouts and is_scheme(first) and self.has_experts:
            raise ProblemError(
                f"{first} is not for chain {self.name}, which has experts; write ep{ranks}, "
                f"ep{ranks}+{ranks} with copies of experts, ep1-fsdp{ranks} or {', '.join(self.layouts)}"
            )
        elif first not in self.layouts and is_scheme(first):
            shapes = {x.name: (x.rows, x.cols) for x in self.tensors}
            texts = scheme_layouts(first, self.layouts, shapes, ranks, self.name)
        elif first not in self.layouts:
            works = did_you_mean(first, self.layouts) if self.layouts else "give a text for each tensor"
            works += (
                ", or a scheme such as ep8 or ep4-tp2"
                if self.has_experts
                else ", or a scheme such as fsdp8, hsdp4x2, tp4-dp2, ring or ulysses"
            )
            if first.startswith("pp") and whole_in(first[2:3]) is not None:
                works = f"pipelines of layers are not simulated; {works}"
            elif not self.has_experts and _EXPERT_SCHEME.match(first):
                works = f"{first} needs experts, as moe-layer has; {works}"
            raise ProblemError(f"chain {self.name} has no layouts {first!r}; {works}")
        else:
            texts = dict(self.layouts[first])
        for part in others:
            tensor, layout = _named_layout(part, "the layouts", "W1=col@2")
            texts[tensor] = layout
        return texts

    @property
    def has_experts(self) -> bool:
        """Whether some of its tensors have rows by expert."""
        return any(x.experts for x in self.tensors)

    def _experts_within(self, name: str, ranks: int) -> dict[str, str]:
        """Return the layouts of ``ep4-tp2``: 4 groups of experts, each over 2 ranks; ``ep8`` cuts none."""
        match = _EXPERT_SCHEME.fullmatch(name)
        groups, parts = (parse_whole(x or "1") for x in match.groups()) if match else (0, 0)
        if groups * parts != ranks:
            works = f"ep{ranks}"
            if groups < ranks and ranks % groups == 0:
                works += f", ep{groups}-tp{ranks // groups} or ep{groups}-dp{ranks // groups}"
            raise ProblemError(f"{name} is for {groups * parts} ranks, not for {ranks}; write {works}")
        texts = dict(self.default_layouts)
        return texts | {x.name: f"{BY_EXPERT}/{parts}" for x in self.tensors if x.experts}

    def _check_names(self, names: Mapping[str, str]) -> None:
        known = [x.name for x in self.tensors]
        for name in names:
            if name not in known:
                raise ProblemError(f"chain {self.name} has no tensor {name!r}; {did_you_mean(name, known)}")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, as a file carries them."""
        return {
            "name": self.name,
            "kept": list(self.kept),
            "weights": list(self.weights),
            "tensors": [
                {"name": x.name, "shape": [x.rows, x.cols], "dtype": x.dtype, "role": x.role}
                | ({"experts": list(x.experts)} if x.experts else {})
                | {key: y for key in ("whole", "head", "context", "stored") if (y := getattr(x, key))}
                for x in self.tensors
            ],
            "statements": [statement_to_dict(x) for x in self.statements],
            "layouts": {name: dict(texts) for name, texts in self.layouts.items()},
        } | ({"given": dict(self.given)} if self.given else {})

    @classmethod
    def from_dict(cls, data: Any) -> "Outline":
        """Return the outline that the plain values of :meth:`to_dict` say; strict.

        InputError in one line, if they are not one.
        """
        optional = ("kept", "weights", "layouts", "given")
        given = fields_of(data, "a chain", ("name", "tensors", "statements"), optional)
        for key in ("tensors", "statements", "kept", "weights"):
            if not isinstance(given.get(key, []), list):
                raise ProblemError(f"{key} of a chain must be a list, not {shown(given[key])}")
        for key in ("kept", "weights"):
            if not all(isinstance(x, str) for x in given.get(key, [])):
                raise ProblemError(f"{key} = {shown(given[key])} of a chain is not a list of names")
        layouts = given.get("layouts", {})
        if not isinstance(layouts, dict) or not all(_are_texts(x) for x in layouts.values()):
            raise ProblemError("layouts of a chain must be tables of a text for each tensor")
        if not _are_texts(given.get("given", {})):
            raise ProblemError("given of a chain must be a table of a text for each input")
        tensors = tuple(_shape(x) for x in given["tensors"])
        statements = tuple(statement_from_dict(x, i) for i, x in enumerate(given["statements"], 1))
        kept, weights = (tuple(given.get(key, [])) for key in ("kept", "weights"))
        return cls(given["name"], tensors, statements, kept, layouts, weights, given.get("given", {}))

    @property
    def in_words(self) -> str:
        """The chain in a line; a long one by the number of statements of each kind."""
        x = self.tensors[0]
        return in_short(self.name, x.name, (x.rows, x.cols), self.statements) if self.is_long else str(self)

    @property
    def is_long(self) -> bool:
        """Whether it has more statements than one reads in a line."""
        return len(self.statements) > LONG

    def __str__(self) -> str:
        return f"{self.name}: {'; '.join(map(str, self.statements))}"


def _written_out(text: str, ranks: int) -> str:
    """Return the text of a layout on so many ranks; ProblemError if they are not d layers of q×q."""
    if text not in _LAYERED:
        return _EVERY_RANK.sub(f"@{ranks}", text)
    able = [(d, q) for q in range(1, isqrt(ranks) + 1) for d in range(1, q + 1) if d * q * q == ranks]
    if not able:
        raise ProblemError(
            f"{ranks} ranks are not d layers of q×q with d ≤ q, as {text} needs; choose 8 or 64"
        )
    return _LAYERED[text](*max(able))


def _named_layout(part: str, texts: str, like: str) -> tuple[str, str]:
    """Return the tensor and the layout of a text such as ``W1=col@2``."""
    tensor, equals, layout = (x.strip() for x in part.partition("="))
    if not (tensor and equals and layout):
        raise ProblemError(f"{shown(part)} of {texts} is not TENSOR=LAYOUT; write it like {like}")
    return tensor, layout


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(x, str) for x in value.values())


def _shape(data: Any) -> Shape:
    more = ("role", "experts", "whole", "head", "context", "stored")
    given = fields_of(data, "a tensor", ("name", "shape", "dtype"), more)
    shape = given["shape"]
    if not isinstance(shape, list) or len(shape) != 2:
        raise ProblemError(f"shape {shown(shape)} of tensor {shown(given['name'])} is not [rows, columns]")
    rows, cols = (whole_number(size, f"a size of tensor {shown(given['name'])}", 1) for size in shape)
    for key in ("name", "dtype", "role", "stored"):
        if not isinstance(given.get(key, ""), str):
            raise ProblemError(f"{key} {shown(given[key])} of a tensor is not a text")
    edges = given.get("experts", [])
    if not isinstance(edges, list) or any(type(x) is not int for x in edges):
        raise ProblemError(f"experts {shown(edges)} of a tensor is not a list of rows")
    if edges and (edges != sorted(edges) or edges[0] != 0 or edges[-1] != rows):
        raise ProblemError(
            f"experts {shown(edges)} of tensor {shown(given['name'])} do not go from 0 to {rows}"
        )
    context = whole_number(given.get("context", 0), f"context of tensor {shown(given['name'])}", 0)
    if context and rows % context:
        raise ProblemError(f"{rows} rows of tensor {shown(given['name'])} are no sequences of {context}")
    head = whole_number(given.get("head", 0), f"head of tensor {shown(given['name'])}", 0)
    texts = {key: given[key] for key in ("name", "dtype", "role", "stored") if key in given}
    full = given.get("whole") is True
    return Shape(rows=rows, cols=cols, experts=tuple(edges), whole=full, head=head, context=context, **texts)
