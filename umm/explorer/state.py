"""The state of the page, as one value: a program, a machine, layouts, and the view of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from umm.algorithms.scheduling import UNIVERSAL, names
from umm.dtypes import DTYPES, canonical
from umm.errors import InputError
from umm.explorer import address
from umm.explorer.address import (
    LONGEST,
    Reader,
    number,
    one_of,
    plain,
    query_of,
    size,
    switch,
    unknown,
    whole,
)
from umm.plans.multiply.options import Options, known
from umm.program.models import PUBLIC, find_model
from umm.program.models.layers import Attention
from umm.program.models.priced import kinds_priced
from umm.program.presets import PRESETS
from umm.program.problem import MATRICES
from umm.space.space import STATIONARY

MOST_RANKS = 1024
OPERANDS = ("a", "b", "c")
SIZES = (
    "tokens", "hidden", "ffn", "heads", "kv_heads", "sequences", "context", "batch", "vocab", "experts",
    "top_k", "shared",
)  # fmt: skip
OPTIONAL = ("kv_heads", "shared")  # sizes that 0 leaves out
OVER = ("nodes", "ranks")
SPACES = ("search", "paper")
TABS = (
    "leaderboard", "replication", "coordinates", "schedule", "links", "tiles", "roofline", "whatif",
    "scaling", "step", "measured",
)  # fmt: skip
SEARCHED = ("memory", "space", "choices", "optimizer", "layers")
"""What only says which points stand beside the one that is shown."""
LOOKS = (
    "tab", "across", "fixed", "grow", "down", "right", "rank", "statement", "op", "what", "over", "counts",
    "price", "step", "pin", "data",
)  # fmt: skip
"""What only says how one looks at it."""
Sizes = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class State:
    """All that is chosen on the page."""

    machine: str = "h100-8"  # a shipped machine, or the name of a file that was dropped in
    chain: str = ""  # a chain by the name of its preset or of a file; nothing for one multiply
    m: int = 8192  # rows of A and C
    n: int = 49152  # columns of B and C
    k: int = 12288  # columns of A, rows of B
    tokens: int = 8192  # rows of a chain's activations
    hidden: int = 4096  # columns of its input and output
    ffn: int = 16384  # columns between the multiplies of an MLP
    heads: int = 32  # attention heads
    kv_heads: int = 0  # heads of keys and values; 0 for as many as heads
    sequences: int = 1  # equal parts of the tokens that attend to themselves alone
    decode: bool = False  # whether a chain computes one token of each sequence, in place of all tokens
    context: int = 4096  # tokens of each sequence before the one that is decoded
    batch: int = 8  # sequences of which one token each is decoded
    vocab: int = 32768  # vocabulary of an embedding or a head
    experts: int = 8  # experts of a mixture
    top_k: int = 2  # experts that each token goes to
    shared: int = 0  # experts to which every token goes
    dtype: str = "float32"  # type of A and B, or of all tensors of a chain
    backward: bool = False  # whether a chain's gradients follow
    dropout: float = 0.0  # share of an MLP's activations that are dropped
    nodes: int = 0  # of the machine; 0 for as many as its file has
    ranks: int = 0  # processes; 0 for as many as the machine has devices
    a: str = "row"  # layout of A as text; it may be one that does not exist, and the page says why
    b: str = "row"  # layout of B
    c: str = "row"  # layout of C
    # Of a chain's tensors, `X=row,W1=col`, or by name; nothing for those of a row of the search.
    layouts: str = ""
    row: int = 1  # which of the best that is, from 1
    given: str = ""  # where inputs are now, and where C shall end, `a=row,c=row`; nothing for as laid out
    stationary: str = "auto"  # the matrix that stays in place, or `auto`; of a chain `best` too
    algorithm: str = UNIVERSAL  # the universal one, or another by name
    options: Options = field(default_factory=Options)  # the other choices of the universal algorithm
    memory: str = ""  # budget of a rank, as typed: `16GiB`, `2x`, or nothing
    # Which points stand beside a multiply: those of a `search`, or those of the `paper`.
    space: str = "search"
    choices: str = ""  # layouts that a chain's search chooses from, `row,col,2d`; nothing for its own
    optimizer: float = 0.0  # bytes of optimizer state for each element of a weight
    layers: int = 0  # of a chain, whose memory counts; 0 for one
    tab: str = "leaderboard"  # the tab in sight
    across: str = "C"  # the operand whose replication factor the heat map leaves to its slider
    fixed: int = 0  # that factor, or 0 for the best
    grow: bool = False  # whether the heat map is followed over larger m
    down: str = ""  # the tensor of a chain whose factors the heat map has down, or nothing for the first
    right: str = ""  # the one whose factors it has to the right
    rank: int = -1  # the rank the schedule is zoomed to, or −1 for all
    statement: int = 0  # whose tensors of a chain the tiles show, from 1; 0 for the one of the action
    op: int = -1  # the action whose slices the tiles light, or −1
    what: str = ""  # the number of the machine that is asked about, or nothing for the first
    # What is compared in the scaling table, `nodes` or `ranks`; nothing for nodes if there may be several.
    over: str = ""
    counts: str = ""  # how many of them, `1,2,4,8`; nothing for these, of ranks those of one node
    price: float = 0.0  # dollars for a device for an hour, or 0
    # Model and sizes of a training step, `model=llama-3-8b batch=64 length=8K`; nothing for these.
    step: str = ""
    pin: str = ""  # the point to compare with, as a query, or nothing
    data: bool = False  # whether the numbers stand under every figure

    @property
    def query(self) -> str:
        """The state as the query of a URL, without default values: ``?m=1024&b=col%402``."""
        return query_of(_values(self), usual_values())

    @property
    def link(self) -> str:
        """The query that leads to the state: never empty, for that is where the page was started."""
        return self.query or f"?machine={self.machine}"

    @property
    def machine_named(self) -> str:
        """The machine's name with its number of nodes, as `umm.machine` takes it."""
        return f"{self.machine} nodes={self.nodes}" if self.nodes else self.machine

    @property
    def point(self) -> "State":
        """The same question asked in the same way, without choices of the view."""
        usual = State()
        return replace(self, **{name: getattr(usual, name) for name in ("row", *SEARCHED, *LOOKS)})

    @property
    def of_file(self) -> bool:
        """Whether the chain is one of a file, which itself has the values asked of a preset."""
        return bool(self.chain) and self.chain not in PRESETS

    @property
    def waits(self) -> bool:
        """Whether the layouts are those of a row that a search has to find first."""
        return bool(self.chain) and not self.layouts

    @property
    def own(self) -> tuple[str, ...]:
        """The fields of this program beside its name, and of no other."""
        if not self.chain:
            return ("m", "n", "k", "dtype")
        if self.of_file:
            return ()
        preset = PRESETS[self.chain]
        sizes = [x for x in preset.sizes if x in SIZES]
        dropped = ["dropout"] if "ffn" in sizes and "experts" not in sizes else []
        if preset.stores_scores:
            return ("tokens", *sizes, "dtype", "backward", *dropped)
        if self.decode:
            sizes = [*(["context"] if "heads" in sizes else []), *(x for x in sizes if x != "sequences")]
            return ("batch", *sizes, "dtype", "decode", *dropped)
        return ("tokens", *sizes, "dtype", "decode", "backward", *dropped)

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes that the program has."""
        mine = (x for x in self.own if x in (*SIZES, *"mnk"))
        return {x: getattr(self, x) for x in mine if x not in OPTIONAL or getattr(self, x)}

    @property
    def named(self) -> dict[str, Any]:
        """Arguments of a chain's preset beside sizes, see :func:`umm.program.presets.chain`."""
        mine = (x for x in self.own if x not in SIZES)
        return {x: getattr(self, x) for x in mine if x not in ("dropout", "decode") or getattr(self, x)}

    @property
    def texts(self) -> tuple[str, ...] | None:
        """The layouts that a chain's search chooses from; None for its own."""
        return tuple(x.strip() for x in self.choices.split(",")) if self.choices else None

    def at(self, layouts: Mapping[str, str], stationary: str, options: Options) -> "State":
        """Return the state at another point of the universal algorithm.

        Args:
            layouts: Of each tensor.
            stationary: The matrix that stays in place; a chain keeps what it is asked for.
        """
        if self.chain:
            return replace(self, layouts=",".join(f"{name}={text}" for name, text in layouts.items()), op=-1)
        texts: dict[str, Any] = {name.lower(): text for name, text in layouts.items()}
        return replace(self, **texts, stationary=stationary, options=options, algorithm=UNIVERSAL, op=-1)


def read(query: str) -> tuple[State, list[str]]:
    """Return the state that a URL's query describes, and a line for each part of it that means nothing.

    >>> state, mistakes = read("?m=1K&a=col@2&policy=fast&colour=red")
    >>> state.m, state.a
    (1024, 'col@2')
    >>> for line in mistakes: print(line)
    policy 'fast' is unknown; choose from direct, cost-greedy, exhaustive, greedy
    unknown parameter 'colour'; choose from machine, chain, m, n, k, tokens, hidden, ffn, heads, ...
    """
    return address.read(query, State(), changed)


def changed(state: State, name: str, text: str) -> State:
    """Return the state with one part as its text says; ``model`` stands for the sizes of a public model.

    InputError for a part that is unknown, or a text that means nothing for it.
    """
    if name == "model":
        models = models_on_page()
        if text not in models:
            raise InputError(
                f"the page has no model {text[:40]!r}, but those whose layers are all alike: "
                f"{', '.join(models)}; umm search --model takes any"
            )
        sizes: Mapping[str, Any] = models[text]
        return replace(state, **sizes)
    if name in READERS:
        return replace(state, **{name: READERS[name](text)})
    option = next((x for x in known() if x.name == name), None)
    if option is None:
        raise unknown(name, [*READERS, *(x.name for x in known())])
    return replace(state, options=replace(state.options, **{name: option.read(text)}))


@cache
def models_on_page() -> dict[str, dict[str, int]]:
    """Return the sizes of the public models whose layers are all alike and have no more than these."""
    models = {}
    for name in PUBLIC:
        model = find_model(name)
        if len(model.kinds) == 1 and isinstance(model.layers[0].mixer, Attention):
            (kind,) = kinds_priced(model)
            if not kind.sizes.keys() & {"head_dim", "window"}:
                sizes = {x: size for x, size in kind.sizes.items() if x in SIZES}
                models[name] = {**sizes, "vocab": model.vocab}
    return models


def usual_values() -> dict[str, str]:
    """Return every part of a URL as it is when nothing is said."""
    return _values(State())


def as_text(value: bool | int | float | str) -> str:
    """Return a value as a URL and a control have it: ``12`` for 12.0, ``1`` for yes."""
    return str(int(value)) if isinstance(value, bool) else str(value).removesuffix(".0")


def _values(state: State) -> dict[str, str]:
    """Return every part as the text that a URL has for it."""
    texts = {x.name: as_text(getattr(state, x.name)) for x in fields(state) if x.name != "options"}
    return texts | {x.name: x.typed(getattr(state.options, x.name)) for x in known()}


def _chain(text: str) -> str:
    """Return the name of a preset or of a file; nothing for one multiply."""
    if text.endswith(".toml"):
        return str(plain("chain", 40)(text))
    if text and text not in PRESETS:
        raise InputError(f"chain {text[:40]!r} is unknown; choose from {', '.join(PRESETS)}, or a .toml file")
    return text


READERS: Mapping[str, Reader] = {
    "machine": plain("machine"),
    "chain": _chain,
    **{name: size(name) for name in (*"mnk", *(x for x in SIZES if x not in OPTIONAL))},
    **{name: whole(name, empty=0) for name in (*OPTIONAL, "layers")},
    "decode": switch("decode"),
    "dtype": lambda text: one_of("dtype", DTYPES)(canonical(text)),
    "backward": switch("backward"),
    "dropout": number("dropout"),
    "ranks": whole("ranks", most=MOST_RANKS, empty=0),
    "nodes": whole("nodes", most=MOST_RANKS, empty=0),
    **{name: plain(name) for name in OPERANDS},
    "layouts": plain("layouts", LONGEST // 2),
    "row": whole("row", least=1),
    "given": plain("given"),
    "stationary": one_of("stationary", STATIONARY),
    "algorithm": lambda text: one_of("algorithm", names())(text),
    "memory": plain("memory", 24),
    "space": one_of("space", SPACES),
    "choices": plain("choices"),
    "optimizer": number("optimizer"),
    "tab": one_of("tab", TABS),
    "across": one_of("across", MATRICES),
    "fixed": whole("fixed"),
    "grow": switch("grow"),
    "down": plain("down", 64),
    "right": plain("right", 64),
    "rank": whole("rank", least=-1),
    "statement": whole("statement"),
    "op": whole("op", least=-1),
    "what": plain("what"),
    "over": one_of("over", OVER),
    "counts": plain("counts", 64),
    "price": number("price"),
    "step": plain("step", 240),
    "pin": plain("pin", LONGEST // 2),
    "data": switch("data"),
}
