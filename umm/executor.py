"""Who can perform a schedule: the Executor protocol, and executors found by name among installed packages."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast, get_args, runtime_checkable

from numpy.typing import NDArray

from umm.arrays import Floats
from umm.errors import ExecutorUnavailableError, InputError, expect
from umm.files import shown
from umm.plugins import loaded, plugin, plugins
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm.traces.traffic import Times

GROUP = "umm.executors"
NAMES = "umm.names"
"""The entry-point group of names that ``umm`` shows but does not hold, such as ``umm.multiply``."""
Operands = tuple[NDArray[Any], ...] | Mapping[str, NDArray[Any]]


class Executor(Protocol):
    """Performs a schedule as given and reports when each action ran.

    An executor decides nothing: order, overlap and data movement are all in the schedule. Its trace has one
    span per action, none starting before everything in the action's ``after`` has finished.
    """

    def available(self) -> str | None:
        """Return None if schedules can run here, else why not, ending with the line that fixes it."""

    def run(self, schedule: Schedule, operands: Operands | None = None) -> Trace:
        """Perform a schedule; return the spans, and C as one array if real matrices were multiplied.

        Args:
            operands: A (m×k) and B (k×n) as whole arrays; None lets an executor of data choose random ones.
                An executor of time alone does not look at them.
        """

    def makespan(self, schedule: Schedule) -> float:
        """Return the last finish in seconds, for searches that need no spans."""

    def close(self, code: int = 0) -> None:
        """End processes kept between runs, if any; see :meth:`Leader.close` for the code."""


@runtime_checkable
class Delaying(Protocol):
    """Further methods of an executor that can make ranks late in real runs."""

    def delayed(self, schedule: Schedule, delays: Floats, operands: Operands | None = None) -> list[Trace]:
        """Perform a schedule once for each draw.

        Args:
            delays: How many times as long local work, bytes and launches of each rank take, each ≥ 1; shape
                (draws, 3, ranks).
            operands: As :meth:`Executor.run` takes them.
        """


@runtime_checkable
class Timed(Protocol):
    """A further attribute of an executor: the meaning of its times, measured if it has none."""

    times: Times  # whether they are predicted, measured or meaningless; its traces carry the same


@runtime_checkable
class Located(Protocol):
    """Further methods of an executor whose devices differ from host to host."""

    def here(self) -> str:
        """Return in words the devices of this host and their abilities, where it is available."""


@runtime_checkable
class Leader(Protocol):
    """Further methods of an executor whose ranks are processes: the first one leads, the others follow."""

    @property
    def ranks(self) -> int | None:
        """Ranks that run already or were asked for; None if a schedule decides."""

    def processes(self) -> str | None:
        """Return which process each rank is, in words; None if this executor starts them itself."""

    def follow(self) -> int | None:
        """Do rank 0's requests until it stops and return the exit code; None at once if this one leads."""

    def close(self, code: int = 0) -> None:
        """End the ranks; those that something else has started end with this exit code."""


def expect_ranks(schedule: Schedule, running: int | None) -> None:
    """Raise if a schedule is for more ranks than run; None if it decides how many do; InputError if it is."""
    if running is not None and schedule.ranks > running:
        raise InputError(
            f"the schedule is for {schedule.ranks} ranks, but {running} run; ask for {schedule.ranks}, or "
            f"make the schedule for {running}"
        )


@runtime_checkable
class OnHost(Protocol):
    """Further attributes of an executor whose ranks multiply on the cores of this host."""

    @property
    def on_host(self) -> bool:
        """Whether all ranks are on this host, as far as is known."""


class Saver(Executor, Protocol):
    """An executor that can save the tensors that a run leaves in the memory of its ranks."""

    saves: bool  # true

    def run(
        self, schedule: Schedule, operands: Operands | None = None, save: str | Path | None = None
    ) -> Trace:
        """Perform a schedule, then let operands and results be the checkpoint of a folder, if one is given.

        Each rank writes its own part. All tensors but those of role ``work`` are saved.
        """


def cannot_save(name: str) -> InputError:
    """Return the refusal of an executor that keeps no checkpoints."""
    return InputError(f"executor {name} saves no matrices; numpy, mpi and cuda do")


def saver(performer: Executor, name: str) -> Saver:
    """Return an executor as one that can save; InputError if it cannot."""
    if not getattr(performer, "saves", False):
        raise cannot_save(name)
    return cast(Saver, performer)


@dataclass(frozen=True)
class Rounds:
    """How a calibration in rounds keeps those that are finished."""

    path: Path  # where: a file that is there is continued, if it is of the same measurement
    quick: bool = False  # whether rounds are short and end after QUICK_S


@runtime_checkable
class Calibrator(Protocol):
    """Further methods of an executor that can measure the machine it runs on."""

    dtypes: tuple[str, ...]  # types whose multiplies it can measure
    in_rounds: bool  # whether it measures in rounds, which can be kept

    def calibrate(
        self, dtypes: Sequence[str], note: Callable[[str], None], rounds: Rounds | None = None
    ) -> str:
        """Measure this machine with microbenchmarks and return its machine file.

        Args:
            note: Called with what is measured now.
            rounds: Where finished rounds are kept; of one that measures in rounds.
        """


def executor_names() -> list[str]:
    """Return the names of all executors that installed packages offer, sorted."""
    return sorted(plugins(GROUP))


def executor(name: str, **options: Any) -> Executor:
    """Return a new executor; its package is imported only now.

    InputError for a name that no installed package offers, or an option the executor does not take.
    ExecutorUnavailableError if a module it needs is not installed.

    Args:
        name: What a package calls it in its entry-point group ``umm.executors``.
    """
    return _made(name, options)


@cache
def offered_name(name: str) -> Any:
    """Return an installed package's object for a name of ``umm``; it is imported only now.

    ExecutorUnavailableError if no package offers it, or a module it needs is not installed.

    Args:
        name: Name in the package's entry-point group ``umm.names``.
    """
    entry = plugin(NAMES, name)
    if entry:
        return loaded(entry, "umm.")
    raise ExecutorUnavailableError(
        f"umm.{name} is offered by no installed package; install umm-sim again: pip install umm-sim"
    )


def times_of(performer: Executor) -> Times:
    """Return whether the times of an executor are predicted, measured or meaningless."""
    return performer.times if isinstance(performer, Timed) else "measured"


def run(schedule: Schedule, executor: str = "sim", operands: Operands | None = None, **options: Any) -> Trace:
    """Perform a schedule with the executor of this name and return when each action ran.

    InputError for an unknown executor or option, or operands that do not fit the problem.
    ExecutorUnavailableError if the executor cannot run here.

    Args:
        executor: ``sim``, ``numpy`` or another name of :func:`executor_names`.
        operands: A (m×k) and B (k×n) as whole arrays; random ones if None.
        options: Keyword arguments of the executor.
    """
    expect(schedule, Schedule, "run", "a Schedule; make one with umm.schedule(problem, machine)")
    performer = _made(executor, options)
    reason = performer.available()
    if reason is not None:
        raise ExecutorUnavailableError(reason)
    return performer.run(schedule, operands)


def _made(name: str, options: dict[str, Any]) -> Executor:
    entry = plugin(GROUP, name)
    if entry is None:
        raise InputError(f"executor {shown(name)} is unknown; choose from {', '.join(executor_names())}")
    factory = loaded(entry, "executor ")
    signature = inspect.signature(factory)
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "no options"
        raise InputError(f"executor {name}: {error}; it takes {takes}") from None
    for option, value in options.items():
        _check_option(name, option, value, signature.parameters[option].annotation)
    made: Executor = factory(**options)
    return made


def _check_option(name: str, option: str, value: Any, annotation: Any) -> None:
    """Refuse text and numbers, as a command line has them, for an option that takes something else."""
    takes = get_args(annotation) or (annotation,)
    known = {str: "text", bool: "on or off", int: "a whole number", float: "a number"}
    fits = type(value) in takes or (type(value) is int and float in takes)
    if type(value) in known and not fits and Any not in takes and inspect.Parameter.empty not in takes:
        wanted = [known[kind] for kind in takes if kind in known]
        what = f"takes {' or '.join(wanted)}" if wanted else "can only be given in Python"
        raise InputError(f"executor {name}: option {option} {what}, not {value!r}")
