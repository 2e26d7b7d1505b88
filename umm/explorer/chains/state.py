"""What the page of a chain shows, as one value: read from the URL, written to it, told as a command."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from shlex import quote
from typing import Any

from umm.dtypes import canonical
from umm.errors import InputError
from umm.explorer import address
from umm.explorer.address import Reader, number, one_of, plain, query_of, size, switch, unknown, whole
from umm.program.models import MODELS
from umm.program.presets import PRESETS
from umm.space.space import KEPT as STATIONARY

MOST_RANKS = 256
SIZES = ("tokens", "hidden", "ffn", "heads", "kv_heads", "sequences")


@dataclass(frozen=True)
class ChainState:
    """All that is chosen on the page of a chain.

    Attributes:
        chain: A preset by name, or the name of a file that holds a chain; such a file says itself what else
            is of a preset, down to dropout.
        tokens: Rows of its activations.
        hidden: Columns of its input and output.
        ffn: Columns between the multiplies of an MLP.
        heads: Attention heads.
        kv_heads: Heads of keys and values; 0 for as many as heads.
        sequences: Equal parts of the tokens that attend to themselves alone.
        dtype: Type of all tensors.
        backward: Whether gradients follow.
        dropout: Share of an MLP's activations that are dropped.
        given: Where inputs lie before, ``X=row,W1=2d``; nothing for as they are laid out, or as a file says.
        machine: A shipped machine.
        ranks: Processes; 0 for as many as the machine has devices.
        memory: Budget of a rank, as typed: ``16GiB``, ``2x``, or nothing.
        choices: Layouts to choose from, ``row,col,2d``; nothing for those of a search.
        stationary: The matrix that every multiply keeps in place, as for a search.
        optimizer: Bytes of optimizer state for each element of a weight.
        row: Which of the best is looked at, from 1.
        rank: The rank the schedule is zoomed to, or −1 for all.
        data: Whether the numbers stand under every figure.
    """

    chain: str = "mlp"
    tokens: int = 8192
    hidden: int = 4096
    ffn: int = 16384
    heads: int = 32
    kv_heads: int = 0
    sequences: int = 1
    dtype: str = "float32"
    backward: bool = False
    dropout: float = 0.0
    given: str = ""
    machine: str = "pvc-12"
    ranks: int = 0
    memory: str = ""
    choices: str = ""
    stationary: str = "auto"
    optimizer: float = 0.0
    row: int = 1
    rank: int = -1
    data: bool = False

    @property
    def query(self) -> str:
        """The state as the query of a URL, without what is as usual: ``?hidden=8192&backward=1``."""
        return query_of(_values(self), usual_values())

    @property
    def asked(self) -> "ChainState":
        """The same question, without what only says how to look at its answer."""
        return replace(self, row=1, rank=-1, data=False)

    @property
    def of_file(self) -> bool:
        """Whether the chain is one of a file."""
        return self.chain not in PRESETS

    @property
    def own(self) -> tuple[str, ...]:
        """What is asked of the chain beside its name: the sizes that a preset has, its type and so on."""
        if self.of_file:
            return ()
        sizes = ("tokens", *PRESETS[self.chain].sizes)
        return (*sizes, "dtype", "backward", *(["dropout"] if "ffn" in sizes else []))

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that the chain has."""
        return {x: getattr(self, x) for x in self.own if x in SIZES and (x != "kv_heads" or self.kv_heads)}

    @property
    def named(self) -> dict[str, Any]:
        """What is asked of a preset beside its sizes, as :func:`umm.program.presets.chain` takes it."""
        return {x: getattr(self, x) for x in self.own if x not in SIZES and (x != "dropout" or self.dropout)}

    @property
    def texts(self) -> tuple[str, ...] | None:
        """The layouts to choose from; None for those of a search."""
        return tuple(x.strip() for x in self.choices.split(",")) if self.choices else None


def read(query: str) -> tuple[ChainState, list[str]]:
    """Return the state that a URL's query describes, and a line for each part of it that means nothing.

    >>> state, mistakes = read("?chain=gated-mlp&tokens=4K&m=7")
    >>> state.chain, state.tokens
    ('gated-mlp', 4096)
    >>> mistakes
    ["'m' is no part of this page's address; choose from chain, tokens, hidden, ffn, heads, ..."]
    """
    return address.read(query, ChainState(), changed)


def changed(state: ChainState, name: str, text: str) -> ChainState:
    """Return the state with one part as its text says; ``model`` stands for the sizes of a public model.

    Raises:
        InputError: for a part that there is none of, or a text that means nothing for it.
    """
    if name == "model":
        sizes: Mapping[str, Any] = MODELS[one_of("model", MODELS)(text)].sizes(SIZES)
        return replace(state, **sizes)
    if name not in READERS:
        raise unknown(name, READERS)
    return replace(state, **{name: READERS[name](text)})


def usual_values() -> dict[str, str]:
    """Return every part of a URL as it is when nothing is said."""
    return _values(ChainState())


def _values(state: ChainState) -> dict[str, str]:
    found = {x.name: getattr(state, x.name) for x in fields(state)}
    return {name: as_text(x) for name, x in found.items()}


def as_text(value: bool | int | float | str) -> str:
    """Return a value as a URL and a control have it: ``12`` for 12.0, ``1`` for yes."""
    return str(int(value)) if isinstance(value, bool) else str(value).removesuffix(".0")


def _chain(text: str) -> str:
    """Return the name of a preset or of a file."""
    if text.endswith(".toml"):
        return str(plain("chain", 40)(text))
    if text not in PRESETS:
        raise InputError(f"chain {text[:40]!r} is unknown; choose from {', '.join(PRESETS)}, or a .toml file")
    return text


READERS: Mapping[str, Reader] = {
    "chain": _chain,
    **{name: size(name) for name in ("tokens", "hidden", "ffn", "heads", "sequences")},
    "kv_heads": whole("kv_heads"),
    "dtype": canonical,
    "backward": switch("backward"),
    "dropout": number("dropout"),
    "given": plain("given"),
    "machine": plain("machine"),
    "ranks": whole("ranks", most=MOST_RANKS),
    "memory": plain("memory", 24),
    "choices": plain("choices"),
    "stationary": one_of("stationary", STATIONARY),
    "optimizer": number("optimizer"),
    "row": whole("row", least=1),
    "rank": whole("rank", least=-1),
    "data": switch("data"),
}


def as_command(state: ChainState, layouts: Mapping[str, str] | None = None) -> str:
    """Return the command that searches as the page does, or the one that simulates layouts that it found."""
    flags: dict[str, Any] = {"machine": state.machine, "chain": state.chain, **state.sizes, **state.named}
    flags |= {x: getattr(state, x) for x in ("given", "ranks") if getattr(state, x)}
    if layouts is not None:
        if state.stationary == "best":
            return "Each multiply keeps a matrix of its own in place, which the Python above can say alone."
        flags["layouts"] = ",".join(f"{name}={layout}" for name, layout in layouts.items())
        flags |= {"stationary": state.stationary} if state.stationary != "auto" else {}
    else:
        looked = {x: getattr(state, x) for x in ("memory", "choices", "stationary", "optimizer")}
        flags |= {x: value for x, value in looked.items() if value != getattr(ChainState, x)}
    parts = [["--" + name.replace("_", "-"), value] for name, value in flags.items() if value is not False]
    words = [str(x) for part in parts for x in part if x is not True]
    return " ".join(["umm", "simulate" if layouts is not None else "search", *map(quote, words)])


def as_python(
    state: ChainState,
    ranks: int,
    layouts: Mapping[str, str] | None = None,
    stationary: Mapping[str, str] | None = None,
) -> str:
    """Return the Python that does the one, and with layouts the other too.

    Args:
        state: What is chosen.
        ranks: Over so many.
        layouts: Of each tensor, as they were found.
        stationary: The matrix that stays in place of each product, likewise.
    """
    said = {**state.sizes, **state.named}
    named = ", ".join(f"{name}={value!r}" for name, value in said.items())
    made = (
        f"umm.program.load_chain({state.chain!r})"
        if state.of_file
        else f"umm.chain({state.chain!r}, {named})"
    )
    given = f".with_given({state.given!r})" if state.given else ""
    more = [f"layouts={state.texts!r}"] if state.texts else []
    more += [f"stationary={state.stationary!r}"] if state.stationary != "auto" else []
    more += [f"state={state.optimizer!r}"] if state.optimizer else []
    memory = f", memory={state.memory!r}" if state.memory else ""
    lines = [
        "import umm",
        "",
        f"chain = {made}{given}",
        f"space = umm.Space({', '.join(['chain=chain', f'ranks={ranks}', *more])})",
        f"print(umm.search(space, {state.machine!r}{memory}))",
    ]
    if layouts is not None:
        stays = f", stationary={dict(stationary)!r}" if stationary and state.stationary != "auto" else ""
        lines += [
            f"layouts = {dict(layouts)!r}",
            f"schedule = umm.schedule(chain.laid_out(layouts, {ranks}), {state.machine!r}{stays})",
            'print(umm.run(schedule, executor="sim").verdict)',
        ]
    return "\n".join(lines) + "\n"
