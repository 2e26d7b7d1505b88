"""How much of this host's caches each core has, as far as the system tells."""

from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def cache_of_core() -> int:
    """Return a core's share of the largest cache that it reads through, in bytes; 0 if nothing tells."""
    return max((_share(index) for index in _CACHES.glob("index*")), default=0)


def _share(index: Path) -> int:
    try:
        size = (index / "size").read_text(encoding="ascii").strip()
        cores = _count((index / "shared_cpu_list").read_text(encoding="ascii").strip())
        return int(size.removesuffix("K")) * 1024 // cores if size.endswith("K") else 0
    except (OSError, ValueError, ZeroDivisionError):
        return 0


def _count(listed: str) -> int:
    """Return how many a list such as ``0-1,4`` names.

    >>> _count("0-1,4")
    3
    """
    ends = [[int(x) for x in part.split("-")] for part in listed.split(",")]
    return sum(part[-1] - part[0] + 1 for part in ends)
