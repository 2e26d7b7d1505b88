"""``python -m experiments.universal.claims``: the paper's statements on its two figures, at full size.

Every family of layouts is simulated with every replication factor and stationary B and C, at four batch
sizes, on the recommended model of PVC and on H100. A statement is checked on the times, and again with every
assumed number of the machine file halved and doubled.
"""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import umm
from umm.errors import MachineError
from umm.executor import executor
from umm.machines import Fact, Machine
from umm.machines.files import shipped_folder
from umm.machines.settings import with_settings
from umm.schedules.kinds import ACCUMULATE, GET

HERE = Path(__file__).parent
BATCHES = (1024, 2048, 4096, 8192)
SIZES = {"MLP-1": (49152, 12288), "MLP-2": (12288, 49152)}
FAMILIES = {
    "Row": ("row", "row", "row"),
    "Column": ("col", "col", "col"),
    "Block": ("2d", "2d", "2d"),
    "Inner": ("row", "col", "col"),
    "Outer": ("col", "row", "row"),
}
TIE = 1.01  # times within one percent are told apart by nobody
PVC, H100 = "pvc-12-planes", "h100-8"
makespan = executor("sim").makespan


class Choice(NamedTuple):
    """A replication factor of A and B, one of C, and the matrix that stays."""

    ab: int
    c: int
    stationary: str


class Times:
    """Simulated seconds on one machine, each found when it is first asked for."""

    def __init__(self, machine: Machine, batches: tuple[int, ...] = BATCHES) -> None:
        self.machine, self.batches = machine, batches
        self.ranks = machine.default_ranks
        self.factors = [c for c in range(1, self.ranks + 1) if self.ranks % c == 0]
        self._best: dict[tuple[str, int, str], dict[Choice, float]] = {}

    def of(self, layer: str, m: int, family: str) -> dict[Choice, float]:
        """Return the seconds of a family by choice: one factor for all in MLP-1, one for A and B in MLP-2."""
        key = (layer, m, family)
        if key not in self._best:
            self._best[key] = {
                Choice(ab, c, x): makespan(
                    umm.schedule(self._problem(*key, ab, c), self.machine, stationary=x)
                )
                for ab in self.factors
                for c in (self.factors if layer == "MLP-2" else [ab])
                for x in "BC"
            }
        return self._best[key]

    def best(self, layer: str, m: int, family: str, **where: object) -> tuple[float, Choice]:
        """Return the least seconds of a family and of what ties with it the choice with fewest copies.

        Args:
            layer: MLP-1 or MLP-2.
            m: The batch.
            family: Name of a family.
            where: Fields of the choice that are fixed.
        """
        found = {
            choice: seconds
            for choice, seconds in self.of(layer, m, family).items()
            if all(getattr(choice, name) == value for name, value in where.items())
        }
        least = min(found.values())
        return least, min((x for x, seconds in found.items() if seconds <= TIE * least), key=lambda x: x[:2])

    def order(self, layer: str, m: int, **where: object) -> list[str]:
        """Return the families, the fastest first."""
        return sorted(FAMILIES, key=lambda family: self.best(layer, m, family, **where)[0])

    def fastest(self, layer: str, m: int, **where: object) -> float:
        """Return the least seconds of all families."""
        return min(self.best(layer, m, family, **where)[0] for family in FAMILIES)

    def dtensor(self, layer: str, m: int) -> float:
        """Return the seconds of DTensor's own choice, of row or column layouts."""
        n, k = SIZES[layer]
        return min(
            makespan(
                umm.schedule(
                    umm.Problem(m=m, n=n, k=k, a=x, b=x, c=x, ranks=self.ranks), self.machine,
                    algorithm="dtensor",
                )
            )
            for x in ("row", "col")
        )  # fmt: skip

    def moved(self, layer: str, m: int, family: str, stationary: str) -> str:
        """Return which matrices move where none is copied."""
        schedule = umm.schedule(self._problem(layer, m, family, 1, 1), self.machine, stationary=stationary)
        gets, adds = schedule.kind == GET, (schedule.kind == ACCUMULATE) & (schedule.src != schedule.dst)
        got = [x for number, x in enumerate("AB") if (schedule.touched_tiles(number)[gets, 0] >= 0).any()]
        return "".join(got) + ("C" if adds.any() else "")

    def _problem(self, layer: str, m: int, family: str, ab: int, c: int) -> umm.Problem:
        n, k = SIZES[layer]
        a, b, out = (f"{x}@{copies}" for x, copies in zip(FAMILIES[family], (ab, ab, c), strict=True))
        return umm.Problem(m=m, n=n, k=k, a=a, b=b, c=out, ranks=self.ranks)


class Claim(NamedTuple):
    """A statement of the paper and how it is checked.

    Attributes:
        name: Machine, layer and number.
        text: What it says.
        machine: Whose times it is checked on.
        holds: Returns whether it holds, and the figures; None where nothing here can say.
    """

    name: str
    text: str
    machine: str
    holds: Callable[[Times], tuple[bool, str]] | None
    why: str = ""


def percent(times: Times, layer: str, m: int, seconds: float) -> str:
    """Return seconds as percent of the peak of all devices, as the paper's figures have them."""
    n, k = SIZES[layer]
    return f"{100 * 2 * m * n * k / seconds / times.ranks / times.machine.peak('float32'):.1f}"


def shares(times: Times, layer: str, m: int, **where: object) -> str:
    """Return every family's percent of peak, the fastest first."""
    return ", ".join(
        f"{x} {percent(times, layer, m, times.best(layer, m, x, **where)[0])}"
        for x in times.order(layer, m, **where)
    )


def two_are_best(layer: str, first: str, second: str, **where: object) -> Callable[[Times], tuple[bool, str]]:
    """Return a check that no other family beats either of two, at any batch."""

    def holds(times: Times) -> tuple[bool, str]:
        fine = all(set(times.order(layer, m, **where)[:2]) == {first, second} for m in times.batches)
        return fine, f"m = {times.batches[0]}: {shares(times, layer, times.batches[0], **where)} % of peak"

    return holds


def moves_only_a(times: Times) -> tuple[bool, str]:
    """Column and Inner with stationary C."""
    found = {x: times.moved("MLP-1", times.batches[0], x, "C") for x in FAMILIES}
    text = ", ".join(f"{x} moves {matrices}" for x, matrices in found.items())
    return [x for x in FAMILIES if found[x] == "A"] == ["Column", "Inner"], text


def block_gains(times: Times) -> tuple[bool, str]:
    """Its share of the peak, its best choice at every batch."""
    found = [float(percent(times, "MLP-1", m, times.best("MLP-1", m, "Block")[0])) for m in times.batches]
    return found == sorted(found) and found[-1] > found[0], " → ".join(map(str, found)) + " % of peak"


def moving_b_wants_copies(times: Times) -> tuple[bool, str]:
    """Row and Outer with stationary C, at every batch."""
    found = {
        (x, m): times.best("MLP-1", m, x, stationary="C")[1].ab
        for x in ("Row", "Outer")
        for m in times.batches
    }
    return min(found.values()) > 1, ", ".join(f"{x} at {m}: c = {c}" for (x, m), c in found.items())


def column_wants_none(times: Times) -> tuple[bool, str]:
    """Column's best factor at every batch."""
    found = [times.best("MLP-1", m, "Column")[1].ab for m in times.batches]
    return set(found) == {1}, f"c = {', '.join(map(str, found))}"


def near_dtensor(layer: str, share: float) -> Callable[[Times], tuple[bool, str]]:
    """Return a check that the best is at least so much of what DTensor reaches, both simulated."""

    def holds(times: Times) -> tuple[bool, str]:
        found = [times.dtensor(layer, m) / times.fastest(layer, m) for m in times.batches]
        return min(found) >= share, "DTensor's time over ours: " + ", ".join(f"{x:.2f}" for x in found)

    return holds


def stationary_c_is_best(times: Times) -> tuple[bool, str]:
    """No other stationary matrix is more than a tie better, for Column and Inner."""
    found = {
        (x, m): times.best("MLP-1", m, x, stationary="C")[0] / times.best("MLP-1", m, x)[0]
        for x in ("Column", "Inner")
        for m in times.batches
    }
    return max(found.values()) <= TIE, f"at most {100 * max(found.values()) - 100:.2f} % behind the best"


def copies_help(times: Times) -> tuple[bool, str]:
    """The best of all families with copies of A and B against the best without."""
    m = times.batches[-1]
    best = min((times.best("MLP-2", m, x) for x in FAMILIES), key=lambda found: found[0])
    alone = times.fastest("MLP-2", m, ab=1)
    ends = (percent(times, "MLP-2", m, x) for x in (alone, best[0]))
    return best[1].ab > 1 and best[0] < alone, f"m = {m}: " + " % without, ".join(ends) + " % with"


def outer_is_interior(times: Times) -> tuple[bool, str]:
    """The fewest copies that tie with Outer's best, stationary B, at the largest batch."""
    m = times.batches[-1]
    per = [(c, times.best("MLP-2", m, "Outer", ab=c, stationary="B")[0]) for c in times.factors]
    best = times.best("MLP-2", m, "Outer", stationary="B")[1].ab
    text = ", ".join(f"{c}: {percent(times, 'MLP-2', m, seconds)}" for c, seconds in per)
    return best not in (1, times.ranks), f"c = {best}; {text} % of peak"


def factors_differ(times: Times) -> tuple[bool, str]:
    """Outer's best choice, stationary B, at the largest batch."""
    choice = times.best("MLP-2", times.batches[-1], "Outer", stationary="B")[1]
    return choice.ab != choice.c, f"{choice.ab} of A and B, {choice.c} of C"


def accumulate_is_slower(times: Times) -> tuple[bool, str]:
    """The bandwidth of an accumulate over that of a get."""
    share = times.machine.accumulate_efficiency
    return share < 1, f"{100 * share:.0f} % of a get's bandwidth, as published"


def spread(times: Times) -> float:
    """Return the slowest family's time over the fastest's, the largest over batches."""
    return max(
        times.best("MLP-1", m, times.order("MLP-1", m)[-1])[0] / times.fastest("MLP-1", m)
        for m in times.batches
    )


def outer_prefers_c(times: Times) -> tuple[bool, str]:
    """Outer without copies, at the largest batch: what accumulates cost the GEMM."""
    m = times.batches[-1]
    b, c = (times.best("MLP-2", m, "Outer", ab=1, stationary=x)[0] for x in "BC")
    return (
        b > c * 1.005,
        f"{percent(times, 'MLP-2', m, b)} % with S-B, {percent(times, 'MLP-2', m, c)} % with S-C",
    )


def c_wins(times: Times) -> tuple[bool, str]:
    """Without copies the fastest family keeps C, at the largest batch."""
    m = times.batches[-1]
    b, c = (times.fastest("MLP-2", m, ab=1, stationary=x) for x in "BC")
    return (
        c <= b * 1.0005,
        f"best {percent(times, 'MLP-2', m, b)} % with S-B, {percent(times, 'MLP-2', m, c)} % with S-C",
    )


def claims(pvc_spread: float) -> Iterator[Claim]:
    """Yield the statements of CLAIMS in the paper's order."""
    one, two = "PVC MLP-1", "PVC MLP-2"
    tops = two_are_best("MLP-1", "Column", "Inner")
    yield Claim(f"{one} (1)", "Column and Inner are best", PVC, tops)
    yield Claim(f"{one} (2)", "both move only A", PVC, moves_only_a)
    yield Claim(
        f"{one} (3)",
        "Column beats Inner by its GEMM shapes",
        PVC,
        None,
        "they tie: of SGEMM on PVC one number is published, none by shape",
    )
    yield Claim(f"{one} (4)", "Block gains as m grows", PVC, block_gains)
    yield Claim(f"{one} (5)", "layouts that move B prefer copies", PVC, moving_b_wants_copies)
    yield Claim(f"{one} (6)", "Column prefers none", PVC, column_wants_none)
    yield Claim(f"{one} (7)", "the best is at or above DTensor", PVC, near_dtensor("MLP-1", 1.0))
    yield Claim(f"{one} (8)", "Inner and Column are best with stationary C", PVC, stationary_c_is_best)
    outer = two_are_best("MLP-2", "Outer", "Block", ab=1)
    yield Claim(f"{two} (1)", "Outer and Block are best (A and B not copied)", PVC, outer)
    yield Claim(f"{two} (2)", "higher replication helps", PVC, copies_help)
    yield Claim(f"{two} (3)", "Outer's best factor is neither 1 nor p", PVC, outer_is_interior)
    yield Claim(f"{two} (4)", "C's best factor differs from A's and B's", PVC, factors_differ)
    yield Claim(f"{two} (5)", "within 5 % of DTensor", PVC, near_dtensor("MLP-2", 0.95))
    yield Claim(f"{two} (6)", "an accumulate is slower than a get", PVC, accumulate_is_slower)

    def smaller(times: Times) -> tuple[bool, str]:
        return spread(
            times
        ) < pvc_spread, f"slowest over fastest {spread(times):.2f}, on PVC {pvc_spread:.2f}"

    def small_batch(times: Times) -> tuple[bool, str]:
        m = times.batches[0]
        return set(times.order("MLP-1", m)[:2]) == {
            "Column",
            "Inner",
        }, f"m = {m}: {shares(times, 'MLP-1', m)} %"

    yield Claim("H100 MLP-1 (1)", "layouts differ less than on PVC", H100, smaller)
    yield Claim("H100 MLP-1 (2)", "Column and Inner best at small m", H100, small_batch)
    yield Claim(
        "H100 MLP-1 (3)",
        "COSMA is poor",
        H100,
        None,
        "its times are 7.0 ms + 7.0 ms a thousand rows: B from the host over PCIe, which is not modelled",
    )
    yield Claim("H100 MLP-2 (1)", "Outer with stationary B is poor (not copied)", H100, outer_prefers_c)
    yield Claim("H100 MLP-2 (2)", "stationary C wins (not copied)", H100, c_wins)


def variants(machine: Machine) -> Iterator[tuple[str, Machine]]:
    """Yield the machine with each assumed number that a float32 multiply meets halved, and doubled."""
    for fact in machine.facts:
        if fact.basis != "assumed" or not _meets_float32(fact):
            continue
        for factor in ("x0.5", "x2"):
            try:
                yield f"{fact.key} {factor}", with_settings(machine, {fact.key: factor})
            except MachineError:  # half of three copy engines; twice of what leaves nothing
                if fact.value.isdigit() and factor == "x0.5":
                    half = str(int(fact.value) // 2)
                    yield f"{fact.key} {half}", with_settings(machine, {fact.key: half})


def _meets_float32(fact: Fact) -> bool:
    other = ("float64]", "float16]", "bfloat16]", "tf32]", ".tiles", "local_work", "means.", "step_fence")
    return not any(part in fact.key for part in other)


def main() -> None:
    """Print the statements with their verdicts; write claims.csv."""
    machines = {name: umm.machine(shipped_folder() / f"{name}.toml") for name in (PVC, H100)}
    times = {name: Times(machine) for name, machine in machines.items()}
    checked = list(claims(spread(times[PVC])))
    verdicts = {
        claim.name: (False, claim.why) if claim.holds is None else claim.holds(times[claim.machine])
        for claim in checked
    }
    flips: dict[str, list[str]] = {claim.name: [] for claim in checked}
    for name, machine in machines.items():
        for what, changed in variants(machine):
            found = Times(changed, BATCHES[:: len(BATCHES) - 1])
            for claim in checked:
                if (
                    claim.machine == name
                    and claim.holds
                    and verdicts[claim.name][0]
                    and not claim.holds(found)[0]
                ):
                    flips[claim.name].append(what)
    with (HERE / "claims.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["claim", "text", "verdict", "figures", "does_not_hold_with"])
        for claim in checked:
            fine, text = verdicts[claim.name]
            verdict = "reproduced" if fine else "not reproduced"
            row = [claim.name, claim.text, verdict, text, "; ".join(flips[claim.name])]
            writer.writerow(row)
            print(f"{claim.name}: {claim.text}\n  {verdict}: {text}")
            if fine:
                without = "; ".join(flips[claim.name]) or "any assumed number halved or doubled"
                print(f"  {'fails' if flips[claim.name] else 'holds'} with {without}")
    print(f"{sum(fine for fine, _ in verdicts.values())} of {len(checked)} reproduced")


if __name__ == "__main__":
    main()
