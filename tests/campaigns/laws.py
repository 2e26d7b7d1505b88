"""``python -m tests.campaigns.laws``: laws over whole answers, on random realistic questions.

Each case draws a law and a question; points of spaces that a search might leave out are checked against
their bounds besides. Exit status 1 if one does not hold.
"""

import argparse
import random
import sys
import time
from collections import Counter

from checked_bounds import check_bounds
from drawn_spaces import drawn_point
from laws import LAWS, RefusedError

EVERY = 50
"""Questions after which a line says how far the campaign is, so that a later run goes on from there."""


def no_bound_is_above_a_makespan(rng):
    """Of a random point of a random space."""
    drawn = drawn_point(rng, decode=rng.random() < 0.2)
    if drawn is None:
        raise RefusedError
    try:
        drawn.pricer.simulated(drawn.place, drawn.pricer.bound(drawn.place))
    except AssertionError as wrong:
        return f"{wrong}: {drawn.words}"
    return ""


def main() -> int:
    """Ask, print broken laws with their commands, and return the exit status."""
    laws = {law.__name__: law for law in (*LAWS, no_bound_is_above_a_makespan)}
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.laws", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--cases", type=int, default=300, help="how many cases")
    parser.add_argument("--law", choices=[*laws], action="append", help="this law; all if not given")
    asked = parser.parse_args()
    check_bounds(setattr)
    names, counts, broken = asked.law or [*laws], Counter(), 0
    for number in range(asked.seed, asked.seed + asked.cases):
        before = number - asked.seed
        if before and before % EVERY == 0:
            print(f"{before} asked, {broken} do not hold; next: --seed {number}", file=sys.stderr, flush=True)
        name = names[number % len(names)]
        began = time.process_time()
        try:
            wrong = laws[name](random.Random(number))
            counts[name] += 1
        except RefusedError:
            counts["refused"] += 1
            continue
        except AssertionError as error:
            wrong = str(error)
        if wrong:
            broken += 1
            took = time.process_time() - began
            print(f"case {number}, {name} ({took:.0f} s): {wrong}", flush=True)
    print(f"{asked.cases} cases from seed {asked.seed}: {broken} do not hold")
    print("  " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items())))
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
