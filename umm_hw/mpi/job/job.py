"""An MPI job started from a plain process, which sends it work and gets the results back."""

import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import weakref
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic
from typing import TYPE_CHECKING, Any

from umm.errors import ExecutorUnavailableError, UmmError
from umm_hw.mpi.job.outcomes import results

if TYPE_CHECKING:
    from umm_hw.performance import Arrays

START_WITHIN = 60.0  # seconds for mpiexec to start the ranks
END_WITHIN = 5.0  # seconds for the ranks to end
LOOK_UP = 0.1  # seconds between two looks whether mpiexec still runs
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")


class MpiJob:
    """Ranks that wait for work until the job is closed or forgotten.

    They are started by ``mpiexec -n p python -m mpi4py …`` in a session of their own, so that Ctrl-C reaches
    this process alone, which then ends them.

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
        folder = Path(mkdtemp(prefix="umm-mpi-"))  # readable by this user alone
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "socket"))
        listener.listen(1)
        command = [find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "mpi4py", "-m"]
        environment = {"UCX_LOG_LEVEL": "error"} | os.environ | _ONE_THREAD
        with (folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "umm_hw.mpi.job.worker", str(folder / "socket")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._output = folder / "output"
        self._close = weakref.finalize(self, _end, self._process, folder, connections := [])
        with listener:
            self._connection = self._accept(listener)
        connections.append(self._connection)
        self._connection.send(sys.path)
        self.processes: list[tuple[str, int]] = self._receive(START_WITHIN)
        """Host and process of each rank."""

    def call(self, size: int, program: Any, operands: "Arrays | None" = None) -> list[Any]:
        """Run a program on the first ranks and return what it returned on each.

        Args:
            size: Number of ranks, at most the job's.
            program: A function of a transport that can be pickled.
            operands: Given to the program as ``operands`` on rank 0.

        Raises:
            UmmError: if the job ends meanwhile, saying which rank failed, froze or was killed.
            Exception: the error of the lowest rank, if the program raised on all of them.
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
        return self._close.alive and self._process.poll() is None

    def _accept(self, listener: socket.socket) -> Connection:
        listener.settimeout(LOOK_UP)
        until = monotonic() + START_WITHIN
        while self._process.poll() is None and monotonic() < until:
            try:
                return Connection(listener.accept()[0].detach())
            except TimeoutError:
                continue
        raise self._ended(f"did not start within {START_WITHIN:.0f} s")

    def _receive(self, timeout: float | None) -> Any:
        until = monotonic() + timeout if timeout is not None else float("inf")
        try:
            while not self._connection.poll(LOOK_UP):
                if self._process.poll() is not None:
                    raise EOFError
                if monotonic() > until:
                    raise self._ended(f"took longer than {timeout:g} s")
            return self._connection.recv()
        except (EOFError, ConnectionError):
            raise self._ended("ended early") from None
        except KeyboardInterrupt:
            self.close()
            raise

    def _ended(self, how: str) -> UmmError:
        """End what is left of the job; return an error that says why it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_WITHIN if how == "ended early" else 0)
        said = self._output.read_text(encoding="utf-8", errors="replace")
        self.close()
        why = _reason(said)
        return UmmError(f"the MPI job of {self.size} ranks {how}: {why}")


def find_mpiexec() -> str:
    """Return the mpiexec that belongs to this Python, else the first on the path.

    Raises:
        ExecutorUnavailableError: if there is none.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise ExecutorUnavailableError("executor mpi needs mpiexec; pip install 'umm-sim[mpi]'")
    return found


def _end(process: "subprocess.Popen[bytes]", folder: Path, connections: list[Connection]) -> None:
    """Close the socket, which tells the ranks to end; then end those that do not; remove the files."""
    for connection in connections:
        connection.close()
    for stop in (process.poll, process.terminate, process.kill):
        stop()
        try:
            process.wait(END_WITHIN if connections else 0)
            break
        except subprocess.TimeoutExpired:
            continue
    shutil.rmtree(folder, ignore_errors=True)


def _reason(said: str) -> str:
    """Return in one line why a job ended, from all that mpiexec and the ranks have printed."""
    own = re.findall(r"^error: (.+)$", said, re.MULTILINE)
    if own:
        return str(own[0])
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines or ["it printed nothing"])[-1]
