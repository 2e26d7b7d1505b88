"""What the page shows, as one value: read from the URL, written to it, told as a command or Python."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from shlex import quote
from typing import Any

from umm.algorithms.scheduling import UNIVERSAL, names
from umm.algorithms.universal.options import Options, known
from umm.dtypes import DTYPES, canonical
from umm.explorer import address
from umm.explorer.address import LONGEST, Reader, one_of, plain, query_of, size, switch, toml, unknown, whole
from umm.program.problem import MATRICES

MOST_RANKS = 1024
STATIONARY = ("auto", *MATRICES)
OPERANDS = ("a", "b", "c")
SPACES = ("search", "paper")
SWITCHES = ("grow", "data")
Sizes = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class State:
    """All that is chosen on the page.

    Attributes:
        machine: A shipped machine, or the name of a file that was dropped in.
        m: Rows of A and C.
        n: Columns of B and C.
        k: Columns of A, rows of B.
        dtype: Type of A and B.
        ranks: Processes; 0 for as many as the machine has devices.
        a: Layout of A as text; it may be one that does not exist, and the page says why.
        b: Layout of B.
        c: Layout of C.
        given: Where operands are now, and where C shall end: ``a=row,c=row``; nothing for as above.
        stationary: The matrix that stays in place, or ``auto``.
        algorithm: The universal one, or another by name.
        options: The other choices of the universal algorithm.
        memory: Budget of a rank, as typed: ``16GiB``, ``2x``, or nothing.
        space: Which points stand beside this one: those of a ``search``, or those of the ``paper``.
        tab: The tab in sight.
        across: The operand whose replication factor the heat map leaves to its slider.
        fixed: That factor, or 0 for the best.
        grow: Whether the heat map is followed over larger m.
        rank: The rank the schedule is zoomed to, or −1 for all.
        op: The action whose slices the tiles light, or −1.
        what: The number of the machine that is asked about, or nothing for the first.
        pin: The point to compare with, as a query of its own, or nothing.
        data: Whether the numbers stand under every figure.
    """

    machine: str = "pvc-12"
    m: int = 8192
    n: int = 49152
    k: int = 12288
    dtype: str = "float32"
    ranks: int = 0
    a: str = "2d"
    b: str = "2d"
    c: str = "2d"
    given: str = ""
    stationary: str = "auto"
    algorithm: str = UNIVERSAL
    options: Options = field(default_factory=Options)
    memory: str = ""
    space: str = "search"
    tab: str = "leaderboard"
    across: str = "C"
    fixed: int = 0
    grow: bool = False
    rank: int = -1
    op: int = -1
    what: str = ""
    pin: str = ""
    data: bool = False

    @property
    def query(self) -> str:
        """The state as the query of a URL, without what is as usual: ``?m=1024&b=col%402``."""
        return query_of(_values(self), usual_values())

    @property
    def point(self) -> "State":
        """The same question asked in the same way, without what only says how to look at it."""
        usual = State()
        return replace(self, **{name: getattr(usual, name) for name in LOOKS})

    def at(self, layouts: tuple[str, str, str], stationary: str, options: Options) -> "State":
        """Return the state at another point of the universal algorithm."""
        a, b, c = layouts
        return replace(
            self, a=a, b=b, c=c, stationary=stationary, options=options, algorithm=UNIVERSAL, op=-1
        )


LOOKS = ("memory", "space", "tab", "across", "fixed", "grow", "rank", "op", "what", "pin", "data")


def read(query: str) -> tuple[State, list[str]]:
    """Return the state that a URL's query describes, and a line for each part of it that means nothing.

    >>> state, mistakes = read("?m=1K&a=col@2&policy=fast&colour=red")
    >>> state.m, state.a
    (1024, 'col@2')
    >>> for line in mistakes: print(line)
    policy 'fast' is unknown; choose from direct, greedy, cost-greedy, exhaustive
    'colour' is no part of this page's address; choose from machine, m, n, k, dtype, ranks, a, b, c, ...
    """
    return address.read(query, State(), changed)


def changed(state: State, name: str, text: str) -> State:
    """Return the state with one part as its text says.

    Raises:
        InputError: for a part that there is none of, or a text that means nothing for it.
    """
    if name in READERS:
        return replace(state, **{name: READERS[name](text)})
    option = next((x for x in known() if x.name == name), None)
    if option is None:
        raise unknown(name, [*READERS, *(x.name for x in known())])
    return replace(state, options=replace(state.options, **{name: option.read(text)}))


def usual_values() -> dict[str, str]:
    """Return every part of a URL as it is when nothing is said."""
    return _values(State())


def _values(state: State) -> dict[str, str]:
    """Return every part as the text that a URL has for it."""
    found = {x.name: getattr(state, x.name) for x in fields(state) if x.name != "options"}
    found |= {x: "1" if getattr(state, x) else "0" for x in SWITCHES}
    texts = {name: str(value) for name, value in found.items()}
    return texts | {x.name: x.typed(getattr(state.options, x.name)) for x in known()}


TABS = (
    "leaderboard",
    "replication",
    "coordinates",
    "schedule",
    "links",
    "tiles",
    "roofline",
    "whatif",
    "measured",
)

READERS: Mapping[str, Reader] = {
    "machine": plain("machine"),
    **{name: size(name) for name in "mnk"},
    "dtype": lambda text: one_of("dtype", DTYPES)(canonical(text)),
    "ranks": whole("ranks", most=MOST_RANKS),
    **{name: plain(name) for name in OPERANDS},
    "given": plain("given"),
    "stationary": one_of("stationary", STATIONARY),
    "algorithm": lambda text: one_of("algorithm", names())(text),
    "memory": plain("memory", 24),
    "space": one_of("space", SPACES),
    "tab": one_of("tab", TABS),
    "across": one_of("across", MATRICES),
    "fixed": whole("fixed"),
    "rank": whole("rank", least=-1),
    "op": whole("op", least=-1),
    "what": plain("what"),
    "pin": plain("pin", LONGEST // 4),
    **{name: switch(name) for name in SWITCHES},
}


def as_command(state: State) -> str:
    """Return the command that simulates what the page shows; texts of an address are quoted for a shell."""
    flags: dict[str, Any] = {
        f"-{x}" if len(x) == 1 else f"--{x}": getattr(state, x) for x in ("machine", "m", "n", "k", "dtype")
    }
    flags |= {"--ranks": state.ranks} if state.ranks else {}
    flags |= {f"--{x}": getattr(state, x) for x in OPERANDS}
    flags |= {"--given": state.given} if state.given else {}
    if state.algorithm != UNIVERSAL:
        flags["--algorithm"] = state.algorithm
    else:
        flags["--stationary"] = state.stationary
        flags |= {f"--{name.replace('_', '-')}": text for name, text in _chosen(state).items()}
    words = [quote(str(word)) for flag in flags.items() for word in flag]
    return " ".join(["umm simulate", *words])


def as_python(state: State) -> str:
    """Return the Python that does so."""
    ranks = f", ranks={state.ranks}" if state.ranks else ""
    layouts = ", ".join(f"{x}={getattr(state, x)!r}" for x in OPERANDS)
    layouts += f", given={state.given!r}" if state.given else ""
    how = {"stationary": state.stationary, **{x: getattr(state.options, x) for x in _chosen(state)}}
    if state.algorithm != UNIVERSAL:
        how = {"algorithm": state.algorithm}
    keywords = ", ".join(f"{name}={value!r}" for name, value in how.items())
    return (
        "import umm\n\n"
        f"sizes = dict(m={state.m}, n={state.n}, k={state.k}, dtype={state.dtype!r}{ranks})\n"
        f"problem = umm.Problem(**sizes, {layouts})\n"
        f"schedule = umm.schedule(problem, {state.machine!r}, {keywords})\n"
        'print(umm.run(schedule, executor="sim").verdict)\n'
    )


def as_toml(state: State) -> str:
    """Return the file that ``umm simulate --config`` takes."""
    values: dict[str, Any] = {"machine": state.machine, "m": state.m, "n": state.n, "k": state.k}
    values |= {"dtype": state.dtype} | ({"ranks": state.ranks} if state.ranks else {})
    values |= {x: getattr(state, x) for x in OPERANDS} | ({"given": state.given} if state.given else {})
    if state.algorithm == UNIVERSAL:
        values |= {"stationary": state.stationary} | _chosen(state)
    else:
        values |= {"algorithm": state.algorithm}
    return toml(values)


def _chosen(state: State) -> dict[str, str]:
    """Return the choices that are not as usual, as they are typed."""
    values = ((x, getattr(state.options, x.name)) for x in known())
    return {x.name: x.typed(value) for x, value in values if value != x.default}
