"""Which model has priced a run: a hash of the code that lays out, writes, prices and simulates schedules."""

from functools import lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from umm.files import MOST_TEXT, read_bytes

PACKAGES = ("umm", "umm_sim")
SHOWING = ("checkpoints", "cli", "emit", "explorer", "figures", "topologies", "torch")
"""Packages of umm that no run depends on. Machine files count by the run's own ``machine_sha``."""
ENDINGS = (".py", ".toml")


@lru_cache(maxsize=1)
def model_digest() -> str:
    """Return the digest of the model of this process, the same for a clone and for its wheels.

    What C computes is equal to the last bit to the Python beside it, so that does not count.

    >>> len(model_digest())
    12
    """
    digest = blake2b(digest_size=6)
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        for name, path in _sources(Path(spec.origin).parent):
            # Zero bytes keep names and contents apart; line ends are unified because a checkout on Windows
            # may have changed them.
            digest.update(
                f"{package}/{name}\0".encode() + read_bytes(path, MOST_TEXT).replace(b"\r\n", b"\n") + b"\0"
            )
    return digest.hexdigest()


def _sources(folder: Path) -> list[tuple[str, Path]]:
    """Return the names and paths of a package's sources, sorted by name on every system."""
    paths = {path.relative_to(folder): path for ending in ENDINGS for path in folder.rglob(f"*{ending}")}
    return sorted((x.as_posix(), path) for x, path in paths.items() if x.parts[0] not in SHOWING)
