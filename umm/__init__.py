"""Partition and replicate a distributed matrix multiply: simulate it, run it, compare the two."""

from __future__ import annotations

TYPE_CHECKING = False  # that of typing, whose import would take half the time before the command can be ended
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

# Where each public name lives; a module is imported when one of its names is first used.
_HOMES = {
    "Interval": "umm.interval",
    "Layout": "umm.layouts.layout",
    "Problem": "umm.program.problem",
    "chain": "umm.program.presets",
    "Machine": "umm.machines",
    "machine": "umm.machines",
    "op_list": "umm.plans.multiply.oplist",
    "Schedule": "umm.schedules.schedule",
    "Space": "umm.space",
    "Store": "umm.space",
    "search": "umm.space",
    "collective": "umm.plans.collectives.collective",
    "redistribute": "umm.plans.redistribution.redistribution",
    "peers": "umm.space.peers.peers",
    "sensitivity": "umm.space",
    "sweep": "umm.space",
    "schedule": "umm.algorithms.scheduling",
    "Trace": "umm.traces.trace",
    "model_cost": "umm.policies.model",
    "run": "umm.executor",
    "compare": "umm.comparison",
    "save": "umm.checkpoints",
    "load": "umm.checkpoints",
}

# Modules whose own names are public, such as umm.executor.executor.
_MODULES = ("algorithms", "cost", "errors", "executor", "figures", "jax", "scalapack", "torch")

# What packages that stand on umm offer as its names, by the entry-point group umm.names.
_OFFERED = ("DistributedMatrix", "multiply", "plan")

__all__ = ["__version__", *_HOMES, *_MODULES, *_OFFERED]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"umm.{name}")
    if name in _OFFERED:
        from umm.executor import offered_name

        return offered_name(name)
    if name not in _HOMES:
        raise AttributeError(f"module 'umm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
