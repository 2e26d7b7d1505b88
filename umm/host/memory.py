"""How much memory this host has free, as far as the system and its control group tell."""

import os
from pathlib import Path

UNKNOWN = 2**62  # bytes: nothing tells of a limit
_CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Return the bytes that programs here can still take."""
    return min(_available(), _within_cgroup())


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return 1024 * kib


def _within_cgroup() -> int:
    """Return what the control group allows beyond what is in use; a cache of files gives way."""
    try:
        most = (_CGROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text("ascii").splitlines())
        return UNKNOWN if most == "max" else max(0, int(most) - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return UNKNOWN
