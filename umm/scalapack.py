"""PDGEMM for programs that hold block-cyclic matrices already: ``from umm.scalapack import pgemm``."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name not in ("panels", "pgemm"):
        raise AttributeError(f"module 'umm.scalapack' has no attribute {name!r}")
    from umm.executor import offered_name

    return getattr(offered_name("scalapack"), name)


def __dir__() -> list[str]:
    return ["panels", "pgemm"]
