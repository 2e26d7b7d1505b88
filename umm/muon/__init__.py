"""Muon: where each weight's momentum is orthogonalised, priced, balanced over ranks, and as a program."""

from typing import Any

__all__ = ["Grid", "Matrix", "plan", "update"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    homes = {"Grid": "weights", "Matrix": "weights", "plan": "planning"}
    if name in homes:
        return getattr(import_module(f"umm.muon.{homes[name]}"), name)
    if name == "update":
        from umm.executor import offered_name

        return offered_name("muon.update")
    raise AttributeError(f"module 'umm.muon' has no attribute {name!r}")
