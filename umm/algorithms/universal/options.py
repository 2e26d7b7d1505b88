"""The choices of a schedule beyond its problem: what --prefetch, --offset and their like set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umm.algorithms.universal.oplist import OFFSETS
from umm.errors import ScheduleError
from umm.units import counted

# More in flight than this helps nobody, and each takes a slot or a lane of every rank.
MOST = 4096


@dataclass(frozen=True)
class Options:
    """How ops become actions; the defaults are those of the paper's direct execution.

    Attributes:
        policy: What orders the actions: direct, or a policy that lowers to IR.
        prefetch: Ops ahead whose tiles are fetched, d ≥ 0.
        max_gemms: Gemms in flight, g ≥ 1.
        max_accumulates: Accumulates in flight, s ≥ 1.
        offset: Iteration offset: none, index or rotate.
        granularity: A get moves the whole ``tile`` or the ``slice`` its op needs.
        reuse: The next op that needs the same range does not get it again.
        final: ``reduce`` leaves a replicated C complete in its origin; ``broadcast`` in every replica.
    """

    policy: str = "direct"
    prefetch: int = 2
    max_gemms: int = 2
    max_accumulates: int = 2
    offset: str = "index"
    granularity: str = "tile"
    reuse: bool = True
    final: str = "reduce"

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        for name, least in (("prefetch", 0), ("max_gemms", 1), ("max_accumulates", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
                raise ScheduleError(
                    f"{name} = {value!r} is not possible; it must be a whole number ≥ {least} and ≤ {MOST}"
                )
        for name, choices in (
            ("offset", OFFSETS),
            ("granularity", ("tile", "slice")),
            ("final", ("reduce", "broadcast")),
        ):
            if getattr(self, name) not in choices:
                raise ScheduleError(
                    f"{name} {getattr(self, name)!r} is unknown; choose from {', '.join(choices)}"
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the choices as plain values."""
        return dict(vars(self))


def in_words(options: Mapping[str, Any]) -> str:
    """Return the choices of a schedule in words; those it does not know are left out.

    >>> in_words(Options(prefetch=1, max_gemms=1).to_dict())
    'direct, prefetch 1, 1 gemm in flight, 2 accumulates, offset index, whole tiles'
    """
    o = options
    gets = {"tile": "whole tiles", "slice": "slices"}
    words = [
        str(o.get("policy", "")),
        f"prefetch {o['prefetch']}" if "prefetch" in o else "",
        f"{counted(o['max_gemms'], 'gemm')} in flight" if "max_gemms" in o else "",
        counted(o["max_accumulates"], "accumulate") if "max_accumulates" in o else "",
        f"offset {o['offset']}" if "offset" in o else "",
        gets.get(o.get("granularity", ""), ""),
        "" if o.get("reuse", True) else "no reuse",
        f"within {100 * o['gap']:.2g} % of the best steps" if "gap" in o else "",
    ]
    return ", ".join(word for word in words if word)
