"""Questions that take longer than a page may: each in its own process, of every viewer only the newest."""

import atexit
import gc
import os
import select
import shutil
import signal
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

AT_ONCE = 3
MAX_KEPT = 32
PATIENCE = 5.0  # seconds
WAITED = 0.4  # seconds that a page waits for the first message
NICE = 4  # how far what is found behind a page steps back after that, as of nice
FAILED = "the search process ended early; reload the page to try again"
Send = Callable[[Any], None]
_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["umm.explorer.search", "umm_sim.executor", "numpy.ma"])  # np.unique needs it


class Question(ABC):
    """A question to a process, answered message by message."""

    def __init__(self) -> None:
        self.done = False  # whether all is found out
        self.failed = ""  # why it ended before; empty if it did not
        self.heard = threading.Event()  # set when the first message has come, or none will

    @abstractmethod
    def asked(self) -> tuple[Any, ...]:
        """Return the process's function, and its arguments after the one that sends a message."""

    @abstractmethod
    def take(self, message: Any) -> None:
        """Take in a message of the process."""

    @property
    def over(self) -> bool:
        """Whether nothing more will be found out."""
        return self.done or bool(self.failed)


class Single(Question):
    """The question of one function's result."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__()
        self._asked = function, *arguments
        self.found: Any = None  # the result, once there is one; None before

    def asked(self) -> tuple[Any, ...]:
        """Return the process's function and arguments."""
        return look, *self._asked

    def take(self, message: Any) -> None:
        """Take in the answer."""
        self.found = message


def look(send: Send, function: Callable[..., Any], *arguments: Any) -> None:
    """Send a function's result; it runs in a process."""
    send(function(*arguments))


def get_ready() -> None:
    """Start the process that others fork from, which imports their modules for a second."""
    ensure_running()


Q = TypeVar("Q", bound=Question)


class Behind:
    """All questions of all viewers, those that were asked last kept with their answers."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Question] = OrderedDict()
        self._wanted: OrderedDict[Hashable, Question] = OrderedDict()  # by viewer, who was seen last is last
        self._seen: dict[Hashable, float] = {}
        self._cancelled: dict[Hashable, Question] = {}
        self._running: dict[Question, _Run] = {}
        self._lock = threading.RLock()

    def of(self, key: Hashable, make: Callable[[], Q]) -> Q:
        """Return the question of a key with its answer so far; it may not have been asked yet."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            question = self._kept[key]
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
            return question  # type: ignore[return-value]

    def forget_failed(self) -> None:
        """Keep no question whose process ended early, so that it is asked anew."""
        with self._lock:
            for key in [key for key, question in self._kept.items() if question.failed]:
                del self._kept[key]

    def want(self, viewer: Hashable, question: Question) -> None:
        """Ask a question for a viewer, in place of the one before, or say that the viewer still waits for it.

        Who is not heard of for some seconds makes room for others.
        """
        with self._lock:
            if self._cancelled.get(viewer) is question:
                return
            self._cancelled.pop(viewer, None)
            self._wanted[viewer] = question
            self._wanted.move_to_end(viewer)
            self._seen[viewer] = monotonic()
            self._settle()

    def leave(self, viewer: Hashable, question: Question | None) -> None:
        """End a viewer's earlier questions, except this one, which is asked later."""
        with self._lock:
            if self._wanted.get(viewer) not in (None, question):
                del self._wanted[viewer], self._seen[viewer]
                self._settle()

    def cancel(self, viewer: Hashable) -> None:
        """Leave a viewer's question as it is, until the viewer wants another."""
        with self._lock:
            question = self._wanted.pop(viewer, None)
            self._seen.pop(viewer, None)
            if question is not None:
                self._cancelled[viewer] = question
                while len(self._cancelled) > MAX_KEPT:
                    self._cancelled.pop(next(iter(self._cancelled)))
            self._settle()

    def has_cancelled(self, viewer: Hashable, question: Question) -> bool:
        """Return whether a viewer wants no more of a question."""
        with self._lock:
            return self._cancelled.get(viewer) is question

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._wanted.clear()
            self._settle()

    def _settle(self) -> None:
        """Stop abandoned questions and start queued ones up to the limit."""
        for viewer, question in list(self._wanted.items()):
            gone = len(self._wanted) > AT_ONCE and monotonic() - self._seen[viewer] > PATIENCE
            if question.over or gone:
                del self._wanted[viewer], self._seen[viewer]
        wanted = list(dict.fromkeys(self._wanted.values()))
        for question in [x for x in self._running if x not in wanted]:
            self._running.pop(question).end()
        for question in [x for x in wanted if x not in self._running][: AT_ONCE - len(self._running)]:
            run = self._running[question] = _Run()
            threading.Thread(target=self._perform, args=(question, run), daemon=True).start()

    def _perform(self, question: Question, run: "_Run") -> None:
        """Take in a process's messages until it ends, then start queued questions."""
        try:
            code = run.through(question)
        except (OSError, RuntimeError):  # no more processes, threads or files can be had
            code = None
        with self._lock:
            if self._running.get(question) is run:
                del self._running[question]
                question.done = code == 0
                question.failed = "" if question.done else FAILED
                question.heard.set()
                self._settle()


class _Run:
    """A process, which may have to end before it has begun."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._ended = False
        self._lock = threading.Lock()

    def end(self) -> None:
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.terminate()

    def through(self, question: Question) -> int | None:
        """Begin it, hand its messages to the question, and return its exit code."""
        receiver, sender = _CONTEXT.Pipe(duplex=False)
        with receiver:
            process = _CONTEXT.Process(target=_answer, args=(sender, *question.asked()), daemon=True)
            with sender:
                process.start()  # the first waits until the server of forks has imported all
            with self._lock:
                self._process = process
                if self._ended:
                    process.terminate()
            with suppress(EOFError, OSError):
                receiver.poll(WAITED)
                # Lower the priority of a process below the page and its browser, where the system can.
                if process.pid is not None and hasattr(os, "setpriority"):
                    with suppress(OSError):
                        priority = os.getpriority(os.PRIO_PROCESS, 0)
                        os.setpriority(os.PRIO_PROCESS, process.pid, priority + NICE)
                while True:
                    question.take(receiver.recv())
                    question.heard.set()
            process.join()
        return process.exitcode


def _answer(connection: Connection, function: Callable[..., None], *arguments: Any) -> None:
    """Run in the process: answer a question; a page that has gone ends it."""
    gc.freeze()  # what was there before the fork is not looked through for garbage
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the page too, which ends this process
    watch = select.poll()
    watch.register(connection.fileno(), 0)  # errors alone are waited for

    def end_with_page() -> None:
        """End this process when nobody reads its answers any more: the page was killed meanwhile."""
        if any(event & select.POLLERR for _, event in watch.poll()):
            os._exit(1)

    threading.Thread(target=end_with_page, daemon=True).start()
    with connection, suppress(BrokenPipeError):
        function(connection.send, *arguments)


def _drop_folder_at_end() -> None:
    """Have the process that others fork from remove the folder of its socket, which a killed page leaves."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            if connection.family == socket.AF_UNIX and connection.getsockopt(
                socket.SOL_SOCKET, socket.SO_ACCEPTCONN
            ):
                folder = Path(os.fsdecode(connection.getsockname())).parent
                if folder.name.startswith("pymp-"):
                    atexit.register(shutil.rmtree, folder, ignore_errors=True)


if sys.platform == "linux" and any("multiprocessing.forkserver" in text for text in sys.orig_argv):
    _drop_folder_at_end()
