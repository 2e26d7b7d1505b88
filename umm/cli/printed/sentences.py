"""What a search found in sentences: the budget, the space, what ties, and of what it is proven best."""

from collections.abc import Sequence

from umm.algorithms.universal.options import known
from umm.program.problem import MATRICES
from umm.space import Choice, Found, Space
from umm.units import format_bytes


def budget(found: Found) -> str:
    """Return the most a rank may hold, in words."""
    device, share = found.device, found.limit / found.points.share
    if found.limit == device:
        return f"At most {format_bytes(device)} a rank, all it has of its device ({share:.3g}x)."
    if found.reserves:
        return f"At most {format_bytes(found.limit)} a rank: 90 % of its device's {format_bytes(device)}."
    return f"At most {format_bytes(found.limit)} a rank ({share:.3g}x)."


def bring_in_words(found: Found) -> str:
    """Return what the column of bringing operands says, and where they lie."""
    given = found.points.given
    if given:
        words = ", ".join(f"{x} {'to' if x == 'C' else 'from'} {layout}" for x, layout in given.items())
        return f"move: the time to move {words}, part of the makespan."
    return (
        "Assumes A, B and C start in the layouts shown; move is the extra time if they start, and C ends, "
        "in row."
    )


def proof(found: Found) -> str:
    """Return one line on how many points were looked at, and of what the best is proven to be the best."""
    space, simulated = found.space, len(found.pricer.choices)
    if not found.proven:
        return (
            f"Not proven: {found.distinct:,} points priced, {found.pruned:,} ruled out, "
            f"{found.simulated} simulated."
        )
    return (
        f"Proven best of {found.distinct:,} in this model, to {100 * found.tolerance:.1g} %: "
        f"{space_in_words(space)}. {found.distinct - simulated:,} ruled out by bounds, {simulated} simulated."
    )


def space_in_words(space: Space) -> str:
    """Return what a space has, in a line.

    >>> space_in_words(Space(m=64, n=64, k=64, ranks=4, a="row", b="row", c="col", prefetch=(1, 2)))
    'A row, B row, C col; stationary A, B, C; prefetch 1, 2'
    """
    written = dict(space.layouts)
    each = {x: ", ".join(written.get(x, ("all",))) for x in MATRICES}
    grids = " on every process grid" if space.grids == "all" else ""
    factors = "every replication factor" if space.replication is None else f"@{space.replication}"
    family = f"{', '.join(space.partitions)}{grids} with {factors}"
    if "interleaved" in space.orders:
        family += f", {' and '.join(space.orders)}"
    if set(each.values()) == {"all"}:
        layouts = family
    else:
        whole = f" of {family}" if "all" in each.values() else ""
        layouts = ", ".join(f"{x} {texts}" for x, texts in each.items()) + whole
    parts = [layouts, f"stationary {', '.join(space.stationary)}"]
    for option, values in zip(known(), space.axes.values, strict=True):
        if len(values) > 1:
            words = ", ".join(str(x) for x in values)
            spoken = [option.words(x) for x in values]
            parts.append(", ".join(spoken) if option.name == "granularity" else f"{option.name} {words}")
    return "; ".join(parts)


def ties(found: Found, rows: Sequence[Choice]) -> str:
    """Return which of some rows tie with the fastest, and what would decide, in words."""
    fastest = min(rows, key=lambda x: x.makespan_s)
    numbers = {number: x for number, x in enumerate(rows, 1) if found.sure.tie(fastest, x)}
    if len(numbers) == 1:
        (number,) = numbers
        return f"Row {number} is fastest anywhere within the machine file's uncertainties."
    said = _in_a_row(list(numbers))
    rival = min(numbers, key=lambda number: found.sure.lead(fastest, numbers[number]))
    first = next(number for number, x in numbers.items() if x == fastest)
    lead = found.sure.lead(fastest, numbers[rival])
    if lead < -found.tolerance:
        return (
            f"{said} tie: within the machine file's uncertainties {rival} may be {-100 * lead:.0f} % faster "
            f"than {first}; measure these two to decide."
        )
    least = min(numbers, key=lambda number: numbers[number].memory_bytes)
    return (
        f"{said} tie, within {100 * found.tolerance:.1g} % anywhere in the machine file's uncertainties; "
        f"{least} needs the least memory."
    )


def _in_a_row(numbers: Sequence[int]) -> str:
    """Return ascending numbers in words.

    >>> _in_a_row([1, 2, 3]), _in_a_row([1, 3, 4])
    ('1 to 3', '1, 3 and 4')
    """
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}"
