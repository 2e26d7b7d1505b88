"""Starts, fences, blocks, local work and shared memory of a machine file: stories and laws."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_text import GOOD, SWITCH, error_of, write

import umm
from umm.cost import local_accumulate_seconds
from umm.layouts.layout import Layout
from umm.machines.corners import corners, moved_alone
from umm.machines.files import shipped_folder
from umm.machines.settings import with_settings
from umm.program import Chain
from umm.program.tensors import Tensor
from umm.schedules.table.buffers import first_tiles
from umm.schedules.table.details import ACCUMULATE, BARRIER, GEMM, GET, PUT
from umm.schedules.writer.builder import Builder
from umm.space.vary import knobs
from umm_sim.executor import SimExecutor

MS = 1e-3
makespan = SimExecutor().makespan
BLOCKS = """[devices.accumulate_blocks]
count = { value = COUNT, source = "test" }
units = { value = 8, source = "test" }
rate = { value = "1 GB/s", source = "test" }
"""
STATED = 'accumulate = { value = 0.25, source = "test" }\nreduce = { value = 0.25, source = "test" }\n'


def machine(folder, more="", name="mine.toml"):
    """The usual four devices on a switch of 10 GB/s, with more said about each."""
    return umm.machine(
        write(folder, GOOD.replace("\n[devices.peak]", f"{more}\n[devices.peak]") + SWITCH, name)
    )


def said(key, value):
    return f'{key} = {{ value = {value}, source = "test" }}\n'


@pytest.mark.parametrize(
    ("what", "way"),
    [("all-gather", "ring"), ("all-gather", "direct"), ("all-reduce", "ring"), ("broadcast", "tree")],
)
def test_a_collective_waits_once_for_its_start(tmp_path, what, way):
    """Whatever it passes on and however many lanes it uses: 2 ms more, and nothing else."""
    plain = machine(tmp_path)
    late = machine(tmp_path, said("collective_start", '"2 ms"'), "late.toml")
    first, then = (
        makespan(umm.collective(what, nbytes=2**22, machine=m, algorithm=way)) for m in (plain, late)
    )
    assert then == pytest.approx(first + 2 * MS, rel=1e-12)


def test_single_copies_wait_for_no_start(tmp_path):
    problem = umm.Problem(m=64, n=64, k=64, a="row", b="col", c="row", ranks=4)
    late = machine(tmp_path, said("collective_start", '"2 ms"'), "late.toml")
    assert makespan(umm.schedule(problem, late)) == makespan(umm.schedule(problem, machine(tmp_path)))


def test_the_machine_s_fence_comes_on_top_of_the_ring_s_own(tmp_path):
    problem = umm.Problem(m=64, n=64, k=64, a="row", b="col", c="col", ranks=4)
    fenced = machine(tmp_path, said("step_fence", '"1 ms"'), "fenced.toml")
    single = umm.schedule(problem, fenced, algorithm="ring")
    twice = umm.schedule(problem, fenced, algorithm="ring", fence_s=1 * MS)
    same = umm.schedule(problem, machine(tmp_path), algorithm="ring", fence_s=1 * MS)
    assert makespan(single) == makespan(same)
    assert makespan(twice) == pytest.approx(makespan(single) + 3 * MS, rel=1e-12)


def test_a_collective_goes_by_the_means_of_its_name(tmp_path):
    """At half of the links' bandwidth, where a get of the same machine has all of it."""
    half = '\n[devices.means.collective]\ninterference = { value = 0.5, source = "test" }\n'
    half += said("efficiency", 0.5)
    text = GOOD.replace("\n[devices.peak]", f"{half}\n[devices.peak]") + SWITCH
    gathers = [
        umm.collective("all-gather", nbytes=2**24, machine=m, algorithm="ring")
        for m in (machine(tmp_path), umm.machine(write(tmp_path, text, "half.toml")))
    ]
    moving = gathers[0].src != gathers[0].dst
    assert (gathers[1].nbytes[moving] == 2 * gathers[0].nbytes[moving]).all()
    assert [means.name for means in gathers[1].means] == ["collective"]


def test_blocks_tie_an_accumulate_s_bandwidth_to_what_the_gemm_loses(tmp_path):
    """Blocks of 1 GB/s on links of 10 GB/s, 8 units: 2 blocks are 2 GB/s and a quarter of the GEMM's rate."""
    result = {}
    for count in (2, 4, 7):
        text = GOOD.replace(STATED, "\n" + BLOCKS.replace("COUNT", str(count))) + SWITCH
        m = umm.machine(write(tmp_path, text.replace("value = 0.8", "value = 0.6"), f"{count}.toml"))
        result[count] = m.accumulate_efficiency, m.interference["accumulate"], m.interference["reduce"]
    assert result == {2: (0.2, 0.25, 0.25), 4: (0.4, 0.5, 0.5), 7: (0.6, 0.875, 0.875)}


@pytest.mark.parametrize("kind", ["put", "broadcast"])
def test_a_put_and_a_broadcast_take_from_a_gemm_what_a_get_takes(tmp_path, kind):
    """While its rank moves bytes, a gemm of 1 s runs at half its rate; it ends later by half of that time."""
    layout = Layout.parse("row", (4096, 1024), 2)
    tensors = tuple(Tensor(name, layout, "float32", "both") for name in "XY")
    result = {}
    for share in (0.0, 0.5):
        m = with_settings(machine(tmp_path), {"interference.get": str(share)})
        build = Builder("one", Chain("one", tensors, (), 2), m)
        given, computed = build.tile("X", 0, 0), build.tile("Y", 0, 0)
        getattr(build, kind)(given, build.temporary(1, "X", given.rows, given.cols))
        build.map("gelu", computed, computed, seconds=1.0)
        trace = umm.run(build.schedule(), "sim")
        result[share] = trace.makespan_s, float(trace.end[0] - trace.start[0])
    assert result[0.0][0] == pytest.approx(1.0)
    assert result[0.5][0] == pytest.approx(1.0 + 0.5 * result[0.5][1])
    assert result[0.5][1] > 5e-4


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (STATED, "", "devices: interference must say what an accumulate and a reduce take"),
        (STATED, STATED + BLOCKS.replace("COUNT", "2"), "follow from accumulate_blocks; keep one of the two"),
        (STATED, BLOCKS.replace("COUNT", "8"), "8 blocks of 8 leave none to multiply; name fewer"),
        ("\n[devices.peak]", said("copy_share", 1.0) + "\n[devices.peak]", "leaves multiplies no memory"),
        ("\n[devices.peak]", said("local_work", '"both"') + "\n[devices.peak]", "local_work.value"),
        ("[devices.peak]\nfloat32", "[devices.peak]\ntf32", "state both"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, old, new, why):
    text = GOOD + SWITCH
    assert old in text
    assert why in error_of(write(tmp_path, text.replace(old, new, 1)))


def test_local_work_on_the_engine_and_a_gemm_slow_each_other_down(tmp_path):
    """A rank's accumulates to itself cost its gemms time only where both share the engine."""
    problem = umm.Problem(m=512, n=512, k=512, a="col", b="row", c="row", ranks=2)
    beside, engine = (
        umm.schedule(
            problem, machine(tmp_path, said("local_work", f'"{how}"'), f"{how}.toml"), stationary="B"
        )
        for how in ("beside", "engine")
    )
    local = (beside.kind == ACCUMULATE) & (beside.src == beside.dst)
    assert local.any()
    assert makespan(engine) > makespan(beside)
    assert makespan(beside) == makespan(umm.schedule(problem, machine(tmp_path), stationary="B"))


def test_accumulates_into_some_of_a_tile_s_columns_may_be_slower(tmp_path):
    """Slices of C as wide as its tiles keep their price, by whichever policy; others take four times it."""
    plain = machine(tmp_path)
    slow = machine(tmp_path, said("strided_accumulates", 0.25), "slow.toml")
    for c, wide, policy in product(("row", "col"), (1, 4), ("direct", "greedy")):
        b = f"cyclic:64x{256 // wide}:4x1"
        problem = umm.Problem(m=256, n=256, k=256, a="col", b=b, c=c, ranks=4)
        both = [umm.schedule(problem, m, stationary="A", policy=policy) for m in (plain, slow)]
        adds = (both[0].kind == ACCUMULATE) & (both[0].src != both[0].dst)
        assert adds.any()
        strided = wide == 4 and c == "row"
        expected = both[0].nbytes[adds] * (4 if strided else 1)
        assert both[1].nbytes[adds] == pytest.approx(expected, abs=4)


def test_an_algorithm_s_accumulates_know_their_tile_too(tmp_path):
    """Of two adds to a tile of 64 columns the one of 32 takes four times its bytes."""
    slow = machine(tmp_path, said("strided_accumulates", 0.25), "slow.toml")
    sums = {}
    for m in (machine(tmp_path), slow):
        problem = umm.Problem(m=64, n=64, k=64, a="row", b="row", c="row", ranks=2)
        build = Builder("adds", problem, m)
        into = build.tile("C", 1, 0)
        for part in (into, into.part(0, 2, axis=1)):
            build.accumulate(build.temporary(0, "C", part.rows, part.cols, 0), part)
        sums[m.name] = build.schedule().nbytes.tolist()
    assert [b / a for a, b in zip(*sums.values(), strict=True)] == pytest.approx([1.0, 4.0])


@pytest.mark.parametrize("how", ["direct", "greedy", "summa"])
def test_transfers_beside_gemms_may_cost_them_what_they_have_in_the_caches(tmp_path, how):
    """Every get and accumulate waits for its bytes at 1 GB/s, at most those of one 128 x 128 x 64 gemm.

    And a rank's gemms wait for its own 64 KiB of A, once.
    """
    rate = machine(tmp_path, said("refill", '"1 GB/s"'), "refill.toml")
    options = {"algorithm": how} if how == "summa" else {"policy": how, "stationary": "C"}
    problem = umm.Problem(m=256, n=256, k=256, a="2d:2x2", b="2d:2x2", c="2d:2x2", ranks=4)
    plain, slow = (umm.schedule(problem, m, **options) for m in (machine(tmp_path), rate))
    moves = np.isin(plain.kind, (GET, PUT, ACCUMULATE))
    assert moves.any()
    m, n, k = slow.details.multiplied[slow.kind == GEMM].mean(axis=0)
    worked_on = 4 * (m * k + k * n + m * n)
    assert slow.seconds[moves] - plain.seconds[moves] == pytest.approx(
        np.minimum(slow.payload[moves], worked_on) / 1e9
    )
    gemms = slow.kind == GEMM
    loads = np.bincount(slow.rank[gemms], (slow.seconds - plain.seconds)[gemms])
    assert loads == pytest.approx(4 * [2**16 / 1e9])
    assert (slow.seconds == plain.seconds)[~(moves | gemms)].all()


def test_what_moves_before_the_first_gemm_drives_nothing_out_of_the_caches(tmp_path):
    """A and B are redistributed, a barrier, then gets beside gemms: these alone wait."""
    rate = machine(tmp_path, said("refill", '"1 GB/s"'), "refill.toml")
    problem = umm.Problem(m=256, n=256, k=256, a="row", b="col", c="row", ranks=2, given="a=col,b=row")
    plain, slow = (umm.schedule(problem, m) for m in (machine(tmp_path), rate))
    last = int((slow.kind == BARRIER).nonzero()[0].max())
    gets, later = slow.kind == GET, slow.seconds > plain.seconds
    assert gets[:last].sum() == 8
    assert not later[:last].any()
    assert later[last:][gets[last:]].all()


@pytest.mark.parametrize("how", ["direct", "greedy", "summa"])
def test_what_is_got_in_small_tiles_is_in_the_caches_when_it_is_read(tmp_path, how):
    """A get costs nothing beside where the cache holds sixteen of it, all its bytes where it holds fewer."""
    rate = said("refill", '"1 GB/s"')
    options = {"algorithm": how} if how == "summa" else {"policy": how, "stationary": "C"}
    problem = umm.Problem(m=128, n=128, k=128, a="row", b="2d:2x2", c="row", ranks=4)
    plain = umm.schedule(problem, machine(tmp_path), **options)
    gets, largest = plain.kind == GET, plain.payload[plain.kind == GET].max()
    for cache, paid in ((16 * largest, 0), (16 * largest - 1, largest)):
        m = machine(tmp_path, rate + said("cache", f'"{cache} B"'), f"{cache}.toml")
        more = (umm.schedule(problem, m, **options).seconds - plain.seconds)[gets]
        assert more == pytest.approx(np.where(plain.payload[gets] == paid, paid, 0) / 1e9)


@pytest.mark.parametrize("how", ["direct", "greedy"])
def test_gemms_load_what_they_are_the_first_to_use(tmp_path, how):
    """Its own blocks of A and the slots that it sends C from, once each, at 1 GB/s."""
    rate = machine(tmp_path, said("refill", '"1 GB/s"'), "refill.toml")
    problem = umm.Problem(m=192, n=256, k=128, a="2d:2x2", b="row", c="col", ranks=4)
    plain, slow = (umm.schedule(problem, m, policy=how, stationary="A") for m in (machine(tmp_path), rate))
    temporary, buffers, used = first_tiles(slow.tensors)[-1], slow.temporaries, set()
    expected = np.zeros(len(slow))
    for row in (slow.kind == GEMM).nonzero()[0]:
        c, a = slow.details.buffer[row, :2]
        m, n, k = slow.details.multiplied[row]
        block = ("A", a, *slow.details.rows[row, 1], *slow.details.cols[row, 1])
        slot = ("C", slow.rank[row], *buffers.slot[[c - temporary]]) if c >= temporary else None
        if a < temporary and block not in used:
            expected[row] += m * k
        if slot and slot not in used:
            expected[row] += m * n
        used |= {block, slot}
    gemms = slow.kind == GEMM
    assert 0 < np.count_nonzero(expected) < gemms.sum()
    assert (slow.seconds - plain.seconds)[gemms] == pytest.approx(4 * expected[gemms] / 1e9)


@pytest.mark.parametrize("how", ["direct", "greedy", "summa"])
def test_gemms_load_what_has_left_the_caches_since_it_was_got(tmp_path, how):
    """Of gets of 32 KiB and of 4, with caches of 64 KiB: each part of the large ones once for each get."""
    rate = said("refill", '"1 GB/s"')
    small, large = (
        machine(tmp_path, rate + said("cache", f'"{cache}"'), f"{cache[0]}.toml")
        for cache in ("64 KiB", "1 MB")
    )
    options = {"algorithm": how} if how == "summa" else {"policy": how, "stationary": "C"}
    problem = umm.Problem(m=64, n=128, k=256, a="row", b="cyclic:32x32:1x2", c="cyclic:16x64:1x2", ranks=2)
    some, none = (umm.schedule(problem, m, **options) for m in (small, large))
    temporary, buffers, used = first_tiles(some.tensors)[-1], some.temporaries, set()
    size = 4 * np.diff(buffers.rows)[:, 0] * np.diff(buffers.cols)[:, 0]
    expected = np.zeros(len(some))
    for row in (some.kind == GEMM).nonzero()[0]:
        m, n, k = some.details.multiplied[row]
        for operand, elements in ((1, m * k), (2, k * n)):
            buffer = some.details.buffer[row, operand]
            part = (buffer, *some.details.rows[row, operand], *some.details.cols[row, operand])
            if buffer >= temporary and size[buffer - temporary] > 2**14 and part not in used:
                expected[row] += 4 * elements
                used.add(part)
    gemms = some.kind == GEMM
    assert 0 < np.count_nonzero(expected) < gemms.sum()
    assert (some.seconds - none.seconds)[gemms] == pytest.approx(expected[gemms] / 1e9)


@pytest.mark.parametrize("how", ["direct", "greedy"])
def test_gemms_that_add_again_to_a_part_of_c_take_less(tmp_path, how):
    """By two thirds of it at 1 TB/s where the gemm before did not add to it; at 1 MB/s to the roofline."""
    table = '\n[[devices.efficiency]]\ndtype = "float32"\nsource = "test"\n'
    table += "m = [16, 64]\nn = [64]\nk = [64]\nvalue = [[[0.1]], [[1.0]]]\n"
    problem = umm.Problem(m=32, n=64, k=64, a="row", b="cyclic:16x16:1x2", c="row", ranks=2)
    rates = {"plain": "", "quick": said("refill", '"1 TB/s"'), "slow": said("refill", '"1 MB/s"')}
    machines = [machine(tmp_path, more + table, f"{name}.toml") for name, more in rates.items()]
    plain, quick, slow = (umm.schedule(problem, m, policy=how, stationary="C") for m in machines)
    used, last, more, again = set(), {}, np.zeros(len(plain)), np.zeros(len(plain), dtype=bool)
    for row in (plain.kind == GEMM).nonzero()[0]:
        m, n, k = plain.details.multiplied[row]
        rank, (c, a) = plain.rank[row], ((x, *plain.details.cols[row, x]) for x in (0, 1))
        again[row] = (rank, c) in used and last[rank] != c
        more[row] = ((rank, a) not in used) * 4 * m * k - again[row] * 4 * m * n * 2 / 3
        used |= {(rank, c), (rank, a)}
        last[rank] = c
    assert 0 < again.sum() < (plain.kind == GEMM).sum()
    gemms = plain.kind == GEMM
    assert (quick.seconds - plain.seconds)[gemms] == pytest.approx(more[gemms] / 1e12)
    alone = again & (more < 0)  # no A to load besides
    traffic = 4 * 4 * 16**2  # A, B, and C twice
    assert slow.seconds[alone] == pytest.approx(1e-6 + traffic / 1e12)


def test_an_algorithm_s_gemms_load_what_they_are_the_first_to_use(tmp_path):
    """The first loads half of 64 x 128 of A and a slot of 32 x 64, the second the other half of A."""
    problem = umm.Problem(m=128, n=128, k=128, a="row", b="col", c="row", ranks=2)
    seconds = []
    for m in (machine(tmp_path), machine(tmp_path, said("refill", '"1 GB/s"'), "refill.toml")):
        build = Builder("loads", problem, m)
        a, b = build.tile("A", 0, 0), build.tile("B", 0, 0)
        for half in (0, 1, 0):
            part = a.part(half, 2)
            build.gemm(build.temporary(0, "C", part.rows, b.cols, 0), part, b, beta=0.0)
        seconds.append(build.schedule().seconds)
    more = ((seconds[1] - seconds[0]) * 1e9).round()
    assert more.tolist() == [4 * 32 * (128 + 64), 4 * 32 * 128, 0]


def test_what_a_rank_gets_again_comes_from_a_cache(tmp_path):
    """A rank needs the peer's 256 KiB of B for each of three rows of C, and gets nothing else between."""
    sizes = '[message_sizes]\nsource = "test"\nlink = { value = "10 GB/s", source = "test" }\n'
    sizes += 'sizes = ["1 KiB", "256 KiB"]\nbandwidth = ["10 GB/s", "5 GB/s"]\n'
    problem = umm.Problem(
        m=768, n=256, k=512, a="cyclic:128x512:2x1", b="col", c="cyclic:128x128:2x1", ranks=2
    )
    result = {}
    for cache in ("255 KiB", "256 KiB"):
        text = GOOD.replace("\n[devices.peak]", said("cache", f'"{cache}"') + "\n[devices.peak]") + SWITCH
        schedule = umm.schedule(
            problem, umm.machine(write(tmp_path, text + sizes)), stationary="C", offset="none"
        )
        gets = (schedule.kind == GET) & (schedule.rank == 0)
        result[cache] = (schedule.nbytes[gets] / 2**10).tolist()
    assert result == {"255 KiB": [512, 512, 512], "256 KiB": [512, 256, 256]}


def test_what_few_ranks_get_again_has_more_of_the_caches(tmp_path):
    """256 KiB for each row of C: rank 0 gets them again twice, rank 1 once, two devices are idle.

    In the mean that is 3/4 of once. So they count as 3/8 for rank 0, at most 8 GB/s, and 3/4 for rank 1: 6.2.
    """
    sizes = '[message_sizes]\nsource = "test"\nlink = { value = "10 GB/s", source = "test" }\n'
    sizes += 'sizes = ["128 KiB", "256 KiB"]\nbandwidth = ["2 GB/s", "2 GB/s"]\n'
    sizes += 'cached_by_size = ["8 GB/s", "5 GB/s"]\n'
    text = GOOD.replace("\n[devices.peak]", said("cache", '"1 MiB"') + "\n[devices.peak]") + SWITCH
    problem = umm.Problem(
        m=640, n=256, k=512, a="cyclic:128x512:2x1", b="col", c="cyclic:128x256:2x1", ranks=2
    )
    schedule = umm.schedule(
        problem, umm.machine(write(tmp_path, text + sizes)), stationary="C", offset="none"
    )
    gets = [schedule.nbytes[(schedule.kind == GET) & (schedule.rank == rank)] for rank in range(2)]
    assert [(10 * 2**18 / x).round(1).tolist() for x in gets] == [[2.0, 8.0, 8.0], [2.0, 6.2]]


@given(st.integers(1, 2**31))
def test_no_accumulate_inside_a_device_beats_a_local_one(nbytes):
    """Between two ranks of one device as well as within one rank, three bytes of memory a byte of payload."""
    m = umm.machine(shipped_folder() / "h200-1.toml")
    between = m.effective_bytes(nbytes, m.accumulate_efficiency) / m.link_bandwidth[-1]
    assert between >= local_accumulate_seconds(m, nbytes)


def shuffled(m, ranks, side, rounds):
    """All ranks at once copy to a neighbour, add to themselves and multiply; and the bytes they touch."""
    layout = partial(Layout.parse, shape=(side * ranks, side), ranks=ranks)
    tensors = [Tensor(name, layout("row"), "float32", "both") for name in "XYZ"]
    thin = Tensor("B", Layout.parse(f"row@{ranks}", (side, 1), ranks), "float32", "input")
    out = Tensor("C", Layout.parse("row", (side * ranks, 1), ranks), "float32", "both")
    build = Builder("shuffled", Chain("shuffled", (*tensors, thin, out), (), ranks), m)
    traffic = 0.0
    for number in range(rounds):
        for rank in range(ranks):
            x, y, z = (build.tile(name, rank, 0) for name in "XYZ")
            build.gemm(build.tile("C", rank, 0), x, build.tile("B", 0, 0, rank), beta=0)
            target = build.temporary((rank + 1) % ranks, "Y", y.rows, y.cols, slot=number % 2)
            build.put(y, target)
            room = build.temporary(rank, "Z", z.rows, z.cols, slot="own")
            build.accumulate(z, room)
            traffic += 4 * side * side * (1 + 2 + 3)
    return build.schedule(), traffic


@settings(max_examples=examples(20))
@given(st.integers(2, 4), st.sampled_from([512, 1024, 2048]), st.integers(1, 4))
def test_ranks_on_one_device_share_its_memory_bandwidth(ranks, side, rounds):
    """Multiplies of one column, copies and local accumulates of all ranks together never beat the memory."""
    m = umm.machine(shipped_folder() / "h200-1.toml")
    schedule, traffic = shuffled(m, ranks, side, rounds)
    assert (schedule.kind == GEMM).sum() == ranks * rounds
    assert traffic / makespan(schedule) <= m.memory_bandwidth


def test_tf32_is_a_choice_of_the_machine():
    """Seven times float32's peak on H100, of which 4K cubed reaches 403 of 494.5; and other caches."""
    plain, tf32 = umm.machine("h100-8"), umm.machine("h100-8:tf32")
    assert tf32.peak("float32") / plain.peak("float32") == pytest.approx(7.38, rel=1e-3)
    assert float(tf32.gemm_efficiency("float32", 4096, 4096, 4096)) == pytest.approx(403 / 494.5, rel=0.04)
    assert tf32 != plain
    problem = umm.Problem(m=4096, n=4096, k=4096, a="row", b="col", c="row", ranks=8)
    assert makespan(umm.schedule(problem, tf32)) < makespan(umm.schedule(problem, plain))
    with pytest.raises(umm.errors.MachineError, match="pvc-12 states no peak for tf32"):
        umm.machine("pvc-12:tf32")


def test_a_machine_in_tf32_stays_so_with_other_numbers():
    """Changed numbers keep the peak of TF32, and a factor of that peak scales it."""
    tf32 = umm.machine("h100-8:tf32")
    for numbers in ({"fabric.bandwidth": "x0.5"}, {"nodes": "2"}):
        changed = with_settings(tf32, numbers)
        assert changed.peak("float32") == tf32.peak("float32")
        assert changed == umm.machine("h100-8:tf32", numbers)
    assert with_settings(tf32, {"peak.tf32": "x2"}).peak("float32") == 2 * tf32.peak("float32")
    names = [[x.name for x in knobs(x, 8, "float32")] for x in (umm.machine("h100-8"), tf32)]
    assert ["peak.float32" in names[0], "peak.tf32" in names[0]] == [True, False]
    assert ["peak.float32" in names[1], "peak.tf32" in names[1]] == [False, True]
    outcome = umm.sensitivity(umm.Space(m=8192, n=8192, k=8192, ranks=2), tf32, reach=1.1)
    (move,) = [x for x in outcome.moves if x.what == "peak.tf32"]
    assert move.half_s > outcome.choice.makespan_s > move.most_s


def test_a_machine_in_tf32_has_the_ranges_of_its_file():
    """At each end GEMMs in TF32 are as fast as there; a search gives the range of its best."""
    plain, tf32 = umm.machine("h100-8"), umm.machine("h100-8:tf32")
    assert list(corners(tf32)) == [x.with_tf32() for x in corners(plain)]
    alone = moved_alone(tf32)
    assert alone.keys() == moved_alone(plain).keys()
    assert alone["devices.launch"][0] == moved_alone(plain)["devices.launch"][0].with_tf32()
    space = umm.Space(m=1024, n=1024, k=1024, ranks=2, a="row", b="row", c="row")
    result = umm.search(space, tf32, top=1)
    fast, slow = result.sure.range(result.top[0])
    assert fast < result.top[0].makespan_s < slow


def test_settings_of_a_machine_in_tf32_are_part_of_its_name():
    """The name alone finds it again; half the rate of a type keeps its kernels, which slow down by less."""
    half = umm.machine("h100-8:tf32", {"fabric.bandwidth": "x0.5", "efficiency.float16": "0.405"})
    assert half.name == "h100-8:tf32 fabric.bandwidth=x0.5 efficiency.float16=0.405"
    assert umm.machine(half.name) == half
    shape = ("float16", 2048, 2048, 2048)
    share = float(half.gemm_efficiency(*shape) / umm.machine("h100-8").gemm_efficiency(*shape))
    assert 0.5 < share < 0.6
    with pytest.raises(umm.errors.MachineError, match="local_work is 'engine', which cannot be multiplied"):
        umm.machine("h100-8", {"local_work": "x2"})
