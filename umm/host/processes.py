"""Processes of this host as Linux lists them, and what may be asked of the system for one's own."""

import ctypes
import os
import signal
import sys
from pathlib import Path

# What prctl calls PR_SET_PDEATHSIG, PR_SET_NAME and PR_SET_CHILD_SUBREAPER.
_PARENT_DEATH_SIGNAL, _NAME, _CHILD_SUBREAPER = 1, 15, 36
_PROC = Path("/proc")


def children(number: int) -> list[int]:
    """Return the children of a process; none where the system does not list them."""
    folder = _PROC / str(number)
    try:
        return [int(x) for tasks in folder.glob("task/*/children") for x in tasks.read_text().split()]
    except OSError:  # it has ended meanwhile
        return []


def descendants(ancestor: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    found = children(ancestor)
    for number in found:
        found += children(number)
    return found


def is_dead(number: int) -> bool:
    """Whether a process has ended; its parent may not have asked how."""
    return _stat(number)[0] in "ZX"


def faults_of_lost_children(number: int) -> int:
    """Return the page faults of a process's children that have ended and whose exit it has asked for.

    Nobody lists such a child, but every program has some faults (proc(5): cminflt): where the number grows,
    a child was lost. A process keeps the number when it becomes another program.
    """
    return int(_stat(number)[8])


def is_proxy(number: int) -> bool:
    """Whether a process is the one of Hydra, MPICH's mpiexec, whose children are the ranks of a host."""
    try:
        return (_PROC / str(number) / "comm").read_text(errors="replace").startswith("hydra")
    except OSError:
        return False


def die_with(parent: int) -> None:
    """Have the system kill this process when its parent dies."""
    _ask(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Have the system make this process the parent of its descendants whose parents have died."""
    _ask(_CHILD_SUBREAPER, 1)


def shown_as() -> str:
    """Return what the system shows this process as."""
    return (_PROC / "self" / "comm").read_text(errors="replace").strip()


def show_as(name: str) -> None:
    """Have the system list this process by another name, of at most 15 letters."""
    _ask(_NAME, name.encode())


def _stat(number: int) -> list[str]:
    """Return what the system says of a process from its state on (proc(5)); one that is gone is dead."""
    try:
        return (_PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ["X", *["0"] * 50]


def _ask(what: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(what, value, 0, 0, 0)
