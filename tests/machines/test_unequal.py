"""One device, link or card that is not like the others."""

import numpy as np
import pytest

import umm
from umm.errors import MachineError
from umm.machines import machine
from umm.machines.build import build
from umm.plans.lower import lower
from umm.program.mixture import each_by_itself, in_8_bits
from umm.program.presets import PRESETS
from umm.program.systems import choices_left, in_scheme, of_experts


def seconds(result, **choices):
    problem = umm.Problem(m=4096, n=4096, k=4096, dtype="bfloat16", **choices)
    return umm.run(umm.schedule(problem, result, stationary="C")).makespan_s


def test_a_device_at_half_its_peak_computes_for_twice_as_long():
    """No communication: a kernel starts, then the arithmetic of 1/8 of C, twice as long on device 3."""
    even, uneven = machine("h100-8"), machine("h100-8", {"device.3.peak": "x0.5"})
    alone = {"a": "row", "b": "row@8", "c": "row"}
    launch = even.gemm_start("bfloat16")
    assert seconds(uneven, **alone) - launch == pytest.approx(2 * (seconds(even, **alone) - launch))
    assert uneven.total_peak("bfloat16", 8) == pytest.approx(7.5 * 989e12)


def test_a_device_with_a_tenth_of_its_memory_bandwidth_waits_for_memory():
    """4096 x 4096 times a vector reads a twelfth of A a rank: on tile 0.0 ten times as long."""
    even, uneven = machine("pvc-12"), machine("pvc-12", {"device.0.0.memory_bandwidth": "x0.1"})
    problem = umm.Problem(m=4096, n=1, k=4096, dtype="float32", a="row", b="row@12", c="row")
    took = [umm.run(umm.schedule(problem, x)).makespan_s - x.launch_s for x in (even, uneven)]
    assert took[1] == pytest.approx(10 * took[0])


def test_a_factor_of_one_is_the_same_machine():
    even, named = machine("h100-8"), machine("h100-8", {"device.3.peak": "x1"})
    assert named == even
    assert named.paces is None


def test_a_link_between_two_devices_is_slow_both_ways_and_others_are_not():
    """On pvc-12 each ordered pair of tiles has its own link."""
    even, uneven = machine("pvc-12"), machine("pvc-12", {"link.0.0-1.0.bandwidth": "x0.25"})
    slow = np.nonzero(uneven.link_bandwidth != even.link_bandwidth)[0].tolist()
    assert [uneven.link_names[link] for link in slow] == ["0.0→1.0", "1.0→0.0"]
    assert (uneven.link_bandwidth[slow] == even.link_bandwidth[slow] / 4).all()


def test_devices_on_a_switch_have_their_ports_for_a_link():
    uneven = machine("h100-8", {"link.g0-g1.bandwidth": "100 GB/s", "link.g5-up.latency": "9 us"})
    at = dict(zip(uneven.link_names, uneven.link_bandwidth, strict=True))
    assert [at[x] for x in ("g0 up", "g0 down", "g1 up", "g1 down", "g2 up")] == [1e11] * 4 + [374e9]
    overhead = 3e-6  # of every transfer, which the port out of its source carries
    assert uneven.link_latency[uneven.link_names.index("g5 up")] == 9e-6 + overhead


@pytest.mark.parametrize(("name", "link"), [
    ("h100-8", "link.g0-up"), ("dgx-h100x4", "nic.0"), ("h100-8 nodes=2", "link.g0-up"),
    ("h100-8 nodes=2", "nic.9"), ("pvc-12", "link.0.0-1.0"),
])  # fmt: skip
def test_the_latency_of_a_link_that_is_set_to_what_it_is_changes_nothing(name, link):
    """The time that every transfer takes beside it was taken away, or multiplied with it."""
    even = machine(name)
    for text in ("x1", "x2"):
        uneven = machine(name, {f"{link}.latency": text})
        more = uneven.link_latency - even.link_latency
        changed = more[more > 1e-12]
        assert len(changed) == (0 if text == "x1" else 1 if link.endswith("up") else 2)
        assert changed.max(initial=0.0) < 2e-6


@pytest.mark.parametrize(
    ("result", "crossed"),
    [
        (machine("dgx-h100x4", {"nic.7": "down"}), ["g7 up", "g0 down", "g0 nic out", "g8 nic in"]),
        (machine("dgx-h100x4", {"nic.8": "down"}), ["g7 nic out", "g9 nic in", "g9 up", "g8 down"]),
        (
            machine("dgx-h100x4", {"nic.7": "down", "nic.0": "down"}),
            ["g7 up", "g1 down", "g1 nic out", "g8 nic in"],
        ),
    ],
)
def test_what_would_cross_a_card_that_is_down_crosses_the_next_of_its_node(result, crossed):
    assert [result.link_names[link] for link in result.route(7, 8)] == crossed


def test_two_devices_that_share_a_card_are_slower_between_nodes():
    """Each device sends to its like in the other node; the last card is down, so card 0 serves two."""
    even, uneven = machine("h100-8", nodes=2), machine("h100-8", {"nic.7": "down"}, nodes=2)
    full = {"a": "row", "b": "col", "c": "row"}
    assert seconds(uneven, ranks=16, **full) > seconds(even, ranks=16, **full)


def test_a_file_says_the_same_under_apart():
    even = machine("h100-8")
    apart = {"device.3.peak": {"value": "x0.5", "source": "throttles"}}
    result = build({**even.document, "apart": apart}, even.source_path, "mine")
    assert result.paces.peak.tolist() == [1, 1, 1, 0.5, 1, 1, 1, 1]
    assert any(fact.key == "apart.device.3.peak" for fact in result.facts)


@pytest.mark.parametrize(
    ("key", "value", "result"),
    [
        ("device.99.peak", "x0.5", "no device '99'; choose from 0 to 7"),
        ("device.3.memory", "x0.5", "of one device peak and memory_bandwidth can"),
        ("device.3.peak", "500Tflop/s", "write a factor such as x0.5"),
        ("device.3.peak", "x0", "must be more than 0"),
        ("link.g0-g99.bandwidth", "x0.5", "no link 'g0-g99'; name two devices such as g0-g7"),
        ("link.g0-up.bandwidth", "fast", "or write a factor"),
        ("nic.0", "down", "no network cards"),
        ("device.peak", "x0.5", r"device\.peak names no device; write device\.0\.peak for one of them"),
    ],
)
def test_what_cannot_be_set_apart_is_refused_in_a_line(key, value, result):
    with pytest.raises(MachineError, match=result) as caught:
        machine("h100-8", {key: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["nic*", "nic*bandwidth", "card.bandwidth"])
def test_who_asks_for_cards_by_another_name_gets_theirs(key):
    with pytest.raises(MachineError, match=r"cards it has fabric\.network\.card\.bandwidth, fabric"):
        machine("h100-8", {key: "x0.5"}, nodes=2)


def test_the_last_card_of_a_node_cannot_be_down():
    with pytest.raises(MachineError, match=r"nic\.3 cannot be down; its node has no other card left"):
        machine("frontera-rtx", {"nic.3": "down"})


def test_a_search_with_a_slow_device_finds_the_best_of_the_whole_space():
    """Proven best with device 0 at a tenth: no makespan of all points is below it."""
    uneven = machine("h100-8", {"device.0.peak": "x0.1"})
    space = umm.Space(m=512, n=512, k=512, ranks=2, partitions=("row", "col"), dtype="bfloat16")
    result = umm.search(space, uneven)
    points = space.searched.on(2).points()
    every = [umm.run(points.schedule(point, uneven)).makespan_s for point in points.allowed.tolist()]
    assert result.proven
    assert result.top[0].makespan_s == pytest.approx(min(every))


AUTO = {"stationary": "auto", "movement": "auto"}
SIZES = {"tokens": 256, "hidden": 512, "ffn": 1024, "heads": 8, "experts": 8, "top_k": 2, "vocab": 512}


def chains_on_four():
    """Every chain with its gradients, in each of its layouts and in one more scheme of data groups."""
    for name, preset in PRESETS.items():
        sizes = {key: value for key, value in SIZES.items() if key in ("tokens", *preset.sizes)}
        outline = umm.chain(name, dtype="bfloat16", backward=True, **sizes)
        for way in [*outline.layouts, "ep2-dp2" if outline.has_experts else "fsdp2-tp2"]:
            yield pytest.param(outline, way, id=f"{name}-{way}")


def slow_device_costs(chain, name, how):
    """Return the seconds with equal devices and with one whose numbers are a quarter of the others'."""
    slow = {"device.1.peak": "x0.25", "device.1.memory_bandwidth": "x0.25"}
    return [umm.run(lower(chain, machine(name, x), **how)).makespan_s for x in ({}, slow)]


@pytest.mark.parametrize(("outline", "way"), [*chains_on_four()])
def test_every_statement_takes_longer_with_a_slow_device(outline, way):
    """A quarter of the peak and of the memory bandwidth: between no faster and four times as slow."""
    if way in outline.layouts:
        laid, how = outline.laid_out(way, 4), AUTO
    elif way.startswith("ep"):
        laid, how = of_experts(way, outline, 4).laid_out(way, 4), AUTO
    else:
        changed = in_scheme(way, outline, 4)
        laid = changed.laid_out(changed.layouts_of(way, 4), 4)
        how = choices_left(laid, AUTO, way)
    even, uneven = slow_device_costs(laid, "h100-8", how)
    assert even <= uneven < 4.1 * even


@pytest.mark.parametrize("name", ["h100-8", "b200-8", "mi300x-8", "pvc-12", "tpu-v5e-4"])
@pytest.mark.parametrize("moved", [lambda x: x, each_by_itself, in_8_bits])
def test_a_mixture_takes_longer_with_a_slow_device_on_any_machine(name, moved):
    """Grouped kernels by their own rate or as other multiplies, with a library's kernels or by roofline."""
    sizes = {"tokens": 64, "hidden": 128, "ffn": 128, "experts": 4, "top_k": 2, "dtype": "bfloat16"}
    even, uneven = slow_device_costs(moved(umm.chain("moe", **sizes)).laid_out("expert", 4), name, AUTO)
    assert even <= uneven < 4.1 * even
