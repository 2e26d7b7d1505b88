"""The ranks of one MPI job: rank 0 leads, the others perform its requests."""

import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from threadpoolctl import threadpool_limits

from umm.errors import UmmError
from umm.host import launcher as segments
from umm.host.launcher import launched_size
from umm_hw.cores.backoff import Backoff
from umm_hw.cores.threads import own_core
from umm_hw.mpi import wait
from umm_hw.mpi.job.activity import ACTIVITY
from umm_hw.mpi.job.outcomes import Outcome, results
from umm_hw.mpi.job.watchdog import GRACE, Watchdog, end_job
from umm_hw.mpi.transport import MpiTransport, on_one_host

if TYPE_CHECKING:
    from umm_hw.performance import Arrays

Program = Callable[..., Any]  # of a transport, and on rank 0 of operands if there are any
INTERRUPTED = 130  # exit code
ALONE = 2.0  # seconds all ranks have to fail as one of them did
IDLE_PAUSE = 2e-3  # seconds between two looks for work


class Team:
    """All ranks of ``COMM_WORLD``; made once in a process, on all ranks.

    Raises:
        UmmError: if mpiexec belongs to another MPI than mpi4py.
    """

    def __init__(self) -> None:
        self.world = MPI.COMM_WORLD
        started = launched_size()
        if started is not None and started != self.world.size:
            library = MPI.Get_library_version().splitlines()[0].rstrip("\0")
            raise UmmError(
                f"mpiexec started {started} processes, but mpi4py sees {self.world.size}: they belong to "
                f"different MPIs; mpi4py has {library}, start with its own mpiexec"
            )
        self.running = True
        """Whether all ranks are ready for work."""
        self._closed = False
        self._limits = threadpool_limits(1)  # each rank computes on one core
        self._transports: dict[int, MpiTransport | None] = {}
        self._endings: dict[int, MPI.Comm] = {}  # not the programs', so that no barrier of theirs is met
        self.processes: list[tuple[str, int]] = self.world.allgather((MPI.Get_processor_name(), os.getpid()))
        """Host and process of each rank."""
        self.parents: list[int] = self.world.allgather(os.getppid())
        """The process that mpiexec has started for each rank, which goes on as its child."""
        segments.forget()  # MPICH would at the end only
        self._watchdog = Watchdog(self.world.Dup(), on_one_host(self.world), self.processes)
        self._watchdog.start()

    @property
    def rank(self) -> int:
        """This rank's number."""
        return self.world.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.world.size

    def call(self, size: int, program: Program, operands: "Arrays | None" = None) -> list[Any]:
        """Run a program on the first ranks, here with the operands; return the results, by rank."""
        return results(self.lead(size, pickle.dumps(program, protocol=5), operands))

    def lead(self, size: int, program: bytes, operands: "Arrays | None") -> list[Outcome]:
        """Run a pickled program on the first ranks, here with the operands; return the outcomes, by rank."""
        self.running = False
        with _outlived():
            wait.broadcast(self.world, (size, program))
            outcomes = self._perform(size, program, operands)
        self.running = True
        return outcomes

    def follow(self) -> int:
        """Do rank 0's requests until it stops; on the other ranks. Returns the exit code."""
        try:
            while True:
                with _outlived():
                    request = wait.broadcast(self.world, pauses=Backoff(IDLE_PAUSE))
                    if isinstance(request, int):
                        break
                    self._perform(*request)
            self._finish()
            return request
        except KeyboardInterrupt:
            self.world.Abort(INTERRUPTED)
            raise

    def close(self, code: int = 0) -> None:
        """Let all ranks end with this exit code; on rank 0, where only the first call counts."""
        if self._closed:
            return
        self._closed = True
        if not self.running:  # rank 0 has left the others amid their work
            self.world.Abort(code or UmmError.exit_code)
        wait.broadcast(self.world, code)
        self._finish()

    def _finish(self) -> None:
        for transport in self._transports.values():
            if transport is not None:
                transport.close()
        self._watchdog.stop()

    def _perform(self, size: int, program: bytes, operands: "Arrays | None" = None) -> list[Outcome]:
        transport = self._transport(size)
        if transport is None:
            return []
        try:
            run: Program = pickle.loads(program)
            with own_core(*transport.place_on_host):
                outcome = True, run(transport) if operands is None else run(transport, operands=operands)
        except Exception as error:
            outcome = False, error
        with ACTIVITY.during("all ranks to come to the end"):
            ending = self._endings[size]
            together = ending.Ibarrier()
            if not outcome[0] and not wait.until_complete(together, most=ALONE):
                traceback.print_exception(outcome[1])
                end_job(f"rank {self.rank} failed: {type(outcome[1]).__name__}: {outcome[1]}")
            wait.until_complete(together)
            outcomes: list[Outcome] = wait.gather(ending, outcome)
            transport.free()
        return outcomes

    def _transport(self, size: int) -> MpiTransport | None:
        """Return the transport among the first ranks, None on a rank that is not one of them; collective."""
        if size not in self._transports:
            comm = self.world.Split(0 if self.rank < size else 1)
            assert isinstance(comm, MPI.Intracomm)
            self._endings[size] = comm.Dup()
            self._transports[size] = MpiTransport(comm) if self.rank < size else None
        return self._transports[size]


@contextmanager
def _outlived() -> Iterator[None]:
    """Hold back an error of MPI, which may be of a rank's death, until the watchdog has said who died."""
    try:
        yield
    except MPI.Exception:
        Event().wait(GRACE)
        raise
