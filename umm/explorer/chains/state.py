"""What the page of a chain shows, as one value: read from the URL, written to it, told as a command."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from umm.chains import Outline
from umm.chains.presets import MODELS, PRESETS, chain
from umm.dtypes import DTYPES
from umm.explorer import address
from umm.explorer.address import Reader, one_of, plain, query_of, size, switch, unknown, whole

MOST_RANKS = 256
SIZES = ("tokens", "hidden", "ffn", "heads", "kv_heads", "sequences")


@dataclass(frozen=True)
class ChainState:
    """All that is chosen on the page of a chain.

    Attributes:
        chain: A preset by name.
        tokens: Rows of its activations.
        hidden: Columns of its input and output.
        ffn: Columns between the multiplies of an MLP.
        heads: Attention heads.
        kv_heads: Heads of keys and values; 0 for as many as heads.
        sequences: Equal parts of the tokens that attend to themselves alone.
        dtype: Type of all tensors.
        backward: Whether gradients follow.
        machine: A shipped machine.
        ranks: Processes; 0 for as many as the machine has devices.
        memory: Budget of a rank, as typed: ``16GiB``, ``2x``, or nothing.
        choices: Layouts to choose from, ``row,col,2d``; nothing for those of a search.
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
    machine: str = "pvc-12"
    ranks: int = 0
    memory: str = ""
    choices: str = ""
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
    def sizes(self) -> dict[str, int]:
        """The sizes that the chain has."""
        own = ("tokens", *PRESETS[self.chain].sizes)
        return {x: getattr(self, x) for x in own if x != "kv_heads" or self.kv_heads}

    @property
    def outline(self) -> Outline:
        """The chain before it is laid out.

        Raises:
            InputError: if its sizes do not fit together.
        """
        sizes: dict[str, Any] = self.sizes
        return chain(self.chain, dtype=self.dtype, backward=self.backward, **sizes)

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
        sizes: Mapping[str, Any] = MODELS[one_of("model", MODELS)(text)]
        return replace(state, **sizes)
    if name not in READERS:
        raise unknown(name, READERS)
    return replace(state, **{name: READERS[name](text)})


def usual_values() -> dict[str, str]:
    """Return every part of a URL as it is when nothing is said."""
    return _values(ChainState())


def _values(state: ChainState) -> dict[str, str]:
    found = {x.name: getattr(state, x.name) for x in fields(state)}
    return {name: str(int(x)) if isinstance(x, bool) else str(x) for name, x in found.items()}


READERS: Mapping[str, Reader] = {
    "chain": one_of("chain", PRESETS),
    **{name: size(name) for name in ("tokens", "hidden", "ffn", "heads", "sequences")},
    "kv_heads": whole("kv_heads"),
    "dtype": one_of("dtype", DTYPES),
    "backward": switch("backward"),
    "machine": plain("machine"),
    "ranks": whole("ranks", most=MOST_RANKS),
    "memory": plain("memory", 24),
    "choices": plain("choices"),
    "row": whole("row", least=1),
    "rank": whole("rank", least=-1),
    "data": switch("data"),
}


def as_command(state: ChainState, layouts: Mapping[str, str] | None = None) -> str:
    """Return the command that searches as the page does, or the one that simulates layouts that it found."""
    parts = [f"--machine {state.machine}", f"--chain {state.chain}"]
    parts += [f"--{name.replace('_', '-')} {value}" for name, value in state.sizes.items()]
    parts += [f"--dtype {state.dtype}", *(["--backward"] if state.backward else [])]
    parts += [f"--ranks {state.ranks}"] if state.ranks else []
    if layouts is not None:
        lies = ",".join(f"{name}={layout}" for name, layout in layouts.items())
        return " ".join(["umm simulate", *parts, f"--layouts {lies}"])
    parts += [f"--memory {state.memory}"] if state.memory else []
    parts += [f"--choices {state.choices}"] if state.choices else []
    return " ".join(["umm search", *parts])


def as_python(state: ChainState, ranks: int, layouts: Mapping[str, str] | None = None) -> str:
    """Return the Python that does the one, and with layouts the other too."""
    sizes = ", ".join(f"{name}={value}" for name, value in state.sizes.items())
    memory = f", memory={state.memory!r}" if state.memory else ""
    choices = f", {state.texts!r}" if state.texts else ""
    lines = [
        "import umm",
        "from umm.space import ChainSpace",
        "",
        f"chain = umm.chain({state.chain!r}, {sizes}, dtype={state.dtype!r}, backward={state.backward})",
        f"space = ChainSpace(chain, {ranks}{choices})",
        f"print(umm.search(space, {state.machine!r}{memory}))",
    ]
    if layouts is not None:
        lines += [
            f"layouts = {dict(layouts)!r}",
            f"schedule = umm.schedule(chain.laid_out(layouts, {ranks}), {state.machine!r})",
            'print(umm.run(schedule, executor="sim").verdict)',
        ]
    return "\n".join(lines) + "\n"
