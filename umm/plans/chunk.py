"""A multiply in parts, of which the next comes, or the last is summed, while one is multiplied."""

from collections.abc import Sequence
from dataclasses import replace

from umm.plans.hoist import follower_of
from umm.plans.join import summed_with_next
from umm.plans.movement.multiply import Gathered
from umm.plans.partition import Ways
from umm.plans.share import gathers_anew
from umm.program import Statement


def whole_where_hidden(statements: Sequence[Statement], ways: Ways) -> dict[int, Gathered]:
    """Return the ways with those multiplies in one piece that sum nothing and whose operands are there."""
    # Chunks hide what comes while they are multiplied. What an earlier multiply gathered, or gathers ahead
    # while it multiplies, is hidden already, and smaller multiplies only take longer.
    if all(how.chunks == 1 for how in ways.values()):
        return dict(ways)
    anew = gathers_anew(statements, ways)
    ahead = {follower_of(statements, ways, number) for number in ways}

    def hides(number: int, how: Gathered) -> bool:
        # The sum of one chunk hides behind the next; joined multiplies sum only after the last of them.
        if how.sums.groups:
            return not summed_with_next(statements, ways, number)
        # A gather that the multiply before hides gains nothing from chunks.
        return bool(anew[number]) and number not in ahead

    return {
        number: how if how.chunks == 1 or hides(number, how) else replace(how, chunks=1, turns={})
        for number, how in ways.items()
    }
