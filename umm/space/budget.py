"""Memory budgets: ``--memory`` in bytes, and a rank's share of its device."""

import math
import re
from collections import Counter

from umm.errors import InputError
from umm.files import real_number, shown
from umm.machines import Machine
from umm.numbers import as_int, real_in
from umm.program.tensors import LARGEST
from umm.units import format_bytes, parse_bytes, percent

DEVICE = "device"
"""The budget of a search where nothing is said: what a rank has of its device, less the reserve."""

RESERVE = 0.1
"""Share of a device left to what else a job keeps there: contexts, workspaces of libraries, other tensors.

A choice of this project, the same that vLLM makes (``gpu_memory_utilization = 0.9``).
"""


_MULTIPLE = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*x")


def bytes_of_budget(budget: str | int | None, share: float) -> int | None:
    """Return the bytes a rank may allocate; InputError for another form, or a budget that is not above 0.

    Args:
        budget: Bytes (``16GiB``, or a number that is no text), a multiple of a share (``2x``), or None for no
            limit.
        share: Bytes of ``1x``: the unreplicated share, (|A| + |B| + |C|) / p.

    >>> bytes_of_budget("2x", 12288)
    24576
    """
    if budget is None:
        return None
    if isinstance(budget, str):
        if re.fullmatch(r"[0-9]{1,6}", budget.strip()):  # nobody means so few bytes
            raise InputError(
                f"memory {shown(budget)} has no unit; write {budget.strip()}GiB, {budget.strip()}x or "
                f"{budget.strip()}B"
            )
        multiple = _MULTIPLE.fullmatch(budget.strip())
        times = real_in(multiple[1]) if multiple else None
        # An absurd multiple goes on to parse_bytes, whose error names the forms there are.
        if times is not None and times * share < LARGEST:
            # What a map says as bytes / share comes back as its bytes.
            budget = math.floor(times * share * (1 + 2**-50))
        else:
            try:
                budget = parse_bytes(budget)
            except InputError:
                raise InputError(
                    f"memory {shown(budget)} is not a budget; write it like 2x or 16GiB"
                ) from None
    number = float(budget) if isinstance(budget, float) else as_int(budget)
    real_number(number, "memory")
    if number <= 0:
        raise InputError(f"memory {number} is not a budget; it must be above 0")
    return int(number)


def limit_of(budget: str | int | None, share: float, machine: Machine, ranks: int) -> int:
    """Return the bytes a rank may allocate on a machine, never more than it has of its device.

    InputError for a budget in another form.

    Args:
        budget: As :func:`bytes_of_budget` takes it; ``device`` for what the device has less the reserve, None
            for all of it.
        share: Bytes of ``1x``.
    """
    device = device_share(machine, ranks)
    if budget == DEVICE:
        return usual_limit(device)
    limit = bytes_of_budget(budget, share)
    return device if limit is None else min(limit, device)


def device_share(machine: Machine, ranks: int) -> int:
    """Return the bytes each rank has where the most ranks share a device."""
    # Ranks may not divide evenly over devices: the fullest one sets the limit for all.
    sharing = Counter(machine.device_of(rank, ranks) for rank in range(ranks))
    return machine.memory // max(sharing.values())


def usual_limit(device: int) -> int:
    """Return the bytes a rank may allocate where nothing is said: its share of a device less the reserve."""
    return math.floor(device * (1 - RESERVE))


def over_limit(memory: int, device: int) -> str:
    """Return a note on a rank above the default limit; empty for one below.

    >>> over_limit(70 << 30, 80 << 30), over_limit(73 << 30, 80 << 30)
    ('', '; more than 72.0 GiB, 90 % of its device')
    """
    limit = usual_limit(device)
    share = f"{percent(1 - RESERVE)} of its device"
    return f"; more than {format_bytes(limit)}, {share}" if memory > limit else ""
