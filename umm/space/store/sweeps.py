"""Sweeps: every point asked for into a store, by several processes, picked up again where they stopped."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umm.errors import ExecutorUnavailableError, UmmError, expect
from umm.executor import executor as find_executor
from umm.files import whole_number
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.numbers import as_int
from umm.space.budget import bytes_of_budget
from umm.space.space import Space
from umm.space.store.database import Store
from umm.space.store.pools import find_pool
from umm.space.store.runs import Runs, Task

if TYPE_CHECKING:
    import pandas as pd

MOST_LOST = 3  # how often workers may be killed, one time after another, before anything more is stored
AT_ONCE, TASKS = 63, 64
"""Most points of a task: what a worker loses when it is killed, and about a thirtieth of a second.

Of few points, which may each take long, there are about so many tasks.
"""


@dataclass(frozen=True)
class Progress:
    """How far a sweep is."""

    asked: int  # points asked for
    found: int  # those that were in the store when the sweep came to them
    performed: int  # those performed by this sweep
    seconds: float  # since it began
    rows: Sequence[dict[str, Any]] = field(default=(), repr=False)  # the runs that have just been stored
    lost: str = ""  # what has just happened to workers, in a line, if the sweep has to go on with others

    @property
    def rate(self) -> float:
        """Points performed per second."""
        return self.performed / self.seconds if self.seconds > 0 else 0.0

    @property
    def left_s(self) -> float:
        """Seconds left at this rate, if nothing more is in the store; infinite before the first point."""
        left = self.asked - self.found - self.performed
        return left / self.rate if self.performed else float("inf")


@dataclass(frozen=True)
class Swept:
    """Counts of a sweep."""

    store: str  # path of the store
    asked: int  # points asked for, equal ones merged
    found: int  # those that were in the store already
    performed: int  # those performed now
    failed: int  # those of them that ended in an error
    seconds: float  # how long it took

    def to_frame(self, table: str = "runs") -> "pd.DataFrame":
        """Return runs of the store, fastest first: those of single multiplies, or of table ``all_runs``."""
        with Store(self.store) as store:
            return store.frame(table)


def sweep(
    spaces: Space | Sequence[Space],
    machines: Machine | str | Sequence[Machine | str],
    store: str | Path,
    *,
    executor: str = "sim",
    memory: str | int | None = None,
    pool: str = "process",
    jobs: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Swept | None:
    """Perform every point of some spaces on some machines and store the results.

    None on the ranks of ``mpi`` that only work.

    Points that the store already has are left out, so a sweep that was interrupted goes on where it stopped.
    Several sweeps may fill one store at the same time.

    InputError for a space, machine, budget, executor, pool or store that cannot be. ExecutorUnavailableError
    for an executor that cannot run here, or ``mpi`` without mpi4py. UmmError if workers are killed again and
    again, or the store cannot be written any more.

    Args:
        spaces: What may be chosen, of multiplies or of chains; one without ranks gets each machine's own
            number.
        machines: Machines, their names, or paths of machine files.
        store: Path of the SQLite file.
        executor: The executor of the schedules; ``bound`` stores the closed-form lower bound instead.
        memory: Budget per rank as in :func:`umm.space.search`; points above it, or above what a
            rank has of its device, are stored as too large.
        pool: ``process`` for processes on this host, ``mpi`` for the ranks of an ``mpiexec``, ``dask`` for a
            Dask cluster, ``none`` for this process alone, or another that a package brings.
        jobs: Processes; None for one per core, or as many as the pool has.
        progress: Called after each part that is stored, and when workers were killed.
    """
    began = time.monotonic()
    expect(store, (str, Path), "sweep", "the path of a store, such as runs.db")
    workers_of = find_pool(pool)
    jobs = None if jobs is None else whole_number(as_int(jobs), "jobs", 1)
    reason = None if executor == "bound" else find_executor(executor).available()
    if reason is not None:
        raise ExecutorUnavailableError(reason)
    spaces = [spaces] if not isinstance(spaces, Sequence) else list(spaces)
    for space in spaces:
        expect(space, Space, "sweep", "a Space or several, such as umm.Space(m=64, n=48, k=32)")
    expect(machines, (Machine, Iterable), "sweep", "a machine, its name, or several")
    names = [machines] if isinstance(machines, Machine | str) else list(machines)
    found_machines = [x if isinstance(x, Machine) else find_machine(x) for x in names]
    pairs = [(space.on(x.default_ranks), x) for x in found_machines for space in spaces]
    for space, machine in pairs:
        machine.check_ranks(space.ranks or 1)
    bytes_of_budget(memory, 2.0**40)  # says what is wrong with it before anything starts
    runs = [Runs(space, machine, executor, memory) for space, machine in pairs]
    counts, stored, lost = {"found": 0, "performed": 0, "failed": 0}, 0, 0
    asked, why = 0, ""

    def elapsed() -> float:
        return time.monotonic() - began

    def report(**news: Any) -> None:
        if progress:
            progress(Progress(asked, counts["found"], counts["performed"], elapsed(), **news))

    while lost < MOST_LOST:
        before = stored
        counts["found"] = -stored  # those are in the store by now
        try:
            with workers_of(jobs) as workers:
                if workers is None:
                    return None
                # One process writes, the one that gives out tasks; workers only send rows back.
                with Store(store) as open_store:
                    asked = sum(map(len, runs))
                    for rows in _performed(workers, _tasks(runs, open_store, counts)):
                        open_store.write(rows)
                        counts["performed"] += len(rows)
                        counts["failed"] += sum(row["status"] == "error" for row in rows)
                        stored += sum(row["status"] == "ok" for row in rows)
                        report(rows=rows)
            return Swept(str(store), asked, **counts, seconds=elapsed())
        except BrokenExecutor as error:  # a worker was killed, and the others end with it
            # Only kills without progress count: a sweep of days may lose many workers, each at another point.
            lost = lost + 1 if stored == before else 0
            why = " ".join(str(error).split()) or "a worker was killed"
            if lost < MOST_LOST:
                report(lost=f"{why}; the sweep continues with new workers")
    raise UmmError(
        f"processes of the sweep were killed {lost} times at the same points, perhaps for lack of memory "
        f"(the last time: {why}); finished points are stored: start it again to continue, with fewer --jobs "
        "if memory was short"
    )


def _tasks(runs: Iterable[Runs], store: Store, counts: dict[str, int]) -> Iterator[Task]:
    """Yield tasks of the runs missing in the store; it is asked again before every task."""
    # An empty one is not asked before: workers need not wait for the keys of all runs.
    empty = not len(store)
    for some_runs in runs:
        missing: Sequence[int] = range(len(some_runs))
        if not empty:
            # Once for all points, and below again for each task: another sweep may be filling the same store.
            missing = _missing(store, some_runs, missing)
        counts["found"] += len(some_runs) - len(missing)
        if not missing:
            continue
        missing = some_runs.best_first(missing)
        # Small tasks where points are few, so that all workers have some to the end.
        size = min(AT_ONCE, 1 + len(missing) // TASKS)
        for start in range(0, len(missing), size):
            some = missing[start : start + size]
            now = _missing(store, some_runs, some)
            counts["found"] += len(some) - len(now)
            if now:
                yield some_runs.task(now)


def _missing(store: Store, runs: Runs, places: Sequence[int]) -> list[int]:
    """Return the places of points whose runs the store lacks."""
    ids = runs.ids(places)
    done = store.done(ids)
    return [place for place, key in zip(places, ids, strict=True) if key not in done]


def _performed(workers: Executor, tasks: Iterable[Task]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each task as it is done, with a few tasks waiting for every worker."""
    waiting: set[Future[list[dict[str, Any]]]] = set()
    # A few tasks a worker hide the way to it. No more, for a task is checked against the store when it is
    # drawn. Pools of concurrent.futures know their size; 8 is a guess for others.
    room = 3 * getattr(workers, "_max_workers", 8)
    try:
        for task in tasks:
            waiting.add(workers.submit(methodcaller("perform"), task))
            if len(waiting) >= room:
                wait(waiting, return_when=FIRST_COMPLETED)
            done = {future for future in waiting if future.done()}
            waiting -= done
            yield from (future.result() for future in done)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        # A pool of processes that is ended breaks what waits, which must not be cancelled already.
        if not isinstance(workers, ProcessPoolExecutor):
            for future in waiting:
                future.cancel()
