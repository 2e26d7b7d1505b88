"""An MPI job started from a plain process, which sends it work and gets the results back."""

import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryFile, gettempdir, mkdtemp
from time import monotonic, time
from typing import IO, TYPE_CHECKING, Any

from umm.errors import ExecutorUnavailableError, UmmError
from umm.host.launcher import children, is_proxy
from umm_hw.mpi.job.deaths import Deaths
from umm_hw.mpi.job.keeper import WHILE_STARTING
from umm_hw.mpi.job.outcomes import results

if TYPE_CHECKING:
    from umm_hw.performance import Arrays

START_WITHIN = 60.0  # seconds for mpiexec to start the ranks
END_WITHIN = 5.0  # seconds for the ranks to end
KEEPER_WITHIN = 30.0  # seconds for a keeper to end all it has started; killed, it would leave some
LOOK_UP = 0.1  # seconds between two looks whether mpiexec still runs
ENDED = "was killed or ended early"
SILENT = "it printed nothing"
LONGEST_NAME = 107  # bytes of a socket's name
OF_MPIEXEC = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL", "HYDI_CONTROL_FD")
"""How the variables begin by which a process learns what mpiexec has started."""
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")


class MpiJob:
    """Ranks that wait for work until the job is closed or forgotten.

    A keeper starts them by ``mpiexec -n p python -m mpi4py …`` in a session of their own, so that Ctrl-C
    reaches this process alone; when this process ends, however it does, the keeper ends them.

    Args:
        ranks: Number of processes, p; work may be for fewer.
        timeout: Most seconds for one piece of work; None waits as long as the ranks' watchdog does.

    Raises:
        ExecutorUnavailableError: if there is no mpiexec.
        UmmError: if the ranks do not start.
    """

    def __init__(self, ranks: int, timeout: float | None = None) -> None:
        self.size = ranks
        self.timeout = timeout
        self.processes: list[tuple[str, int]] = []
        """Host and process of each rank, once they have started."""
        self._deaths = Deaths()
        mpiexec = find_mpiexec()
        try:
            output, folder = TemporaryFile(), meeting_place()  # noqa: SIM115  both go with the job
            self._connections: list[Connection] = []
            self._keepers: list[subprocess.Popen[bytes]] = []
            self._close = weakref.finalize(
                self, _end, self._keepers, folder, self._connections, output, self._deaths
            )
            try:
                self._start(mpiexec, folder, output)
            except BaseException:
                self._close()
                raise
        except OSError as error:
            raise UmmError(f"the MPI job of {ranks} ranks cannot start: {error.strerror or error}") from None
        self.processes, parents = self._receive(START_WITHIN)
        self._watch(parents)

    def _start(self, mpiexec: str, folder: Path, output: IO[bytes]) -> None:
        keeper = [sys.executable, "-m", "umm_hw.mpi.job.keeper", str(os.getpid()), str(folder)]
        worker = [sys.executable, "-m", "mpi4py", "-m", "umm_hw.mpi.job.worker", str(folder / "socket")]
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
            listener.listen(1)
            self._keeper = _Keeper(
                self._keepers,
                [*keeper, mpiexec, "-n", str(self.size), *worker],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=job_environment(os.environ),
                start_new_session=True,
            )
            self._connection = self._accept(listener)
        self._connections.append(self._connection)
        shutil.rmtree(folder, ignore_errors=True)  # which shows the keeper that the ranks watch each other
        with suppress(ConnectionError):  # what comes next says why the job has ended
            self._connection.send(sys.path)

    def call(self, size: int, program: Any, operands: "Arrays | None" = None) -> list[Any]:
        """Run a program on the first ranks and return its results, by rank.

        UmmError if the job ends meanwhile, saying which rank failed, froze or was killed. Exception if the
        error of the lowest rank, if the program raised on all of them.

        Args:
            size: Number of ranks, at most the job's.
            program: A function of a transport that can be pickled.
            operands: Given to the program as ``operands`` on rank 0.
        """
        try:
            self._connection.send((size, pickle.dumps(program, protocol=5), operands))
        except ConnectionError:
            raise self._ended("ended early") from None
        return results(self._receive(self.timeout))

    def close(self, code: int = 0) -> None:
        """End the ranks."""
        self._close()

    @property
    def running(self) -> bool:
        """Whether the ranks are there for work."""
        return self._close.alive and self._keeper.poll() is None

    def _accept(self, listener: socket.socket) -> Connection:
        listener.settimeout(LOOK_UP)
        until = monotonic() + START_WITHIN
        while monotonic() < until:
            with suppress(TimeoutError):
                return Connection(listener.accept()[0].detach())
            if self._keeper.poll() is not None:
                raise self._ended("ended while it started")
        raise self._ended(f"did not start within {START_WITHIN:.0f} s")

    def _receive(self, timeout: float | None) -> Any:
        until = monotonic() + timeout if timeout is not None else float("inf")
        try:
            while not self._connection.poll(LOOK_UP):
                if self._keeper.poll() is not None:
                    raise EOFError
                if monotonic() > until:
                    raise self._ended(f"took longer than {timeout:g} s")
            return self._connection.recv()
        except (EOFError, ConnectionError):
            raise self._ended("ended early") from None
        except KeyboardInterrupt:
            self.close()
            raise

    def _watch(self, parents: list[int]) -> None:
        """Watch all processes of the job that are on this host."""
        # parents: the process that mpiexec has started for each rank.
        here = socket.gethostname()
        for rank, ((host, process), parent) in enumerate(zip(self.processes, parents, strict=True)):
            if host == here:
                for number in dict.fromkeys((process, parent)):
                    self._deaths.watch(number, f"rank {rank} (process {number} on {host})")
        for number in children(self._keeper.pid):
            self._deaths.watch(number, f"mpiexec (process {number})")
            for proxy in filter(is_proxy, children(number)):
                self._deaths.watch(proxy, f"mpiexec's proxy (process {proxy})")
        self._deaths.watch(self._keeper.pid, f"the keeper of the ranks (process {self._keeper.pid})")

    def _ended(self, how: str) -> UmmError:
        """End the rest of the job; return an error that says why it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(END_WITHIN if how == "ended early" else 0)
        first = self._deaths.first()
        why = _reason(self._close() or "", first if how == "ended early" else None)
        return UmmError(f"the MPI job of {self.size} ranks {how}: {why}")


class _Keeper(subprocess.Popen[bytes]):
    """A process that is in a list before it begins, so that Ctrl-C meanwhile does not leave it behind."""

    def __init__(self, keepers: list[subprocess.Popen[bytes]], command: list[str], **how: Any) -> None:
        keepers.append(self)
        super().__init__(command, **how)


def meeting_place() -> Path:
    """Return a new folder, readable by this user alone, in which a socket can have a name.

    The name of a socket has at most 107 bytes; where the usual folder's is too long, ``/tmp`` has to do.
    Folders of jobs whose command and keeper were killed at once are removed here.
    """
    usual = gettempdir()
    for folder in Path(usual).glob("umm-mpi-*"):
        with suppress(OSError):
            if time() - folder.stat().st_mtime > 2 * START_WITHIN:
                shutil.rmtree(folder)
    short = len(os.fsencode(usual)) + len("/umm-mpi-12345678/socket") <= LONGEST_NAME
    return Path(mkdtemp(prefix="umm-mpi-", dir=usual if short else "/tmp"))


def job_environment(present: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of mpiexec: without variables that another one has set in this process."""
    kept = {name: x for name, x in present.items() if not name.startswith(OF_MPIEXEC)}
    return {"UCX_LOG_LEVEL": "error"} | kept | _ONE_THREAD


def find_mpiexec() -> str:
    """Return the mpiexec that belongs to this Python, else the first on the path.

    ExecutorUnavailableError if there is none.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    path = str(beside) if beside.exists() else shutil.which("mpiexec")
    if path is None:
        raise ExecutorUnavailableError("executor mpi needs mpiexec; pip install 'umm-sim[mpi-wheels]'")
    return path


def _end(
    keepers: "list[subprocess.Popen[bytes]]",
    folder: Path,
    connections: list[Connection],
    output: IO[bytes],
    deaths: Deaths,
) -> str:
    """Close the socket, at which the ranks end; have the keeper end all else; return the printed text."""
    deaths.close()
    for connection in connections:
        connection.close()
    patience = END_WITHIN if connections else 0
    for keeper in (x for x in keepers if getattr(x, "pid", None)):  # which has begun
        for stop in (keeper.terminate, keeper.kill):
            try:
                keeper.wait(patience)
                break
            except subprocess.TimeoutExpired:
                stop()
                patience = KEEPER_WITHIN
        keeper.wait()
    with output:
        output.seek(0)
        text = output.read().decode(errors="replace")
    shutil.rmtree(folder, ignore_errors=True)
    return text


def _reason(text: str, first: str | None = None) -> str:
    """Return in one line why a job ended."""
    # text: all that mpiexec and the ranks have printed. first: name of the first process to die, if known:
    # mpiexec often names another.
    error = re.search(r"^error: (.+)$", text, re.MULTILINE)
    if error and not error[1].endswith(WHILE_STARTING) and not (first and error[1].endswith(ENDED)):
        return error[1]
    banner = re.search(r"PID (\d+) RUNNING AT (\S+)", text)  # mpiexec's; its advice is about other things
    if first:
        ended = f"{first} {ENDED}"
    else:
        ended = error[1] if error else f"process {banner[1]} on {banner[2]} {ENDED}" if banner else ""
    if not ended and re.search(r"^\[mpiexec@.*assert \(!closed\) failed", text, re.MULTILINE):
        ended = f"a process {ENDED}"  # and mpiexec missed what came of it
    errors = _errors(text[: error.start()] if error else text)
    if ended:
        return f"{ended}: {errors[0]}" if errors else ended
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    launching = [line for line in lines if line.startswith(("[mpiexec@", "[proxy:"))][:1]  # first the cause
    return (errors or launching or lines or [SILENT])[-1]


def _errors(text: str) -> list[str]:
    """Return the last lines of the tracebacks that were printed."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
