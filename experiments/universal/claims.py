"""The paper's statements on figures 2 and 3 as checks of simulated times, each with its margin."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

from experiments.common.published import published
from experiments.universal.curves import EACH, TIE, Curves
from experiments.universal.layers import FAMILIES, H100, PVC, Run
from umm.schedules.table.details import ACCUMULATE, GET

NO_GEMM_SHAPES = "they tie: SGEMM on PVC is published for one shape"
FROM_THE_HOST = "its published times are 7.0 ms and 7.0 ms a thousand rows; the first is B over PCIe"
COPIES_OF_B = (
    "six copies of A and B let Column pass Block; without copies, and with the matrix that stays "
    "chosen for each "
    "batch,"
)
NOTHING_MOVES_BUT_A = "they tie: Column and Inner, the fastest, keep B and C both and move A alone"


class Checked(NamedTuple):
    """How a statement fares.

    Attributes:
        margin: By which share times may change before it falls, below zero if it does not hold; None where
            it is not about times.
        holds: Whether it holds.
        figures: What was seen.
    """

    margin: float | None
    holds: bool
    figures: str


class Claim(NamedTuple):
    """A statement of the paper and how it is checked.

    Attributes:
        name: Machine, layer and number.
        text: What it says.
        machine: Whose times it is checked on.
        check: Returns how it fares; None where nothing here can say.
        why: Why nothing can, or why it does not hold.
        otherwise: Where it is expected not to hold, a check that shows in which case it does.
        given: The number of the machine file that says so, taken from the paper, if one does.
    """

    name: str
    text: str
    machine: str
    check: Callable[[Curves], Checked] | None
    why: str = ""
    otherwise: Callable[[Curves], Checked] | None = None
    given: str = ""


def margin(result: float, figures: str, tie: bool = False) -> Checked:
    """Return a check that holds where the margin is above zero, or no more below it than a tie."""
    return Checked(result, result > (1 - TIE if tie else 0), figures)


def shares(curves: Curves, layer: str, m: int, **where: object) -> str:
    """Return every family's percent of peak, the fastest first."""
    return ", ".join(
        f"{x} {curves.percent(layer, m, curves.best(layer, m, x, **where)[0]):.1f}"
        for x in curves.order(layer, m, **where)
    )


def two_are_best(
    layer: str, *two: str, smallest: bool = False, **where: object
) -> Callable[[Curves], Checked]:
    """Return a check that no other of the paper's families beats either of two, at any batch or the smallest.

    Traditional is left out: it is Block with tiles that fit.
    """

    def check(curves: Curves) -> Checked:
        batches = curves.batches[:1] if smallest else curves.batches
        result = []
        for m in batches:
            times = {x: curves.best(layer, m, x, **where)[0] for x in FAMILIES}
            slower = max(times[x] for x in two)
            result.append(min(times[x] for x in FAMILIES if x not in two) / slower - 1)
        return margin(
            min(result), f"m = {batches[0]}: {shares(curves, layer, batches[0], **where)} % of peak"
        )

    return check


def moves_only_a(curves: Curves) -> Checked:
    """Which matrices move with stationary C where none is copied."""
    result = {x: _moved(x) for x in FAMILIES}
    only = [x for x in FAMILIES if result[x] == "A"]
    return Checked(None, only == ["Column", "Inner"], ", ".join(f"{x} {y}" for x, y in result.items()))


def _moved(family: str) -> str:
    schedule = Run(PVC, "MLP-1", 1024, family, stationary="C").schedule()
    gets, adds = schedule.kind == GET, (schedule.kind == ACCUMULATE) & (schedule.src != schedule.dst)
    got = [x for number, x in enumerate("AB") if (schedule.touched_tiles(number)[gets, 0] >= 0).any()]
    return "".join(got) + ("C" if adds.any() else "")


def block_gains(curves: Curves) -> Checked:
    """Block's share of the peak, from the smallest batch to the largest."""
    result = [curves.percent("MLP-1", m, curves.best("MLP-1", m, "Block")[0]) for m in curves.batches]
    grows = min(y / x for x, y in pairwise(result)) > 1 / TIE and result[-1] > result[0]
    text = " → ".join(f"{x:.1f}" for x in result) + " % of peak"
    return Checked(result[-1] / result[0] - 1, grows, text)


def moving_b_wants_copies(curves: Curves) -> Checked:
    """Row and Outer with stationary C at every batch: how much longer without copies."""
    result = {
        (x, m): curves.best("MLP-1", m, x, stationary="C", ab=1)[0]
        / curves.best("MLP-1", m, x, stationary="C")[0]
        for x in ("Row", "Outer")
        for m in curves.batches
    }
    factors = (
        f"{x} {'/'.join(str(curves.best('MLP-1', m, x, stationary='C')[1].ab) for m in curves.batches)}"
        for x in ("Row", "Outer")
    )
    text = (
        f"c = {', '.join(factors)}; without copies at least {100 * min(result.values()) - 100:.0f} % longer"
    )
    return margin(min(result.values()) - TIE, text)


def column_wants_none(curves: Curves) -> Checked:
    """Column's time with copies over that without."""
    result, texts = [], []
    for m in curves.batches:
        alone = curves.best("MLP-1", m, "Column", ab=1)[0]
        copied = min(curves.best("MLP-1", m, "Column", ab=c)[0] for c in factors_of(curves)[1:])
        result.append(copied / alone - 1)
        texts.append(f"{100 * result[-1]:+.1f}")
    return margin(min(result), f"with copies {'/'.join(texts)} % time", tie=True)


def factors_of(curves: Curves) -> list[int]:
    """Return the replication factors of A and B."""
    return [c for c in range(1, curves.ranks) if curves.ranks % c == 0]


def near_dtensor(layer: str, share: float) -> Callable[[Curves], Checked]:
    """Return a check that the best is at least such a share of DTensor's rate, both simulated."""

    def check(curves: Curves) -> Checked:
        result = []
        for m in curves.batches:
            theirs = [curves.peer(layer, m, f"DTensor-{x}") for x in ("Row", "Column")]
            result.append(min(x for x in theirs if x is not None) / curves.fastest(layer, m))
        text = "DTensor's time over ours: " + ", ".join(f"{x:.2f}" for x in result)
        return margin(min(result) / share - 1, text)

    return check


def stationary_c_is_best(curves: Curves) -> Checked:
    """The time with stationary B over that with C, for Column and Inner."""
    result = [
        curves.best("MLP-1", m, x, stationary="B")[0] / curves.best("MLP-1", m, x, stationary="C")[0] - 1
        for x in ("Column", "Inner")
        for m in curves.batches
    ]
    return margin(min(result), f"with B {100 * min(result):+.1f} % time at least", tie=True)


def copies_help(curves: Curves) -> Checked:
    """The best of all families with copies of A and B against the best without, at the largest batch."""
    m = curves.batches[-1]
    alone, best = curves.fastest("MLP-2", m, ab=1), curves.fastest("MLP-2", m)
    ends = (f"{curves.percent('MLP-2', m, x):.1f}" for x in (alone, best))
    return margin(alone / best - 1, f"m = {m}: " + " % of peak without, ".join(ends) + " % with")


def outer_is_interior(curves: Curves) -> Checked:
    """The fewest copies that tie with Outer's best, stationary B, at the largest batch."""
    m = curves.batches[-1]
    per = {c: curves.best("MLP-2", m, "Outer", ab=c, stationary="B")[0] for c in factors_of(curves)}
    best = curves.best("MLP-2", m, "Outer", stationary="B")[1].ab
    text = ", ".join(f"{c}: {curves.percent('MLP-2', m, x):.1f}" for c, x in per.items())
    return Checked(per[1] / min(per.values()) - 1, best > 1, f"c = {best}; {text} % of peak")


def factors_differ(curves: Curves) -> Checked:
    """Outer's best choice, stationary B, at the largest batch, against the best with one factor for all."""
    m = curves.batches[-1]
    seconds, choice = curves.best("MLP-2", m, "Outer", stationary="B")
    same = min(curves.best("MLP-2", m, "Outer", ab=c, c=c, stationary="B")[0] for c in factors_of(curves))
    return Checked(
        same / seconds - 1, choice.ab != choice.c, f"{choice.ab} of A and B, {choice.c} of C"
    )  # fmt: skip


def accumulate_is_slower(curves: Curves) -> Checked:
    """The bandwidth of an accumulate over that of a get."""
    share, result = (
        curves.machine.accumulate_efficiency,
        published("universal")["accumulate"]["share_of_copy"],
    )
    return Checked(
        1 / share - 1, share == result < 1, f"{100 * share:.0f} % of a get's bandwidth, as published"
    )


def spreads(curves: Curves) -> list[float]:
    """Return the slowest family's time over the fastest's at every batch."""
    return [
        curves.best("MLP-1", m, curves.order("MLP-1", m)[-1])[0] / curves.fastest("MLP-1", m)
        for m in curves.batches
    ]


def outer_prefers_c(curves: Curves) -> Checked:
    """Outer without copies of A and B, at the largest batch: the cost of accumulates to the GEMM."""
    return _b_against_c(curves, lambda m, x: curves.best("MLP-2", m, "Outer", ab=1, stationary=x)[0])


def c_wins(curves: Curves) -> Checked:
    """The fastest family without copies of A and B, at the largest batch."""
    return _b_against_c(curves, lambda m, x: curves.fastest("MLP-2", m, ab=1, stationary=x))


def _b_against_c(curves: Curves, seconds: Callable[[int, str], float]) -> Checked:
    m = curves.batches[-1]
    b, c = (seconds(m, x) for x in "BC")
    text = " % of peak with S-B, ".join(f"{curves.percent('MLP-2', m, x):.1f}" for x in (b, c))
    return margin(b / c - TIE, f"{text} % with S-C")


def claims(pvc_spread: float) -> Iterator[Claim]:
    """Yield the statements in the paper's order.

    Args:
        pvc_spread: The mean spread of MLP-1 on PVC.
    """
    one, two = "PVC MLP-1", "PVC MLP-2"
    yield Claim(f"{one} (1)", "Column and Inner are best", PVC, two_are_best("MLP-1", "Column", "Inner"))
    yield Claim(f"{one} (2)", "both move only A", PVC, moves_only_a)
    yield Claim(f"{one} (3)", "Column beats Inner by its GEMM shapes", PVC, None, NO_GEMM_SHAPES)
    yield Claim(f"{one} (4)", "Block gains as m grows", PVC, block_gains)
    yield Claim(f"{one} (5)", "layouts that move B prefer c > 1", PVC, moving_b_wants_copies)
    yield Claim(f"{one} (6)", "Column prefers c = 1", PVC, column_wants_none)
    yield Claim(f"{one} (7)", "the best is at or above DTensor", PVC, near_dtensor("MLP-1", 1.0))
    yield Claim(f"{one} (8)", "Inner and Column are best with stationary C", PVC, stationary_c_is_best)
    outer, alone = (
        two_are_best("MLP-2", "Outer", "Block"),
        two_are_best("MLP-2", "Outer", "Block", ab=1, stationary=EACH),
    )
    yield Claim(f"{two} (1)", "Outer and Block are best", PVC, outer, COPIES_OF_B, alone)
    yield Claim(f"{two} (2)", "higher replication helps", PVC, copies_help)
    yield Claim(f"{two} (3)", "Outer's best c is neither 1 nor p", PVC, outer_is_interior)
    yield Claim(f"{two} (4)", "C's best factor differs from A's and B's", PVC, factors_differ)
    yield Claim(f"{two} (5)", "within 5 % of DTensor", PVC, near_dtensor("MLP-2", 0.95))
    slower = "an accumulate is slower than a get"
    yield Claim(f"{two} (6)", slower, PVC, accumulate_is_slower, given="devices.accumulate_efficiency")

    def smaller(curves: Curves) -> Checked:
        values = spreads(curves)
        each = ", ".join(f"{x:.2f}" for x in values)
        average = mean(values)
        figures = (
            f"slowest over fastest {average:.2f} in the mean over batches ({each}), on PVC {pvc_spread:.2f}"
        )
        return margin(pvc_spread / average - 1, figures)

    yield Claim("H100 MLP-1 (1)", "layouts differ less than on PVC", H100, smaller)
    small = two_are_best("MLP-1", "Column", "Inner", smallest=True)
    yield Claim("H100 MLP-1 (2)", "Column and Inner are best at small m", H100, small)
    yield Claim("H100 MLP-1 (3)", "COSMA is poor", H100, None, FROM_THE_HOST)
    yield Claim("H100 MLP-2 (1)", "Outer with stationary B is poor (not copied)", H100, outer_prefers_c)
    yield Claim("H100 MLP-2 (2)", "stationary C wins (not copied)", H100, c_wins, NOTHING_MOVES_BUT_A)
