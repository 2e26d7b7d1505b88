"""Problems 4, 6 and 7: shardings of one multiply and of two, simulated in bfloat16."""

from collections.abc import Callable, Iterator

import numpy as np

import umm
from experiments.common.ledger import Entry, refuted, reproduced
from experiments.common.machines import shipped
from experiments.common.published import published
from experiments.scaling_book.rings import chips, makespan
from umm.algorithms.chains.lower import lower
from umm.algorithms.collectives.closed_forms import bandwidth
from umm.cost import gemm_seconds
from umm.machines import Machine
from umm.schedules.kinds import TRANSFERS

SAID = published("scaling_book")
BF16 = 2
MESH = "jax:mesh=x:4,y:4;P({})"
SIDE = 8192


def collective(machine: Machine, what: str, nbytes: int, ranks: int | None = None) -> float:
    """Return the simulated seconds of a collective round a ring."""
    asked = {"nbytes": nbytes, "machine": machine, "algorithm": "ring", "dtype": "bfloat16", "ranks": ranks}
    return makespan(umm.collective(what, **asked))


def gemm(machine: Machine, m: int, n: int, k: int) -> float:
    """Return the seconds of a local multiply."""
    return float(gemm_seconds(machine, "bfloat16", m, n, k, BF16))


def crossover(slower: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number from low on for which compute is not slower, between two."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if slower(middle) else (low, middle)
    return high


def problem4() -> Iterator[Entry]:
    """Gather Y, or sum the product: where each is bound by compute, on a ring of four chips."""
    machine, chips_x, said = shipped("tpu-v5e-4"), 4, SAID["problem4"]
    rate = machine.peak("bfloat16") * float(machine.efficiency["bfloat16"].values.max())
    width = bandwidth(machine, chips_x)
    b, d, f = 1024, 8192, 32768
    found = crossover(
        lambda x: collective(machine, "all-gather", BF16 * d * f) > gemm(machine, x, f, d), 1, 16384
    )
    wanted = rate / width
    yield reproduced(
        "gathering Y is bound by compute where B > F/W",
        said["where"],
        f"D = {d}, F = {f} on `tpu-v5e-4`: from B = {found} on; F/W = {wanted:.0f} with the "
        f"{rate / 1e12:.0f} TFLOP/s "
        f"that multiplies reach, of which (X − 1)/X is {0.75 * wanted:.0f}",
        abs(found / (0.75 * wanted) - 1) < 0.02,
        "peak and efficiency bfloat16, fabric.bandwidth",
    )
    found = crossover(
        lambda x: collective(machine, "all-reduce", BF16 * b * f) > gemm(machine, b, f, x // chips_x),
        4,
        65536,
    )
    wanted = 2 * chips_x * rate / width
    yield reproduced(
        "summing the product is bound by compute where D > 2X·F/W",
        said["where"],
        f"B = {b}, F = {f}: from D = {found} on; 2X·F/W = {wanted:.0f}, of which (X − 1)/X is "
        f"{0.75 * wanted:.0f}",
        abs(found / (0.75 * wanted) - 1) < 0.02,
        "peak and efficiency bfloat16, fabric.bandwidth",
    )


def problem6() -> Iterator[Entry]:
    """Three shardings of an 8192-cube on 4×4 chips; each axis taken as a ring of four."""
    said, ring = SAID["problem6"], chips("ring-4")
    width = bandwidth(ring, 4)
    whole = BF16 * SIDE * SIDE
    gather = collective(ring, "all-gather", whole)
    summed = collective(ring, "all-reduce", whole // 4)
    printed = whole / 4 / width
    line = collective(shipped("tpu-v5e-16"), "all-gather", whole, ranks=4)
    yield refuted(
        f"pattern 1, {said['pattern1']}",
        said["where"],
        f"I = J = K = {SIDE}: gathering B takes {1e3 * gather:.3f} ms, "
        f"{gather * width / whole:.2f} · 2JK/W and "
        f"{gather / printed:.1f} times what is printed; summing C instead {1e3 * summed:.3f} ms, "
        f"{summed * width * 4 / whole / 2:.2f} · 4IK/(X·W); along a row of the 4x4 mesh, which is "
        "no ring, the "
        f"gather takes {1e3 * line:.3f} ms",
        gather > 2 * printed and summed < gather,
        "every chip needs all of B: gathering costs 2JK/W, reducing the output 4IK/(X·W)",
        "fabric.bandwidth",
    )
    gather = collective(ring, "all-gather", whole // 4)
    printed = SIDE * SIDE / 4 / width
    yield refuted(
        f"pattern 2, {said['pattern2']}",
        said["where"],
        f"{1e3 * gather:.3f} ms, {gather / printed:.2f} times what is printed, "
        f"{gather / printed / 2:.2f} · 2JK/(Y·W)",
        gather / printed > 1.4,
        "it drops bfloat16's factor 2",
        "fabric.bandwidth",
    )
    layouts = {x: MESH.format(y) for x, y in (("a", "x,None"), ("b", "None,y"), ("c", "x,y"))}
    problem = umm.Problem(m=SIDE, n=SIDE, k=SIDE, **layouts, dtype="bfloat16", c_dtype="bfloat16", ranks=16)
    schedule = umm.schedule(problem, shipped("tpu-v5e-16"), stationary="C")
    moved = int(schedule.nbytes[np.isin(schedule.kind, TRANSFERS)].sum())
    yield reproduced(
        f"pattern 3, {said['pattern3']}",
        said["where"],
        f"{moved} bytes move on `tpu-v5e-16`, {1e3 * makespan(schedule):.3f} ms",
        moved == 0,
    )


def problem7() -> Entry:
    """Two multiplies after each other, or of the product of the weights, on 2×2 chips."""
    said, machine = SAID["problem7"], shipped("tpu-v5e-4")
    tokens, hidden, ffn, ranks = said["tokens"], said["hidden"], said["ffn"], 4
    outline = umm.chain("mlp", tokens=tokens, hidden=hidden, ffn=ffn, dtype="bfloat16")
    apart = lower(
        outline.laid_out({"X": "row@4", "W1": "col", "H": "col", "G": "col", "W2": "row", "Y": "col"}, ranks),
        machine,
    )
    types = {"dtype": "bfloat16", "c_dtype": "bfloat16", "ranks": ranks}
    fuse = umm.schedule(
        umm.Problem(m=hidden, n=hidden, k=ffn, a="col", b="row", c="col", **types), machine, stationary="A"
    )
    then = umm.schedule(
        umm.Problem(m=tokens, n=hidden, k=hidden, a="row@4", b="col", c="col", **types),
        machine,
        stationary="B",
    )
    times = makespan(apart), makespan(fuse) + makespan(then)
    memory = [int(x.memory_bytes.max()) / 1e6 for x in (apart, fuse)]
    shares = 2 * BF16 * hidden * ffn / ranks / 1e6, BF16 * hidden * hidden / 1e6
    flop = (hidden * hidden * ffn + tokens * hidden * hidden) / (2 * tokens * hidden * ffn)
    limit = said["limit_mb"]
    return refuted(
        said["claim"],
        said["where"],
        f"fused takes {flop:.0f} times the flop and {1e3 * times[1]:.1f} ms, one after the other "
        f"{1e3 * times[0]:.2f} ms; as described a chip holds {shares[0]:.0f} MB of weights and a "
        "partial product of "
        f"{shares[1]:.0f} MB, over {limit} MB; our schedule of it {memory[1]:.0f} MB, one after the other "
        f"{memory[0]:.0f} MB",
        times[1] > times[0] and sum(shares) > limit > memory[0],
        "32 times the flop, and it breaks the limit that it set",
        "peak bfloat16, fabric.bandwidth",
    )
