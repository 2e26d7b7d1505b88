"""The regret of choices between ways to multiply, from rows of two products."""

from experiments.cpu.choices import drawn, table


def rows(number, *options):
    for option, even, odd in options:
        yield {"ranks": "2", "number": str(number), "option": option, "even": str(even), "odd": str(odd)}


def test_regret_is_against_the_quickest_way_of_each_product():
    """umm takes the best of both; DTensor's ways take 1.5 and 2 times as long: √3 − 1, and 7/4 − 1 in all."""
    one = rows(0, ("DTensor: split k", 3, 3), ("umm: gather B", 2, 2), ("gather B", 2, 2), ("split k", 3, 3))
    two = rows(1, ("DTensor: gather A", 4, 4), ("umm: in place", 2, 2), ("gather A", 4, 4))
    head, dtensor, umm, gather_a, *_ = table([*one, *two])
    assert " ".join(head.split()) == "2 ranks, 2 products at most in all > 5 % crossed in all"
    assert dtensor.split() == ["DTensor", "73.2%", "75.0%", "100.0%", "73.2%", "75.0%"]
    assert umm.split() == ["umm", "0.0%", "0.0%", "0.0%", "0.0%", "0.0%"]
    assert gather_a.split()[:4] == ["always", "gather", "A", "73.2%"]  # as DTensor where it was not timed


def test_luck_counts_at_most_and_is_gone_when_halves_are_crossed():
    """The other way was quick in one half: 2 against 1 at most; crossed 2 against 2 and 2 against 4."""
    (_, _, umm, *_) = table([*rows(0, ("DTensor: a", 4, 1), ("umm: b", 2, 2), ("a", 4, 1), ("b", 2, 2))])
    assert umm.split()[1:] == ["100.0%", "100.0%", "100.0%", "-29.3%", "-33.3%"]


def test_a_product_is_the_same_when_it_is_drawn_again():
    assert drawn(7, 4) == drawn(7, 4)
    assert {drawn(number, 4)[0] for number in range(30)} == {"mm", "addmm", "bmm"}
