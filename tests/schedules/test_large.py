"""Problems of exabytes: sizes beyond 64 bits are refused, and not counted wrong."""

import pytest

import umm
from umm.errors import ScheduleError

HUGE = {"dtype": "float64", "ranks": 12}
MOST = 2**63


def lowered(m, n, k, a, b, c, **options):
    problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, **HUGE)
    return umm.schedule(problem, "pvc-12", **options)


def test_a_pool_beyond_64_bits_is_refused_when_it_is_asked_for():
    """4,096 multiplies may hold 2 EiB each; their sum came out as a negative number."""
    made = lowered(1, 2**29, 2**29, "row", "col@4", "col@12", stationary="A", max_gemms=4096)
    assert sum(map(int, made.pools[0])) > MOST
    for asked in ("pool_bytes", "memory_bytes"):
        with pytest.raises(
            ScheduleError, match=r"the pool of a rank would take 3.15e\+21 bytes; 64 bits count"
        ):
            getattr(made, asked)


def test_transfers_beyond_64_bits_are_refused():
    with pytest.raises(ScheduleError, match=r"its transfers would move .*e\+19 bytes in all"):
        lowered(2**29, 2**29, 1, "col@12", "col@12", "row@12", stationary="B", final="reduce-scatter")
    with pytest.raises(ScheduleError, match="its transfers would move"):
        umm.collective("all-gather", nbytes=2**60, machine="pvc-12", algorithm="ring")


def test_what_64_bits_count_is_counted_right():
    made = lowered(2**29, 2**29, 1, "row", "row", "row")
    assert made.pool_bytes.tolist() == [sum(map(int, pool)) for pool in made.pools]
    assert 0 < made.memory_bytes.max() < MOST
