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
from umm.machines import machine_names
from umm.machines.machine import TF32
from umm.plans.multiply.options import Options, known
from umm.program.models import PUBLIC, find_model
from umm.program.models.layers import Attention
from umm.program.models.priced import kinds_priced
from umm.program.presets import PRESETS
from umm.program.problem import MATRICES
from umm.space.space import STATIONARY

MOST_RANKS = 1024
TOML = ".toml"
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
Sizes = Mapping[str, Mapping[str, int]]


CHOICE, TEXT, SWITCH = "choice", "text", "switch"
"""Controls by which a part is chosen; one without has a slider, a list of its tab, or a button."""
LOOK, SEARCH = "look", "search"
"""Kinds of parts that ask no other question: how one looks at the point, which points stand beside it."""


def part(usual: Any, read: Reader, control: str = "", *, kind: str = "", **about: str) -> Any:
    """Return a part of the state, as an address and the page have it.

    Args:
        usual: Its value where an address does not say it.
        kind: ``LOOK`` or ``SEARCH`` unless it is part of the question.
        about: Of its control the ``label`` if that is not its name, its ``unit``, the ``help`` beside the
            pointer, and the ``hint`` and the value (``nothing``) of an empty text.
    """
    return field(default=usual, metadata={"read": read, "control": control, "kind": kind, **about})


def _chain(name: str, text: str) -> str:
    """Read the name of a preset or of a file; nothing for one multiply."""
    if text.endswith(".toml"):
        return str(plain(40)(name, text))
    if text and text not in PRESETS:
        raise InputError(f"chain {text[:40]!r} is unknown; choose from {', '.join(PRESETS)}, or a .toml file")
    return text


def _dtype(name: str, text: str) -> Any:
    return one_of(DTYPES)(name, canonical(text))


def _algorithm(name: str, text: str) -> Any:
    return one_of(names())(name, text)  # those that are installed by now


IN_48K, IN_8K = "48K is 49152.", "8K is 8192."


@dataclass(frozen=True)
class State:
    """All that is chosen on the page."""

    machine: str = part(
        "h100-8", plain(), CHOICE, label="Machine",
        help="A shipped machine, or the name of a file dropped below.",
    )  # fmt: skip
    chain: str = part("", _chain, CHOICE)  # a preset or a file by name; nothing for one multiply
    m: int = part(8192, size, TEXT, unit="rows of A and C", help=IN_48K)
    n: int = part(49152, size, TEXT, unit="columns of B and C", help=IN_48K)
    k: int = part(12288, size, TEXT, unit="columns of A, rows of B", help=IN_48K)
    tokens: int = part(8192, size, TEXT, unit="rows of the activations", help=IN_8K)
    hidden: int = part(4096, size, TEXT, unit="columns of X and Y", help=IN_8K)
    ffn: int = part(16384, size, TEXT, unit="columns inside the MLP", help=IN_8K)
    heads: int = part(32, size, TEXT, help="Attention heads.")
    kv_heads: int = part(
        0, whole(empty=0), TEXT, label="KV heads", unit="empty: as many as heads", nothing="0",
        help="Heads of keys and values.",
    )  # fmt: skip
    sequences: int = part(
        1, size, TEXT, unit="equal parts of the tokens", help="Attention stays within a sequence.",
    )  # fmt: skip
    decode: bool = part(False, switch, CHOICE)  # whether one token of each sequence is computed, not all
    context: int = part(4096, size, TEXT, unit="tokens before the one decoded", help=IN_8K)
    batch: int = part(
        8, size, TEXT, unit="sequences, one token of each", help="How many are decoded together.",
    )  # fmt: skip
    vocab: int = part(
        32768, size, TEXT, unit="rows of the embedding", help="The vocabulary of an embedding or a head.",
    )  # fmt: skip
    experts: int = part(8, size, TEXT, help="Experts of a mixture.")
    top_k: int = part(
        2, size, TEXT, label="top k", unit="experts of each token", help="Experts that each token goes to.",
    )  # fmt: skip
    shared: int = part(
        0, whole(empty=0), TEXT, unit="empty: none", nothing="0", help="Experts to which every token goes.",
    )  # fmt: skip
    dtype: str = part(
        "float32", _dtype, CHOICE, label="Type", unit="of A and B, or of all tensors",
        help="C of half-precision inputs is float32.",
    )  # fmt: skip
    backward: bool = part(False, switch, CHOICE)  # whether a chain's gradients follow
    dropout: float = part(0.0, number, TEXT, unit="of the MLP's activations", help="0.1 drops a tenth.")
    nodes: int = part(
        0, whole(most=MOST_RANKS, empty=0), TEXT, label="Nodes", unit="empty: the machine's own", nothing="0",
        help="For machines whose file has network cards.",
    )  # fmt: skip
    ranks: int = part(
        0, whole(most=MOST_RANKS, empty=0), TEXT, label="Ranks", unit="empty: one rank per device",
        nothing="0", help="Processes that share the work.",
    )  # fmt: skip
    # Layouts as text; one that does not exist is refused, with the reason, when it is looked at.
    a: str = part("row", plain(), TEXT)
    b: str = part("row", plain(), TEXT)
    c: str = part("row", plain(), TEXT)
    layouts: str = part(
        "", plain(LONGEST // 2), TEXT, unit="empty: a row of the search",
        help="megatron, sequence, data, or a layout for some tensors: X=row,W1=col@2.",
    )  # fmt: skip
    row: int = part(1, whole(least=1))  # which of the best that is, from 1
    given: str = part(
        "", plain(), TEXT, unit="a=row,c=row, or X=row", hint="as laid out",
        help="Where inputs start and C must end; moving them takes time.",
    )  # fmt: skip
    # The matrix that stays in place, or `auto`; of a chain `best` too.
    stationary: str = part("auto", one_of(STATIONARY), CHOICE)
    algorithm: str = part(
        UNIVERSAL, _algorithm, CHOICE,
        help="The universal one, or another that moves operands to its own layouts.",
    )  # fmt: skip
    options: Options = field(default_factory=Options)  # the other choices of the universal algorithm
    memory: str = part(
        "", plain(24), TEXT, kind=SEARCH, unit="of a rank: 16GiB, or 2x", hint="90 % of its device",
        help="Budget of a rank: 16GiB, or 2x the unreplicated share. Points over it are greyed.",
    )  # fmt: skip
    # Which points stand beside a multiply: those of a `search`, or those of the `paper`.
    space: str = part("search", one_of(SPACES), CHOICE, kind=SEARCH)
    choices: str = part(
        "", plain(), TEXT, kind=SEARCH, unit="of the search: all, or a list", hint="row,col,2d,row@p",
        help="Layouts that the search chooses from: row,col,2d, or all.",
    )  # fmt: skip
    optimizer: float = part(
        0.0, number, TEXT, kind=SEARCH, unit="bytes per weight element",
        help="State stored beside the weights: 12 for Adam in float32.",
    )  # fmt: skip
    layers: int = part(
        0, whole(empty=0), TEXT, kind=SEARCH, unit="empty: one", nothing="0",
        help="Layers whose memory counts; the search times one in the middle.",
    )  # fmt: skip
    tab: str = part("leaderboard", one_of(TABS), CHOICE, kind=LOOK)  # the tab in sight
    # The operand whose replication factor the heat map leaves to its slider, and that factor, 0 for the best.
    across: str = part("C", one_of(MATRICES), CHOICE, kind=LOOK)
    fixed: int = part(0, whole(), kind=LOOK)
    grow: bool = part(False, switch, SWITCH, kind=LOOK)  # whether the heat map is followed over larger m
    # The tensors of a chain whose factors the heat map has down and to the right; nothing for the first.
    down: str = part("", plain(64), kind=LOOK)
    right: str = part("", plain(64), kind=LOOK)
    rank: int = part(-1, whole(least=-1), CHOICE, kind=LOOK)  # the schedule is zoomed to; −1 for all
    # Whose tensors of a chain the tiles show, from 1; 0 for the statement of the action.
    statement: int = part(0, whole(), CHOICE, kind=LOOK)
    op: int = part(-1, whole(least=-1), TEXT, kind=LOOK, nothing="-1")  # whose slices the tiles light, or −1
    what: str = part("", plain(), kind=LOOK)  # the number that is asked about; nothing for the first
    # What is compared in the scaling table, and how many of them; nothing for nodes if there may be several.
    over: str = part("", one_of(OVER), kind=LOOK)
    counts: str = part("", plain(64), TEXT, kind=LOOK)
    price: float = part(0.0, number, TEXT, kind=LOOK, nothing="0")  # dollars for a device for an hour, or 0
    # Model and sizes of a training step, `model=llama-3-8b batch=64 length=8K`; nothing for these.
    step: str = part("", plain(240), TEXT, kind=LOOK)
    pin: str = part("", plain(LONGEST // 2), kind=LOOK)  # the point to compare with, as a query, or nothing
    data: bool = part(False, switch, SWITCH, kind=LOOK)  # whether the numbers stand under every figure

    @property
    def query(self) -> str:
        """The state as the query of a URL, without default values: ``?m=1024&b=col%402``."""
        return query_of(_values(self), usual_values())

    @property
    def link(self) -> str:
        """The query that leads to the state: never empty, for that is where the page was started."""
        return self.query or f"?machine={self.machine}"

    @property
    def machine_text(self) -> str:
        """The machine as a command takes it: by name, or the file of one that was dropped in."""
        name, tf32, _ = self.machine.partition(TF32)
        return self.machine if name in machine_names() or name.endswith(TOML) else f"{name}{TOML}{tf32}"

    @property
    def machine_named(self) -> str:
        """The machine's name with its number of nodes, as `umm.machine` takes it."""
        return f"{self.machine_text} nodes={self.nodes}" if self.nodes else self.machine_text

    @property
    def point(self) -> "State":
        """The same question asked in the same way, without choices of the view."""
        usual = State()
        return replace(self, **{name: getattr(usual, name) for name in ("row", *of_kind(SEARCH), *LOOKS)})

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
            stationary: The matrix that stays in place; a chain keeps what it is asked for.
        """
        if self.chain:
            return replace(self, layouts=",".join(f"{name}={text}" for name, text in layouts.items()), op=-1)
        texts: dict[str, Any] = {name.lower(): text for name, text in layouts.items()}
        return replace(self, **texts, stationary=stationary, options=options, algorithm=UNIVERSAL, op=-1)


PARTS: Mapping[str, Mapping[str, Any]] = {x.name: x.metadata for x in fields(State) if x.metadata}
"""Declarations of parts by name, beside the options of the universal algorithm."""


def of_kind(kind: str) -> tuple[str, ...]:
    """Return the parts with a control of a kind, or of a kind themselves."""
    return tuple(x for x, about in PARTS.items() if kind in (about["control"], about["kind"]))


LOOKS = of_kind(LOOK)


def name_of(file: str) -> str:
    """Return the name of a machine's file on the page: with its ending where a machine is called the same.

    >>> name_of("mine.toml"), name_of("h100-8.toml")
    ('mine', 'h100-8.toml')
    """
    stem = file.removesuffix(TOML)
    return f"{stem}{TOML}" if stem in machine_names() else stem


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
    if name in PARTS:
        return replace(state, **{name: PARTS[name]["read"](name, text)})
    option = next((x for x in known() if x.name == name), None)
    if option is None:
        raise unknown(name, [*PARTS, *(x.name for x in known())])
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
    texts = {x: as_text(getattr(state, x)) for x in PARTS}
    return texts | {x.name: x.typed(getattr(state.options, x.name)) for x in known()}
