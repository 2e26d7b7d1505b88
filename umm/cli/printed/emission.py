"""The winner of a search as a program in a framework."""

from umm.emit.program import emit
from umm.space import Choice
from umm.units import format_bytes, format_seconds


def program_of(choice: Choice, machine: str, target: str) -> str:
    """Return a program that sets up a point of a space.

    Args:
        choice: The point.
        machine: Name or file of the machine it was found for.
        target: ``torch``, ``jax`` or ``umm``.

    Raises:
        InputError: for layouts that the framework cannot have, naming the property.
    """
    note = (
        f"umm predicts {format_seconds(choice.makespan_s)} on {machine}, "
        f"{choice.fraction_of_peak:.1%} of peak, {format_bytes(choice.memory_bytes)} a rank."
    )
    return emit(target, choice.problem, machine, choice.kept, choice.options.to_dict(), note)
