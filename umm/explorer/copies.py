"""A state as texts to copy: commands that simulate and search as the page does, Python, a file of flags."""

import re
from collections.abc import Mapping
from shlex import quote
from typing import Any

from umm.algorithms.scheduling import UNIVERSAL
from umm.explorer.state import OPERANDS, State, as_text
from umm.plans.multiply.options import known
from umm.quoting.toml import toml_value

Stationary = str | Mapping[str, str]


def as_command(state: State) -> str:
    """Return the command that simulates the page's point; texts of an address are quoted for a shell."""
    if state.chain and state.stationary == "best":
        return "Each multiply has its own stationary matrix, which only the Python below can express."
    return _command("simulate", _flags(state) | _way(state))


def as_search(state: State) -> str:
    """Return the command that searches the points that stand beside it."""
    flags = _flags(state) | ({"memory": state.memory} if state.memory else {})
    if state.chain:
        flags |= {x: getattr(state, x) for x in ("choices", "optimizer", "layers") if getattr(state, x)}
        flags |= {"stationary": state.stationary} if state.stationary != "auto" else {}
        return _command("search", flags)
    paper, searched = state.space == "paper", {x.name for x in known() if x.searched}
    flags |= {x: text for x, text in _chosen(state, every=paper).items() if paper or x not in searched}
    return _command("search", flags | ({"grids": "square"} if paper else {}))


def as_python(state: State, ranks: int, stationary: Stationary | None = None) -> str:
    """Return the Python that simulates it, and of a chain searches first.

    Args:
        ranks: Over so many.
        stationary: What each product of a chain keeps in place, where that is its best.
    """
    if not state.chain:
        layouts = ", ".join(f"{x}={getattr(state, x)!r}" for x in OPERANDS)
        layouts += f", given={state.given!r}" if state.given else ""
        sizes = ", ".join(f"{x}={size}" for x, size in state.sizes.items())
        shared = f", ranks={state.ranks}" if state.ranks else ""
        made = [
            f"sizes = dict({sizes}, dtype={state.dtype!r}{shared})",
            f"problem = umm.Problem(**sizes, {layouts})",
        ]
        how = {"stationary": state.stationary, **{x: getattr(state.options, x) for x in _chosen(state)}}
        if state.algorithm != UNIVERSAL:
            how = {"algorithm": state.algorithm}
        program = "problem"
    else:
        made = _searched(state, ranks)
        if not state.layouts:
            return "\n".join(["import umm", "", *made]) + "\n"
        program = f"chain.laid_out({state.layouts!r}, {ranks})"
        stays = stationary if state.stationary == "best" else state.stationary
        how = {"stationary": dict(stays) if isinstance(stays, Mapping) else stays} if stays != "auto" else {}
    keywords = "".join(f", {name}={value!r}" for name, value in how.items())
    lines = [
        *made,
        f"schedule = umm.schedule({program}, {state.machine_named!r}{keywords})",
        'print(umm.run(schedule, executor="sim").verdict)',
    ]
    return "\n".join(["import umm", "", *lines]) + "\n"


def as_toml(state: State) -> str:
    """Return the file that ``umm simulate --config`` takes."""
    lines = []
    for name, value in (_flags(state) | _way(state)).items():
        text = str(value).lower() if isinstance(value, bool) else as_text(value)
        # Texts that are whole numbers stay as typed.
        plain = not isinstance(value, str) or re.fullmatch(r"0|[1-9][0-9]{0,17}", value)
        lines.append(f"{name.replace('_', '-')} = {text if plain else toml_value(value)}\n")
    return "".join(lines)


def _flags(state: State) -> dict[str, Any]:
    """Return the program and its machine, by the names of flags."""
    flags: dict[str, Any] = {"machine": state.machine_text}
    if state.chain:
        flags |= {"chain": state.chain, **state.sizes}
        flags |= {x: value for x, value in state.named.items() if value is not False}
    else:
        flags |= {**state.sizes, "dtype": state.dtype}
    return flags | {x: getattr(state, x) for x in ("nodes", "ranks", "given") if getattr(state, x)}


def _way(state: State) -> dict[str, Any]:
    """Return the layouts, and how a schedule of them is made, by the names of flags."""
    if state.chain:
        flags = {"layouts": state.layouts} if state.layouts else {}
        return flags | ({"stationary": state.stationary} if state.stationary != "auto" else {})
    flags = {x: getattr(state, x) for x in OPERANDS}
    if state.algorithm != UNIVERSAL:
        return flags | {"algorithm": state.algorithm}
    return flags | {"stationary": state.stationary, **_chosen(state)}


def _command(name: str, flags: Mapping[str, Any]) -> str:
    words = []
    for flag, value in flags.items():
        words.append(f"-{flag}" if len(flag) == 1 and flag in "mnk" else f"--{flag.replace('_', '-')}")
        words += [] if value is True else [as_text(value)]
    return " ".join(["umm", name, *map(quote, words)])


def _searched(state: State, ranks: int) -> list[str]:
    """Return the lines of Python that search a chain's layouts."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in {**state.sizes, **state.named}.items())
    read = f"umm.program.load_chain({state.chain!r})"
    made = read if state.of_file else f"umm.chain({state.chain!r}, {arguments})"
    given = f".with_given({state.given!r})" if state.given else ""
    more = [f"layouts={state.texts!r}"] if state.texts else []
    more += [f"stationary={state.stationary!r}"] if state.stationary != "auto" else []
    more += [f"state={state.optimizer!r}"] if state.optimizer else []
    more += [f"layers={state.layers}"] if state.layers else []
    memory = f", memory={state.memory!r}" if state.memory else ""
    return [
        f"chain = {made}{given}",
        f"space = umm.Space({', '.join(['chain=chain', f'ranks={ranks}', *more])})",
        f"print(umm.search(space, {state.machine_named!r}{memory}))",
    ]


def _chosen(state: State, every: bool = False) -> dict[str, str]:
    """Return the choices that are not as usual, or every one, as they are typed."""
    values = ((x, getattr(state.options, x.name)) for x in known())
    return {x.name: x.typed(value) for x, value in values if every or value != x.default}
