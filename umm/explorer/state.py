"""What the page shows, as one value: read from the URL, written to it, told as a command or Python."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from umm.algorithms.registry import UNIVERSAL, names
from umm.algorithms.universal.options import Options, known
from umm.dtypes import DTYPES
from umm.errors import InputError, did_you_mean
from umm.problem import MATRICES
from umm.units import parse_dimension

LONGEST = 4096  # characters of a URL that are read
MOST_RANKS = 1024
STATIONARY = ("auto", *MATRICES)
OPERANDS = ("a", "b", "c")
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
        tab: The tab in sight.
        across: The operand whose replication factor the heat map leaves to its slider.
        fixed: That factor, or 0 for the best.
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
    tab: str = "leaderboard"
    across: str = "C"
    fixed: int = 0
    rank: int = -1
    op: int = -1
    what: str = ""
    pin: str = ""
    data: bool = False

    @property
    def query(self) -> str:
        """The state as the query of a URL, without what is as usual: ``?m=1024&b=col%402``."""
        usual = _values(State())
        mine = {name: value for name, value in _values(self).items() if value != usual[name]}
        return "?" + urlencode(mine) if mine else ""

    @property
    def point(self) -> "State":
        """The same question asked in the same way, without what only says how to look at it."""
        usual = State()
        return replace(self, **{name: getattr(usual, name) for name in LOOKS})

    def at(self, layouts: tuple[str, str, str], stationary: str) -> "State":
        """Return the state at other layouts and another stationary matrix, by the universal algorithm."""
        a, b, c = layouts
        return replace(self, a=a, b=b, c=c, stationary=stationary, algorithm=UNIVERSAL, op=-1)


LOOKS = ("memory", "tab", "across", "fixed", "rank", "op", "what", "pin", "data")


def read(query: str) -> tuple[State, list[str]]:
    """Return the state that a URL's query describes, and a line for each part of it that means nothing.

    >>> state, mistakes = read("?m=1K&a=col@2&policy=fast&colour=red")
    >>> state.m, state.a
    (1024, 'col@2')
    >>> for line in mistakes: print(line)
    policy 'fast' is unknown; choose from direct, greedy, cost-greedy, exhaustive
    'colour' is no part of this page's address; choose from machine, m, n, k, dtype, ranks, a, b, c, ...
    """
    state, mistakes = State(), []
    if len(query) > LONGEST:
        return state, [f"an address of {len(query)} characters is not read; at most {LONGEST} are"]
    try:
        pairs = parse_qsl(
            query.removeprefix("?"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except ValueError:
        return state, ["this address cannot be read; the page starts anew"]
    for name, text in pairs:
        try:
            state = changed(state, name, text)
        except InputError as error:
            mistakes.append(str(error))
    return state, mistakes


def changed(state: State, name: str, text: str) -> State:
    """Return the state with one part as its text says.

    Raises:
        InputError: for a part that there is none of, or a text that means nothing for it.
    """
    if name in READERS:
        return replace(state, **{name: READERS[name](text)})
    option = next((x for x in known() if x.name == name), None)
    if option is None:
        parts = [*READERS, *(x.name for x in known())]
        hint = did_you_mean(name, parts)
        short = f"choose from {', '.join(parts[:9])}, ..." if hint.startswith("choose") else hint
        raise InputError(f"{name[:40]!r} is no part of this page's address; {short}")
    value: Any = text
    if isinstance(option.default, bool):
        value = _one_of(name, ("on", "none"))(text) == "on"
    elif isinstance(option.default, int):
        value = _whole(name)(text)
    return replace(state, options=replace(state.options, **{name: value}))


def usual_values() -> dict[str, str]:
    """Return every part of a URL as it is when nothing is said."""
    return _values(State())


def _values(state: State) -> dict[str, str]:
    """Return every part as the text that a URL has for it."""
    found = {x.name: getattr(state, x.name) for x in fields(state) if x.name != "options"}
    found["data"] = "1" if state.data else "0"
    texts = {name: str(value) for name, value in found.items()}
    return texts | {x.name: _typed(getattr(state.options, x.name)) for x in known()}


def _typed(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "none"
    return str(value)


def _one_of(name: str, values: tuple[str, ...]) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in values:
            raise InputError(f"{name} {text[:40]!r} is unknown; choose from {', '.join(values)}")
        return text

    return check


def _whole(name: str, least: int = 0, most: int = 2**31) -> Callable[[str], int]:
    def check(text: str) -> int:
        sign = text.removeprefix("-")
        if len(text) > 12 or not (sign.isascii() and sign.isdecimal()) or not least <= int(text) <= most:
            raise InputError(f"{name} {text[:40]!r} is not a whole number from {least} to {most}")
        return int(text)

    return check


def _size(name: str) -> Callable[[str], int]:
    def check(text: str) -> int:
        try:
            size = parse_dimension(text[:24])
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        if size < 1:
            raise InputError(f"{name}: {size} is not a matrix dimension; it must be a whole number ≥ 1")
        return size

    return check


def _text(name: str, most: int = 120) -> Callable[[str], str]:
    def check(text: str) -> str:
        if len(text) > most or not text.isprintable():
            raise InputError(
                f"{name} of {len(text)} characters is not read; it has at most {most}, printable"
            )
        return text.strip()

    return check


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

READERS: Mapping[str, Callable[[str], Any]] = {
    "machine": _text("machine"),
    **{name: _size(name) for name in "mnk"},
    "dtype": _one_of("dtype", tuple(DTYPES)),
    "ranks": _whole("ranks", most=MOST_RANKS),
    **{name: _text(name) for name in OPERANDS},
    "given": _text("given"),
    "stationary": _one_of("stationary", STATIONARY),
    "algorithm": lambda text: _one_of("algorithm", tuple(names()))(text),
    "memory": _text("memory", 24),
    "tab": _one_of("tab", TABS),
    "across": _one_of("across", MATRICES),
    "fixed": _whole("fixed"),
    "rank": _whole("rank", least=-1),
    "op": _whole("op", least=-1),
    "what": _text("what"),
    "pin": _text("pin", LONGEST // 4),
    "data": lambda text: _one_of("data", ("0", "1"))(text) == "1",
}


def as_command(state: State) -> str:
    """Return the command that simulates what the page shows."""
    flags = {"machine": state.machine, "m": state.m, "n": state.n, "k": state.k, "dtype": state.dtype}
    parts = [f"-{name} {value}" if len(name) == 1 else f"--{name} {value}" for name, value in flags.items()]
    if state.ranks:
        parts.append(f"--ranks {state.ranks}")
    parts += [f"--{x} {getattr(state, x)}" for x in OPERANDS]
    parts += [f"--given {state.given}"] if state.given else []
    if state.algorithm != UNIVERSAL:
        return " ".join(["umm simulate", *parts, f"--algorithm {state.algorithm}"])
    parts.append(f"--stationary {state.stationary}")
    parts += [f"--{name.replace('_', '-')} {_typed(value)}" for name, value in _chosen(state).items()]
    return " ".join(["umm simulate", *parts])


def as_python(state: State) -> str:
    """Return the Python that does so."""
    ranks = f", ranks={state.ranks}" if state.ranks else ""
    layouts = ", ".join(f"{x}={getattr(state, x)!r}" for x in OPERANDS)
    layouts += f", given={state.given!r}" if state.given else ""
    how = {"stationary": state.stationary, **_chosen(state)}
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
        values |= {"stationary": state.stationary} | {x: _typed(v) for x, v in _chosen(state).items()}
    else:
        values |= {"algorithm": state.algorithm}
    return "".join(f"{name.replace('_', '-')} = {_toml(value)}\n" for name, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
        return str(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _chosen(state: State) -> dict[str, Any]:
    """Return the choices that are not as usual."""
    usual = Options().to_dict()
    return {name: value for name, value in state.options.to_dict().items() if value != usual[name]}
