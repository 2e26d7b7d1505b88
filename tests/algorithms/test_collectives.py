"""Collectives: right in any order among any ranks, in the time they must take, else refused."""

import csv
import doctest
from functools import cache
from math import ceil, log2
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_text import GOOD

import umm
from umm.algorithms.writing import counted
from umm.errors import MachineError, ProblemError, ScheduleError
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.plans.collectives import direct, hierarchical, ring, tree
from umm.plans.collectives.closed_forms import bandwidth, closed_form
from umm.plans.collectives.collective import lowered, possible, refusals, ways
from umm.plans.collectives.program import Collective
from umm.plans.collectives.rings import cycle, ring_of
from umm.plans.collectives.way import COLLECTIVES, Exchange, Manner
from umm.program import Chain, Sum
from umm.program.tensors import Tensor
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm.schedules.writer.builder import Builder

RANKS = (1, 2, 3, 4, 6, 8)
KIND = {"grid": "mesh", "hierarchical": "tiers"}
DIMENSIONS = 'shape = { value = [2, HALF], source = "test" }\n'
CARD = """node_size = { value = 2, source = "test" }
[fabric.nic]
owner = "device"
bandwidth = { value = "2 GB/s", source = "test" }
latency = { value = "2 us", source = "test" }
"""
LINK = 'bandwidth = { value = "10 GB/s", source = "test" }\nlatency = { value = "1 us", source = "test" }\n'


@pytest.mark.parametrize(
    "sides", [(2, 3), (3, 2), (3, 4), (5, 2), (2, 2, 3), (3, 3, 2), (3, 2, 3), (4, 1, 4)]
)
def test_a_cycle_of_a_box_with_an_even_side_goes_from_neighbour_to_neighbour(sides):
    """The last is beside the first, too: a ring crosses one link at a time."""
    cells = np.array(cycle(sides))
    assert len({*map(tuple, cells.tolist())}) == len(cells) == np.prod(sides)
    assert (np.abs(cells - np.roll(cells, 1, axis=0)).sum(axis=1) == 1).all()


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Makes a machine of equal devices: a switch, a ring, a mesh of two rows, or nodes of two devices."""
    folder = tmp_path_factory.mktemp("machines")

    @cache
    def machine(kind, devices):
        text = GOOD.replace("value = 4", f"value = {devices}").replace("value = 0.8", "value = 1.0")
        extra = {"mesh": DIMENSIONS.replace("HALF", str(devices // 2)), "tiers": CARD}.get(kind, "")
        path = folder / f"{kind}-{devices}.toml"
        path.write_text(f'{text}[fabric]\nkind = "{kind}"\n{LINK}{extra}', encoding="utf-8")
        return umm.machine(path)

    return machine


@pytest.fixture(scope="session")
def suiting(made):
    """Gives a machine on which a way can do something among so many ranks, if there is one."""

    def found(way, ranks):
        kind = KIND.get(way, "switch")
        even = ranks % 2 == 0 and ranks >= 4
        return made(kind if even else "switch", max(ranks, 2))

    return found


def operands(asked, seed=0):
    """Whole numbers, for a sum a slice for each rank, so that every order gives the same."""
    (x, *_), rng = asked.chain.tensors, np.random.default_rng(seed)
    shape = (x.layout.replicas, *x.shape) if isinstance(asked.chain.statements[0], Sum) else x.shape
    return {"X": rng.integers(-8, 9, shape).astype(asked.dtype)}


def assert_right(asked, schedule, **options):
    """All replicas of the results equal the chain's reference, bit for bit."""
    given_ = operands(asked)
    result = umm.run(schedule, operands=given_, replica=None, **{"executor": "numpy", **options}).results
    (out,) = asked.chain.outputs
    expected = asked.chain.reference(given_)[out]
    assert np.array_equal(result[out], np.broadcast_to(expected, result[out].shape))


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(
    "way", ["ring", "direct", "tree", "star", "halving-doubling", "hierarchical", "grid"]
)
@pytest.mark.parametrize("what", COLLECTIVES)
def test_a_collective_is_right_in_every_order_or_refused(suiting, what, way, p):
    """Uneven pieces and fewer elements than ranks, in row order and in a random one; nothing races."""
    machine = suiting(way, p)
    for elements in (3 * p + 1, 1):
        asked = Collective(what, 4 * elements, p, root=p // 2)
        if refusals(asked, machine)[way] is not None:
            with pytest.raises(ScheduleError, match=f"{way} cannot do {what} among .*; choose from .*ring"):
                lowered(asked, machine, way)
            return
        schedule = lowered(asked, machine, way)
        check(schedule)
        assert_right(asked, schedule)
        assert_right(asked, schedule, order="random", seed=p)
        assert not races(schedule)


@pytest.mark.parametrize("what", ["all-gather", "reduce-scatter", "all-reduce"])
@pytest.mark.parametrize(("nodes", "p"), [(2, 10), (2, 12), (2, 15), (3, 20)])
def test_several_rings_are_right_among_nodes_of_unlike_numbers(what, nodes, p):
    """8 ranks in one node and 2, 4 or 7 in another, or 8, 8 and 4; parts that no number of rings divides."""
    for elements in (3 * p + 1, 1):
        asked, machine = Collective(what, 4 * elements, p), umm.machine("h100-8", nodes=nodes)
        schedule = lowered(asked, machine, "rings")
        check(schedule)
        assert_right(asked, schedule)
        assert_right(asked, schedule, order="random", seed=p)
        assert not races(schedule)


def test_several_rings_use_as_many_cards_as_the_smaller_node_has():
    """8 and 4 ranks: four rings of 22/12 · 256 MiB each over four cards of 50 GB/s; one ring has one card."""
    machine = umm.machine("h100-8", nodes=2)
    took = {way: seconds("all-reduce", machine, way, 2**28, ranks=12) for way in ("ring", "rings")}
    assert 22 / 12 * 2**28 / (4 * 50e9) < took["rings"] < 0.55 * took["ring"]
    with pytest.raises(ScheduleError, match="rings cannot do all-reduce among"):
        umm.collective("all-reduce", nbytes=2**20, machine=machine, algorithm="rings", ranks=16)


@pytest.mark.parametrize(
    ("p", "nbytes", "name", "messages"),
    [
        (7, 2**21, "mpi-tree", 6),
        (8, 4, "mpi-tree", 7),
        (8, 2**14, "mpi-scatter-doubling", 7 + 7 * 3),
        (8, 2**19, "mpi-scatter-ring", 7 + 7 * 7),
        (9, 2**14 + 4, "mpi-scatter-ring", 8 + 8 * 8),
        (19, 2**14, "mpi-scatter-ring", 18 + 18 * 5 + 13),  # 13 go past the last part
    ],
)
def test_a_broadcast_of_mpi_is_as_mpich_chooses_by_ranks_and_bytes(p, nbytes, name, messages):
    """A tree below 8 ranks or 12 KiB; else parts are scattered and gathered, on a ring of up to 16 ranks."""
    asked = Collective("broadcast", nbytes, p, root=p // 2)
    schedule = lowered(asked, umm.machine("h100-8", nodes=3), "mpi")
    assert (schedule.name, counted(schedule).messages_received.sum()) == (name, messages)
    check(schedule)
    assert_right(asked, schedule, order="random", seed=p)
    assert not races(schedule)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_any_size_root_and_manner_gives_what_the_chain_says(suiting, data):
    """Elements, root, directions, chunks and type are free."""
    p = data.draw(st.sampled_from(RANKS), "ranks")
    what, way = (
        data.draw(st.sampled_from(COLLECTIVES), "what"),
        data.draw(st.sampled_from(list(ways())), "way"),
    )
    machine = suiting(way, p)
    asked = Collective(
        what,
        data.draw(st.integers(1, 400), "bytes"),
        p,
        data.draw(st.sampled_from(["float32", "float64", "float16"]), "dtype"),
        data.draw(st.integers(0, p - 1), "root"),
    )
    if way not in possible(asked, machine):
        return
    manner = Manner(data.draw(st.sampled_from([1, 2])), None, data.draw(st.sampled_from([None, 1, 3])))
    schedule = lowered(asked, machine, way, manner)
    check(schedule)
    assert_right(asked, schedule, order="random", seed=data.draw(st.integers(0, 99), "seed"))
    assert umm.run(schedule).makespan_s >= 0.999 * closed_form(what, asked.nbytes, machine, p, asked.root)


# Subsets and composition ---------------------------------------------------------------------------


def whole(build, name="X"):
    """Each rank's slice of a tensor that every rank has in full."""
    return [build.tile(name, 0, 0, replica=rank) for rank in range(build.ranks)]


def in_place(machine, shape=(3, 5)):
    """A matrix that every rank has a copy of its own of, and a Builder for it."""
    p = machine.device_count
    tensor = Tensor("X", Layout.parse(f"row@{p}", shape, p), "float64", "both")
    return Builder("part", Chain("part", (tensor,), (Sum("X", "X"),), p), machine)


@pytest.mark.parametrize("way", ["ring", "direct", "tree"])
@pytest.mark.parametrize("subset", [(1, 4, 6), (7, 0, 3, 2), (5,)])
def test_an_all_reduce_among_some_ranks_leaves_the_others_alone(way, subset):
    build = in_place(umm.machine("h100-8"))
    pieces = whole(build)
    ways()[way].writers["all-reduce"](Exchange(build, subset, pieces.__getitem__, pieces.__getitem__))
    schedule = build.schedule()
    given_ = np.random.default_rng(0).integers(-8, 9, (8, 3, 5)).astype(float)
    expected = given_.copy()
    expected[list(subset)] = given_[list(subset)].sum(axis=0)
    for seed in range(3):
        results = umm.run(schedule, "numpy", {"X": given_}, replica=None, order="random", seed=seed).result
        assert np.array_equal(results, expected)
    assert not races(schedule)


def test_collectives_of_rows_and_columns_compose():
    """Sums along the rows of a 2x4 grid of ranks, then along its columns, are sums of all."""
    build = in_place(umm.machine("h100-8"))
    tile = whole(build).__getitem__
    for row in range(2):
        ring.WAY.writers["all-reduce"](Exchange(build, range(4 * row, 4 * row + 4), tile, tile))
    for col in range(4):
        direct.WAY.writers["all-reduce"](Exchange(build, (col, col + 4), tile, tile))
    given_ = np.random.default_rng(0).integers(-8, 9, (8, 3, 5)).astype(float)
    schedule = build.schedule()
    for seed in range(3):
        results = umm.run(schedule, "numpy", {"X": given_}, replica=None, order="random", seed=seed).result
        assert np.array_equal(results, np.broadcast_to(given_.sum(axis=0), results.shape))


@pytest.mark.parametrize("way", [ring.WAY, tree.WAYS[0], direct.WAY, hierarchical.WAY], ids=lambda x: x.name)
def test_what_is_given_is_kept_where_running_sums_have_room_of_their_own(made, way):
    """Without room a rank takes temporaries for running sums: X is as before but at rank 1."""
    build = in_place(made("tiers", 4), (1, 8))
    pieces = whole(build)
    into = build.temporary(1, "X", *pieces[1][-2:])
    way.writers["reduce"](Exchange(build, range(4), pieces.__getitem__, into))
    build.get(into, pieces[1])
    given_ = np.random.default_rng(0).integers(-8, 9, (4, 1, 8)).astype(float)
    expected = given_.copy()
    expected[1] = given_.sum(axis=0)
    results = umm.run(build.schedule(), "numpy", {"X": given_}, replica=None, order="random").result
    assert np.array_equal(results, expected)


# Time ----------------------------------------------------------------------------------------------


def seconds(what, machine, way="ring", nbytes=2**30, **options):
    schedule = umm.collective(what, nbytes=nbytes, machine=machine, algorithm=way, **options)
    return umm.run(schedule).makespan_s


@pytest.mark.parametrize("devices", [2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize(("what", "factor"), [("all-gather", 1), ("reduce-scatter", 1), ("all-reduce", 2)])
def test_a_ring_in_two_directions_takes_v_over_w(made, what, factor, devices):
    """(D − 1)/D · V/W, within 1 %; W is 20 GB/s, two links, or one where there are two devices."""
    expected = factor * (devices - 1) / devices * 2**30 / (10e9 if devices == 2 else 20e9)
    assert seconds(what, made("ring", devices)) == pytest.approx(expected, rel=0.01)
    assert closed_form(what, 2**30, made("ring", devices), devices) == pytest.approx(expected)


@pytest.mark.parametrize(("link", "factor"), [("g0-down", 1), ("g3-down", 10)])
def test_a_broadcast_enters_every_rank_but_its_root(link, factor):
    plain, slow = umm.machine("h100-8"), umm.machine("h100-8", {f"link.{link}.bandwidth": "x0.1"})
    times = [closed_form("broadcast", 1e9, machine, 8, root=0) for machine in (plain, slow)]
    assert times[1] == pytest.approx(factor * times[0])


def test_relays_of_a_ring_alternate_between_two_slots(made):
    """Each way round among 8: one for journeys of two hops, two for those of three and for those of four."""
    schedule = umm.collective("all-to-all", nbytes=8 * 2**10, machine=made("ring", 8), algorithm="ring")
    assert {len(slots) for slots in schedule.pools} == {2 * (1 + 2 + 2)}


@pytest.mark.parametrize("devices", [4, 5, 7, 8])
def test_an_all_to_all_on_a_ring_takes_d_v_over_4w(made, devices):
    """Of a rank's buffer V: D · V/(4W) for even D, (1 − 1/D²) of it for odd D."""
    nbytes = devices * 2**23
    expected = (1 - (devices % 2) / devices**2) * devices * nbytes / (4 * 20e9)
    assert seconds("all-to-all", made("ring", devices), nbytes=nbytes) == pytest.approx(expected, rel=0.01)
    assert closed_form("all-to-all", nbytes, made("ring", devices), devices) == pytest.approx(expected)


@pytest.mark.parametrize("what", ["broadcast", "reduce"])
def test_a_broadcast_in_chunks_comes_near_to_v_over_w(made, what):
    """The last chunk has two more hops to go; 64 chunks follow each other."""
    assert seconds(what, made("ring", 4)) == pytest.approx(2**30 / 20e9 * (1 + 2 / 64), rel=0.005)


def test_relayed_collectives_of_a_mesh_take_v_over_w_where_direct_gets_do_not():
    """A corner of the 4x4 mesh has two links, so W is 100 GB/s; direct gets cross the middle often."""
    machine = umm.machine("tpu-v5e-16")
    assert bandwidth(machine, 16) == 100e9
    for way in ("ring", "grid"):
        assert seconds("all-gather", machine, way) == pytest.approx(2**30 / 100e9 * 15 / 16, rel=0.01)
    assert seconds("all-gather", machine, "direct") > 2.4 * 2**30 / 100e9


def test_a_means_of_the_machine_moves_the_bytes(tmp_path):
    """Half of the links' bandwidth, and 5 µs before each of the two hops."""
    means = """[devices.means.kernel]
interference = { value = 0.3, source = "test" }
efficiency = { value = 0.5, source = "test" }
overhead = { value = "5 us", source = "test" }
"""
    path = tmp_path / "machine.toml"
    path.write_text(f'{GOOD}{means}[fabric]\nkind = "ring"\n{LINK}', encoding="utf-8")
    machine = umm.machine(path)
    plain = seconds("all-gather", machine)
    assert seconds("all-gather", machine, means="kernel") == pytest.approx(2 * plain + 2e-6, rel=1e-3)
    schedule = umm.collective("all-gather", nbytes=64, machine=machine, algorithm="ring", means="kernel")
    assert [(x.name, x.interference) for x in schedule.means] == [("kernel", 0.3)]


@pytest.mark.parametrize("what", COLLECTIVES)
def test_a_saved_collective_is_the_same_again(what):
    schedule = umm.collective(what, nbytes=100, machine="h100-8", algorithm="ring", root=3)
    again = umm.Schedule.from_json(schedule.to_json())
    assert umm.run(again).makespan_s == umm.run(schedule).makespan_s
    assert str(again) == str(schedule)


def test_one_direction_takes_twice_as_long(made):
    machine = made("ring", 8)
    both = seconds("all-gather", machine)
    assert seconds("all-gather", machine, directions=1) == pytest.approx(2 * both, rel=0.01)


def test_between_nodes_two_tiers_beat_one():
    """Four nodes of eight: only shares cross the cards."""
    machine = umm.machine("dgx-h100x4")
    times = {way: seconds("all-gather", machine, way) for way in ("hierarchical", "ring", "direct")}
    assert times["hierarchical"] < 0.5 * min(times["ring"], times["direct"])


@pytest.mark.parametrize(
    ("name", "nodes", "nbytes"),
    [
        *((*machine, 2**x) for machine in (("dgx-h100x4", None), ("h100-8", 2)) for x in (20, 25, 28)),
        ("mi300x-8", 2, 2**25), ("mi300x-8", 2, 2**28), ("h100-8", None, 2**28), ("mi300x-8", None, 2**28),
    ],
)  # fmt: skip
def test_a_broadcast_or_a_reduce_takes_no_longer_than_an_all_reduce(name, nodes, nbytes):
    """Each byte reaches a node once, not twice; moves inside nodes overlap moves between them."""
    machine = umm.machine(name, nodes=nodes) if nodes else umm.machine(name)
    times = {what: seconds(what, machine, None, nbytes) for what in ("broadcast", "reduce", "all-reduce")}
    assert max(times["broadcast"], times["reduce"]) <= times["all-reduce"]


def test_small_buffers_are_fastest_in_few_steps(made):
    """A kilobyte among 16 on a switch: four doublings beat eight hops and fifteen gets on two lanes."""
    fastest = umm.collective("all-gather", nbytes=2**10, machine=made("switch", 16))
    assert fastest.name == "halving-doubling"


@pytest.mark.parametrize(
    ("name", "ranks", "order", "closed"),
    [
        ("tpu-v5e-4", range(4), (0, 1, 3, 2), True),
        ("tpu-v5e-16", range(4), (0, 1, 2, 3), False),
        ("h100-8", range(8), tuple(range(8)), True),
        ("h100-8", (5, 2), (5, 2), False),
    ],
)
def test_a_ring_joins_physical_neighbours(name, ranks, order, closed):
    """Round a mesh; along a row of it, whose ends are apart; in the order given on a switch."""
    machine = umm.machine(name)
    assert ring_of(machine, tuple(ranks), machine.device_count) == (order, closed)


def test_every_neighbour_in_the_ring_of_a_mesh_is_one_hop_away():
    machine = umm.machine("tpu-v5e-16")
    order, closed = ring_of(machine, tuple(range(16)), 16)
    assert closed
    for rank, after in zip(order, (*order[1:], order[0]), strict=True):
        links = [machine.link_names[link] for link in machine.route(rank, after)]
        assert [name for name in links if "→" in name] == [f"g{rank}→g{after}"]


# Words and messages --------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/reference/collectives.md"
PLACES = {"hierarchical": "dgx-h100x4", "grid": "tpu-v5e-16", "rings": "dgx-h100x4"}
OF_WAY = {"rings": 12}


# Words over V and messages of 8 ranks of h100-8, 32 of dgx-h100x4 (12 of rings), 16 of tpu-v5e-16; 8 chunks.
MOVED = {
    "all-gather, reduce-scatter": {
        "ring": (0.875, 8), "direct": (0.875, 7), "library": (0.875, 7), "halving-doubling": (0.875, 3),
        "hierarchical": (0.96875, 31), "grid": (1.5625, 50), "rings": (11 / 12, 48),
    },
    "all-reduce": {
        "ring": (1.75, 16), "direct": (1.75, 14), "library": (1.75, 14), "two-shot": (1.75, 14),
        "one-shot": (7, 7), "multimem": (1.75, 14), "halving-doubling": (1.75, 6), "tree": (3, 3),
        "star": (7, 7), "hierarchical": (1.9375, 62), "grid": (2.5, 80), "rings": (22 / 12, 96),
    },
    "all-to-all": {"ring": (2, 20), "direct": (0.875, 7), "library": (0.875, 7)},
    "broadcast, reduce": {
        "ring": (1, 16), "direct": (7, 7), "tree": (3, 3), "hierarchical": (1.125, 128),
        "library": (1, 112),
    },
    "broadcast": {"mpi": (1.75, 6)},
}  # fmt: skip
EACH = [
    (what, way, *moved)
    for whats, by_way in MOVED.items()
    for what in whats.split(", ")
    for way, moved in by_way.items()
]


def tabled():
    """The ways of every collective that the page's table has."""
    whats = ""
    with PAGE.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        for cells in list(csv.reader(file))[1:]:
            whats = cells[0] or whats
            yield from ((what, way) for what in whats.split(", ") for way in cells[1].split(", "))


def test_the_page_lists_every_way_of_every_collective():
    exist = {(what, name) for name, way in ways().items() for what in way.writers}
    assert set(tabled()) == {x[:2] for x in EACH} == exist


@pytest.mark.parametrize(("what", "way", "words", "messages"), EACH)
def test_words_and_messages_are_those_of_the_page_s_formulas(what, way, words, messages):
    """Counted from the schedule."""
    elements, machine = 3 * 2**13, PLACES.get(way, "h100-8")
    asked = {"nbytes": 4 * elements, "machine": machine, "chunks": 8, "ranks": OF_WAY.get(way)}
    moved = counted(umm.collective(what, algorithm=way, **asked))
    assert (moved.words / elements, moved.messages) == (words, messages)


@pytest.mark.parametrize("p", [3, 5, 7])
def test_an_odd_ring_sends_no_halves(made, p):
    """p − 1 messages of a p-th; (p − 1/p)/4 of an all-to-all's words."""
    elements = p * p * 8
    asked = {"nbytes": 4 * elements, "machine": made("ring", p), "algorithm": "ring"}
    gathered = counted(umm.collective("all-gather", **asked))
    assert (gathered.words, gathered.messages) == (elements * (p - 1) // p, p - 1)
    exchanged = counted(umm.collective("all-to-all", **asked))
    assert exchanged.words == elements * (p * p - 1) // (4 * p)


@pytest.mark.parametrize("what", ["broadcast", "reduce"])
def test_a_chain_has_as_many_chunks_as_its_slow_links_ask_for(what):
    """pvc-12: 230 GB/s inside a GPU, 20 between; chunks for the first, fast hop took 14 to 19 % longer."""
    traces = {
        chunks: umm.run(umm.collective(what, nbytes=2**20, machine="pvc-12", algorithm="ring", chunks=chunks))
        for chunks in (None, 1, 2, 3, 4, 5, 6, 8, 12)
    }
    least = min(trace.makespan_s for trace in traces.values())
    assert traces[None].makespan_s < 1.03 * least


def test_the_examples_of_the_page_hold():
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0


def test_a_tree_has_as_many_turns_as_it_takes_to_double(made):
    """Six ranks: three turns, and the root sends in each of them."""
    moved = counted(umm.collective("broadcast", nbytes=400, machine=made("ring", 6), algorithm="tree"))
    assert moved.messages_sent.tolist() == [ceil(log2(6)), 2, 0, 0, 0, 0]
    assert moved.messages_received.tolist() == [0, 1, 1, 1, 1, 1]


# Refusals ------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_in_one_line_with_what_would_work():
    h100 = umm.machine("h100-8")

    def refused(*args, error=ScheduleError, **options):
        with pytest.raises(error) as caught:
            umm.collective(*args, **{"nbytes": 8, "machine": h100, **options})
        return str(caught.value)

    assert refused("all-gather", algorithm="halving-doubling", ranks=6) == (
        "halving-doubling cannot do all-gather among 6 ranks of h100-8: 6 ranks are not a power of two; "
        "choose 4 or 8; choose from direct, library, ring"
    )
    assert refused("all-to-all", algorithm="tree").endswith(
        "it does only all-reduce, broadcast, reduce; choose from direct, library, ring"
    )
    assert "lie on no mesh or torus" in refused("all-gather", algorithm="grid")
    assert "no nodes" in refused("all-gather", algorithm="hierarchical")
    assert "choose from direct" in refused("all-gather", algorithm="bruck")
    assert "choose 1 or 2" in refused("all-gather", algorithm="ring", directions=3)
    assert "no means 'magic'" in refused("all-gather", algorithm="ring", means="magic")
    assert "choose from all-gather" in refused("gather", error=ProblemError)
    assert "root 8" in refused("broadcast", root=8, error=ProblemError)
    assert "must be a whole number ≥ 1" in refused("reduce", nbytes=0, error=ProblemError)
    assert "choose from 1 to 8" in refused("reduce", ranks=9, error=MachineError)


def test_ranks_that_fill_no_nodes_are_refused():
    machine = umm.machine("dgx-h100x4")
    for ranks, why in ((8, "8 ranks are all in one node"), (12, "its nodes hold 8, 4 of the 12 ranks")):
        with pytest.raises(ScheduleError, match=why):
            umm.collective("all-gather", nbytes=8, machine=machine, algorithm="hierarchical", ranks=ranks)


# Real processes ------------------------------------------------------------------------------------


@pytest.mark.mpi
def test_collectives_are_right_between_processes(made, lent):
    """Four ranks, two nodes of two: relays, running sums and chunks wait for each other's signals."""
    from umm_hw.mpi.executor import MpiExecutor

    executor = MpiExecutor(job=lent(4), replica=None)
    for what in COLLECTIVES:
        asked = Collective(what, 4 * 1001, 4, root=1)
        for way in possible(asked, made("tiers", 4)):
            schedule = lowered(asked, made("tiers", 4), way, Manner(chunks=3))
            given_ = operands(asked)
            results = executor.run(schedule, given_).result
            (out,) = asked.chain.outputs
            assert np.array_equal(
                results, np.broadcast_to(asked.chain.reference(given_)[out], results.shape)
            ), (what, way)


def test_pieces_of_a_matrix_are_cut_along_its_longer_side():
    """Halves of a 1x8 row are 1x4; of a 4x8 tile two rows each."""
    build = in_place(umm.machine("h100-8"), (4, 8))
    from umm.plans.collectives.way import parted

    tile = whole(build)[0]
    assert parted(tile, 0, 2).rows == Interval(0, 2)
    assert parted(tile._replace(rows=Interval(0, 1)), 1, 2).cols == Interval(4, 8)
