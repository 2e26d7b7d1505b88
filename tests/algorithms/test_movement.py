"""Multiplies by collectives: right and race-free, whatever is gathered, shared or summed."""

from itertools import product

import numpy as np
import pytest
from drawn_ways import assert_case, assert_on_processes, machine_of_nodes, machines_of_nodes
from hypothesis import given
from hypothesis import strategies as st

import umm
from umm.layouts.layout import Layout
from umm.machines import machine as find_machine
from umm.plans.collectives.rings import node_of_ranks
from umm.plans.lower import lower
from umm.plans.movement.choice import _by_collectives, by_collectives, chosen
from umm.plans.movement.prices import _among, _charge, _gathered, added_up
from umm.plans.multiply.options import Options
from umm.plans.plan import ways_of
from umm.plans.sink import in_turns, may_change_turns
from umm.plans.written import plan_of
from umm.program import Chain, Copy, Map, Multiply
from umm.program.plan import Moves
from umm.program.tensors import Tensor
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import ACCUMULATE, GET
from umm_hw.mpi.executor import MpiExecutor


@pytest.fixture(scope="session")
def nodes(tmp_path_factory):
    return machines_of_nodes(tmp_path_factory.mktemp("nodes"))


@pytest.mark.parametrize("seed", range(30))
def test_multiplies_by_collectives_are_right_and_race_free(seed, nodes):
    assert_case(seed, nodes)


@pytest.fixture(scope="module")
def mpi(lent):
    return MpiExecutor(job=lent(4), replica=None)


@pytest.mark.mpi
def test_every_way_is_right_on_processes(nodes, mpi):
    for seed in range(40):
        assert_on_processes(seed, nodes, mpi)


@pytest.mark.parametrize(("nodes", "size", "rows"), [(5, 2, 40), (6, 3, 7), (11, 2, 31), (17, 2, 136)])
def test_an_all_reduce_over_many_nodes_is_right_and_race_free(nodes, size, rows, tmp_path):
    """In waves, uneven ones and empty pieces among them, also where it adds to existing values."""
    ranks = nodes * size
    tensors = [
        ("X", "col", (rows, 40), "input"), ("W", "row", (40, 5), "input"), ("Y", "row@p", (rows, 5), "output")
    ]  # fmt: skip
    chain = Chain(
        "sum",
        tuple(
            Tensor(name, Layout.parse(text.replace("@p", f"@{ranks}"), shape, ranks), "float32", role)
            for name, text, shape, role in tensors
        ),
        (
            Multiply("Y", "X", "W"),
            Map("Y", "scale", ("Y",), {"factor": 0.5}),
            Multiply("Y", "X", "W", beta=1.0),
        ),
        ranks,
    )
    schedule = lower(chain, machine_of_nodes(tmp_path, ranks, size), movement="gathered")
    check(schedule)
    assert not races(schedule)
    assert {"near.1", "card.0"} <= set(schedule.lanes.names)
    rng = np.random.default_rng(nodes)
    operands = {x.name: rng.integers(-3, 4, x.shape).astype(float) for x in chain.tensors if x.is_input}
    expected = chain.reference(operands)["Y"]
    for order in ({"order": "rows"}, {"order": "random", "seed": nodes}):
        trace = umm.run(schedule, executor="numpy", operands=operands, replica=None, **order)
        assert all((replica == expected).all() for replica in trace.results["Y"])


@pytest.mark.mpi
@pytest.mark.parametrize("layouts", ["megatron", "sequence", "fsdp4"])
def test_waves_and_rounds_are_right_on_processes(nodes, mpi, monkeypatch, layouts):
    """As over five nodes and more, on two nodes of two; prices that other tests have are forgotten."""
    monkeypatch.setattr("umm.plans.movement.gathers.MANY", 2)
    monkeypatch.setattr("umm.plans.movement.gathers.WAVES", 1)
    for known in (_gathered, added_up, _by_collectives):
        known.cache_clear()
    chain = umm.chain("gated-mlp", hidden=12, ffn=16, tokens=20, backward=True)
    chain = chain.laid_out(layouts, ranks=4)
    schedule = lower(chain, nodes[4][0], movement="gathered")
    assert any(name.startswith("near.") for name in schedule.lanes.names)
    rng = np.random.default_rng(4)
    operands = {x.name: rng.integers(-3, 4, x.shape).astype(float) for x in chain.tensors if x.is_input}
    expected, trace = chain.reference(operands), mpi.run(schedule, operands)
    for name in chain.outputs:
        near = 1e-5 * np.abs(expected[name]).max()
        assert all(np.allclose(x, expected[name], rtol=1e-5, atol=near) for x in trace.results[name])
    for known in (_gathered, added_up, _by_collectives):
        known.cache_clear()


def test_a_product_is_scaled_after_the_copy_it_is_added_to(nodes):
    """Y = X W + Y / 2, Y a copy: the copy goes beside the multiply, not behind the halving."""
    texts = {"Y0": "row", "X": "col", "W": "row", "Y": "row@2"}
    tensors = tuple(
        Tensor(name, Layout.parse(text, (8, 8), 4), "float32", "output" if name == "Y" else "input")
        for name, text in texts.items()
    )
    chain = Chain("halved", tensors, (Copy("Y", "Y0"), Multiply("Y", "X", "W", beta=0.5)), 4)
    operands = {name: np.arange(64.0).reshape(8, 8) % (3 + i) for i, name in enumerate(("Y0", "X", "W"))}
    schedule = lower(chain, nodes[4][0], movement="gathered")
    trace = umm.run(schedule, executor="numpy", operands=operands, replica=None)
    assert all((replica == chain.reference(operands)["Y"]).all() for replica in trace.results["Y"])


def test_what_is_summed_is_multiplied_before_gradients_that_nothing_waits_for():
    """Megatron's sums go on beside dW1 and dW3; where the weights' gradients are summed, these stay first."""
    outline = umm.chain("gated-mlp", hidden=512, ffn=1024, tokens=2048, backward=True)
    machine = umm.machine("dgx-h100x4 nodes=2")

    def written(name):
        chain = outline.laid_out(name, ranks=16)
        plans = ways_of(chain, machine, {}, "auto")
        order = in_turns(chain.statements, {number: how.sums.adds for number, how in plans.items()})
        later, earlier = may_change_turns(chain.statements)
        came_later = {x for x in order if any(y > x for y in order[: order.index(x)])}
        assert came_later <= later
        assert all(earlier & set(range(x, len(order))) for x in came_later)
        return [chain.statements[x].out for x in order]

    first = ["H1", "H3", "G", "Y", "dW2", "dG", "dH3", "dH1"]
    assert written("megatron") == [*first, "dX", "dX", "dW1", "dW3"]
    assert written("tp8-dp2") == [*first, "dW1", "dW3", "dX", "dX"]


def test_sums_across_nodes_leave_the_lanes_of_a_node_free():
    """One rank of each node adds on lanes for that, and copies on others."""
    outline = umm.chain("gated-mlp", hidden=512, ffn=1024, tokens=2048, backward=True)
    schedule = lower(outline.laid_out("tp8-dp4", ranks=32), "dgx-h100x4")
    across = (schedule.src // 8 != schedule.dst // 8) & (schedule.src != schedule.dst)
    names = [name.partition(".")[0] for name in schedule.lanes.names]
    for kind, lane in ((ACCUMULATE, "sums"), (GET, "copies")):
        assert {names[x] for x in schedule.lane[across & (schedule.kind == kind)]} == {lane}
        inside = ~across & (schedule.src != schedule.dst) & (schedule.kind == kind)
        assert not {names[x] for x in schedule.lane[inside]} & {"sums", "copies"}


def test_an_all_reduce_in_waves_has_fewer_messages(monkeypatch):
    """Of 128 ranks in 16 nodes each adds 8 · 7 times inside its node in place of 16 · 7."""
    chain = umm.chain("mlp", hidden=4096, ffn=8192, tokens=4096, dtype="bfloat16")

    laid = chain.laid_out("megatron", ranks=128)
    machine = umm.machine("dgx-h100x4", {"nodes": "16"})
    waves = umm.schedule(laid, machine)
    monkeypatch.setattr("umm.plans.movement.sums.many_nodes", lambda *_: False)
    parts = umm.schedule(laid, machine)
    sent = [np.count_nonzero(x.kind == ACCUMULATE) // 128 for x in (waves, parts)]
    assert sent == [8 * 7 + 15, 16 * 7 + 15]
    assert umm.run(waves).makespan_s < umm.run(parts).makespan_s


@given(st.integers(2, 4), st.integers(2, 3), st.booleans(), st.data())
def test_by_level_each_byte_reaches_every_rank_and_crosses_to_a_node_once(nodes, size, back, data):
    """Ranks of one place exchange between nodes; then each node passes their bytes on."""
    p, machine = nodes * size, find_machine("h100-8", {"nodes": str(nodes)})
    ranks = [8 * (rank // size) + rank % size for rank in range(p)]
    has = np.zeros(8 * nodes)
    has[ranks] = data.draw(st.lists(st.integers(0, 5), min_size=p, max_size=p))
    across, inside = _among([ranks], has, machine, back=back)
    owners = across.target if back else across.source
    assert (across.nbytes == has[owners]).all()
    assert (across.number == (has[owners] > 0)).all()
    assert (across.source // 8 != across.target // 8).all()
    assert (inside.source // 8 == inside.target // 8).all()
    takers = np.concatenate([x.source if back else x.target for x in (across, inside)])
    nbytes = np.concatenate([across.nbytes, inside.nbytes])
    assert (np.bincount(takers, nbytes, 8 * nodes)[ranks] == has.sum() - has[ranks]).all()


LAYOUTS = ("row", "col", "2d", "row@2", "col@2", "2d@2x2x4:rc-", "row@8", "2d@4x4:-r", "col@16")


@pytest.mark.parametrize("a", LAYOUTS)
def test_a_price_is_the_bytes_of_the_plan_that_is_written(a):
    """Bytes from every rank to every other one, in all layouts, by collectives over two nodes."""
    machine, compared = umm.machine("dgx-h100x4 nodes=2"), 0
    for b, c in product(LAYOUTS, LAYOUTS):
        problem = umm.Problem(m=320, n=192, k=256, a=a, b=b, c=c, ranks=16)
        how = chosen(problem, machine, "auto", "gathered")
        if how.how is None:
            continue
        options = Options().to_dict()
        schedule = by_collectives(problem, machine, how.stationary, "gathered", options)
        plan = plan_of(schedule, node_of_ranks(machine, 16))
        written = sum((x.by_pair(4, 16) for x in plan if isinstance(x, Moves)), np.zeros((16, 16)))
        gets, adds = _charge(machine, False), _charge(machine, True)
        flows = [(x.pairs, gets) for x in how.price.gathered.values()]
        flows += [(how.price.adds.pairs, adds), (how.price.copied.pairs, gets)]
        priced = sum(pairs / charge for pairs, charge in flows)
        assert np.allclose(priced, written, rtol=1e-12), (a, b, c)
        compared += 1
    assert compared > 20


def crossing(schedule, kinds, size=8):
    """Bytes that actions of some kinds move between nodes of so many ranks."""
    moves = np.isin(schedule.kind, kinds) & (schedule.src // size != schedule.dst // size)
    return int(schedule.payload[moves].sum())


@pytest.mark.parametrize(
    ("a", "b", "c", "stationary", "kind", "moved"),
    [("row", "col", "col", "C", GET, 512 * 256), ("col", "row", "row", "B", ACCUMULATE, 512 * 384)],
)
def test_on_two_levels_each_byte_crosses_once_for_a_node(a, b, c, stationary, kind, moved):
    """Four nodes of 8: A by rows is got, or C by rows added to, once by every other node; flat 8 times."""
    problem = umm.Problem(m=512, n=384, k=256, a=a, b=b, c=c, ranks=32)
    crossed = {}
    for movement in ("flat", "two-level"):
        schedule = umm.schedule(problem, "dgx-h100x4", stationary=stationary, movement=movement)
        crossed[movement] = crossing(schedule, [kind])
    assert crossed == {"flat": 8 * 3 * moved * 4, "two-level": 3 * moved * 4}


def test_on_one_node_two_levels_are_the_flat_schedule():
    problem = umm.Problem(m=512, n=384, k=256, a="row", b="col", c="2d@2", ranks=8)
    flat, two = (umm.schedule(problem, "h100-8", movement=x) for x in ("flat", "two-level"))
    assert umm.run(flat).makespan_s == umm.run(two).makespan_s
    assert len(flat) == len(two)


def test_gathered_and_chunks_are_quicker_than_flat_between_nodes():
    """A by rows is needed by all 32 ranks: 31/32 of it by each through its own card, or once a node."""
    problem = umm.Problem(m=8192, n=8192, k=8192, dtype="bfloat16", a="row", b="col", c="col", ranks=32)

    def seconds(movement):
        return umm.run(umm.schedule(problem, "dgx-h100x4", stationary="C", movement=movement)).makespan_s

    flat = seconds("flat")
    assert all(seconds(x) < flat / 4 for x in ("two-level", "gathered", "chunks"))


def test_in_chunks_each_rank_begins_with_its_own_part_and_no_two_get_from_one():
    """A by rows on 8 GPUs: in the n-th of 7 rounds rank r gets the part of rank r + n, by copy engines."""
    problem = umm.Problem(m=8192, n=8192, k=8192, dtype="bfloat16", a="row", b="col", c="col", ranks=8)
    schedule = umm.schedule(problem, "h100-8", stationary="C", movement="chunks")
    gets = np.flatnonzero((schedule.kind == GET) & (schedule.src != schedule.dst))
    rounds = [
        [int(x) for x in schedule.src[gets][schedule.dst[gets] == rank]] for rank in range(8)
    ]  # fmt: skip
    assert rounds == [[(rank + n) % 8 for n in range(1, 8)] for rank in range(8)]
    assert {schedule.means[x][0] for x in schedule.means_of[gets]} == {"copy_engine"}


def test_ranks_that_lack_the_same_columns_ask_different_owners_first():
    """B by columns, C in a grid of 8 x 16: eight ranks, a node apart, get the tiles of eight other owners.

    Each of these is asked by one at a time, and the multiply takes .70 ms; all asked one first: 1.87 ms.
    """
    machine = umm.machine("h100-8", nodes=16)
    problem = umm.Problem(m=8192, n=28672, k=8192, dtype="bfloat16", a="row", b="col", c="2d", ranks=128)
    schedule = umm.schedule(problem, machine, stationary="C", movement="gathered")
    gets = (schedule.kind == GET) & (schedule.src != schedule.dst) & (schedule.operand_tensors(0) == 1)
    order = [schedule.src[gets & (schedule.dst == rank)].tolist() for rank in range(0, 128, 16)]
    assert all(len(set(owners)) == len(owners) for owners in zip(*order[1:], strict=True))
    assert umm.run(schedule).makespan_s < 0.71e-3


@pytest.mark.parametrize(("size", "most"), [(2048, 1.3), (8192, 1.1)])
def test_starts_of_messages_across_nodes_are_hidden(size, most):
    """Each of 64 ranks gets seven tiles of B, of 128 KiB or 2 MiB, over its own card of 50 GB/s.

    A message takes 5 µs to start and 2.6 or 42 µs to move. Three small ones under way, which start together,
    would take 33 µs, and all seven take 23; of large ones three are enough.
    """
    machine = umm.machine("h100-8", nodes=8)
    problem = umm.Problem(m=size, n=size, k=size, dtype="bfloat16", a="2d", b="2d", c="2d", ranks=64)
    schedule = umm.schedule(problem, machine, stationary="C", movement="gathered")
    trace = umm.run(schedule)
    far = (schedule.kind == GET) & (schedule.src // 8 != schedule.dst // 8) & (schedule.dst == 0)
    assert far.sum() == 7
    took = trace.end[far].max() - trace.start[far].min()
    assert took < most * schedule.nbytes[far].sum() / 50e9
    card = {schedule.lanes.names[x] for x in schedule.lane[far]}
    assert len(card) == (7 if size == 2048 else 3)


def test_a_multiply_is_in_no_chunks_that_make_it_slower():
    """16 rows a rank: eight multiplies of them would each leave most units of a device without a tile."""
    problem = umm.Problem(m=128, n=8192, k=8192, dtype="bfloat16", a="row", b="col", c="col", ranks=8)
    full, parts = (
        umm.run(umm.schedule(problem, "h100-8", stationary="C", movement=x)).makespan_s
        for x in ("gathered", "chunks")
    )
    assert parts <= full


def test_ranks_of_a_node_ask_different_ones_of_another_node_first():
    """Every rank gets its rows of all columns on two nodes of eight H100: card by card, none shared.

    A rank gets eight parts of 1 MiB from the other node over a card of 50 GB/s: 168 µs at the least.
    """
    machine = find_machine("h100-8", {"nodes": "2"})
    problem = umm.Problem(m=16384, n=128, k=8192, a="col", b="row@16", c="row", dtype="bfloat16", ranks=16)
    made = by_collectives(problem, machine, "C", "gathered", Options().to_dict())
    trace = umm.run(made)
    gets = [x for x in trace.to_frame().itertuples() if x.kind == "get"]
    far = [x for x in gets if x.rank // 8 != x.peer // 8]
    first = {}
    for x in sorted(far, key=lambda x: x.start_s):
        first.setdefault(x.rank, x.peer)
    assert first == {rank: (rank + 8) % 16 for rank in range(16)}
    assert max(x.end_s for x in far) < 1.5 * 8 * 2**20 / 50e9


def test_sums_of_gathered_products_have_as_many_adds_in_flight_as_asked():
    """A rank of Aurora adds to eleven others: two at a time, or all at once over all its links."""
    product = umm.chain("mlp", hidden=4096, ffn=4096, tokens=12288, dtype="bfloat16", backward=True)
    machine = find_machine("aurora-12")
    chain = product.laid_out("data", ranks=12)

    def schedule(adds):
        return lower(chain, machine, movement="gathered", max_accumulates=adds)

    def lanes(made):
        return {made.lanes.names[x] for x in made.lane[made.kind == ACCUMULATE]}

    assert lanes(schedule(2)) == {"accumulate.0", "accumulate.1"}
    assert len(lanes(schedule(11))) == 11
    assert umm.run(schedule(11)).makespan_s < 0.8 * umm.run(schedule(2)).makespan_s
