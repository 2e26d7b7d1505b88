"""Random chains by every way that operands come and sums go, on small machines with nodes."""

import random

import numpy as np
from machine_text import GOOD

import umm
from umm.layouts.layout import Layout
from umm.plans.lower import lower
from umm.program import Chain, Map, Multiply
from umm.program.tensors import Tensor
from umm.schedules.races import races
from umm.schedules.rules.invariants import check

NODES = """[fabric]
kind = "tiers"
bandwidth = { value = "10 GB/s", source = "test" }
latency = { value = "1 us", source = "test" }
node_size = { value = SIZE, source = "test" }
[fabric.nic]
owner = "device"
bandwidth = { value = "2 GB/s", source = "test" }
latency = { value = "2 us", source = "test" }
"""
START = '\ncollective_start = { value = "5 us", source = "test" }\n'
MESHES = {4: ("2x2",), 6: ("2x3", "3x2"), 8: ("2x4", "4x2", "2x2x2")}
WAYS = ("gathered", "chunks", "two-level", "auto")


def machine_of_nodes(folder, ranks, size):
    """A machine of so many devices in nodes of a size."""
    path = folder / f"{ranks}-{size}.toml"
    devices = GOOD.replace("value = 4", f"value = {ranks}").replace(
        "[devices.peak]", START + "[devices.peak]"
    )
    path.write_text(devices + NODES.replace("SIZE", str(size)), encoding="utf-8")
    return umm.machine(path)


def machines_of_nodes(folder):
    """Machines of 4, 6 and 8 devices in nodes of 2, or of 4 for the last, by their number of devices."""
    result = {}
    for ranks, size in ((4, 2), (6, 2), (8, 2), (8, 4)):
        result.setdefault(ranks, []).append(machine_of_nodes(folder, ranks, size))
    return result


def drawn_layout(draw, shape, ranks):
    """A block layout over all ranks: of rows, columns or both, with replicas in any place of a mesh."""
    if draw.random() < 0.5:
        mesh = draw.choice(MESHES[ranks])
        axes = "".join(draw.choice("-rc") for _ in mesh.split("x"))
        return Layout.parse(f"2d@{mesh}:{axes}", shape, ranks)
    replicas = draw.choice([c for c in range(1, ranks + 1) if ranks % c == 0])
    order = draw.choice(["", ":interleaved"]) if replicas > 1 else ""
    return Layout.parse(f"{draw.choice(['row', 'col', '2d', '2d:balanced'])}@{replicas}{order}", shape, ranks)


def front_and_back(draw, ranks):
    """A layout of rows front and back, one or two sequences, over all ranks or all places of a mesh."""
    text = draw.choice(["zigzag", "zigzag:2"])
    return (
        text
        if draw.random() < 0.5
        else f"{text}@{draw.choice(MESHES[ranks])}:r-".replace("x2x2:r-", "x2x2:r-r")
    )


def drawn_chain(draw, ranks):
    """Multiplies that share operands and add to each other's results, with maps between.

    Of half the chains most tensors with rows of one size have these front and back.
    """
    sizes, tensors, statements, written = {x: draw.randint(1, 12) for x in "abcd"}, {}, [], set()
    tokens, text = draw.choice(["a", ""]), front_and_back(draw, ranks)

    def tensor(first, second, role):
        name = f"{role[0]}{len(tensors)}"
        shape = sizes[first], sizes[second]
        if first == tokens and draw.random() < 0.8:
            layout = Layout.parse(text, shape, ranks)
        else:
            layout = drawn_layout(draw, shape, ranks)
        tensors[name] = Tensor(name, layout, "float32", role), first + second
        return name

    def some(letters):
        choices = [
            x
            for x, (each, has) in tensors.items()
            if has == letters and (each.role == "input" or x in written)
        ]
        return draw.choice(choices) if choices and draw.random() < 0.7 else tensor(*letters, "input")

    for _ in range(draw.randint(2, 4)):
        m, n, k = draw.sample("abcd", 3)
        trans = [x for x in "ab" if draw.random() < 0.4]
        a, b = some(k + m if "a" in trans else m + k), some(n + k if "b" in trans else k + n)
        choices = [x for x in sorted(written) if tensors[x][1] == m + n and x not in (a, b)]
        last = statements and statements[-1].out
        out = last if last in choices else draw.choice(choices) if choices else tensor(m, n, "output")
        beta = draw.choice([0.0, 1.0, 1.0, -0.5]) if out in written else 0.0
        statements.append(Multiply(out, a, b, tuple(trans), draw.choice([1.0, 0.5]), beta))
        written.add(out)
        if draw.random() < 0.5:
            other = some(m + n)
            if other != out:
                statements.append(Multiply(out, *mates(draw, some, m, n), beta=1.0))
        if draw.random() < 0.3:
            statements.append(Map(out, "scale", (out,), {"factor": 0.5}))
    return Chain("drawn", tuple(x for x, _ in tensors.values()), tuple(statements), ranks)


def mates(draw, some, m, n):
    (k,) = draw.sample([x for x in "abcd" if x not in (m, n)], 1)
    return some(m + k), some(k + n)


def drawn_movement(draw, chain):
    """A way for all multiplies, or one for those of each product."""
    products = dict.fromkeys(x.out for x in chain.statements if isinstance(x, Multiply))
    return draw.choice([draw.choice(WAYS), {name: draw.choice(WAYS) for name in products}])


def assert_case(seed, nodes):
    """Draw a chain, a machine and a way; the schedule is lawful, race-free and right in random orders.

    Returns the way and the schedule.
    """
    draw = random.Random(seed)
    ranks = draw.choice(list(MESHES))
    machine, chain = draw.choice(nodes[ranks]), drawn_chain(draw, ranks)
    movement, stationary = drawn_movement(draw, chain), draw.choice(["auto", "A", "B", "C"])
    schedule = lower(chain, machine, movement=movement, stationary=stationary)
    check(schedule)
    assert not races(schedule), (seed, movement)
    rng = np.random.default_rng(seed)
    operands = {x.name: rng.integers(-3, 4, x.shape).astype(float) for x in chain.tensors if x.is_input}
    expected = chain.reference(operands)
    for order in ({"order": "rows"}, {"order": "random", "seed": seed}):
        trace = umm.run(schedule, executor="numpy", operands=operands, replica=None, **order)
        for name in chain.outputs:
            for replica in trace.results[name]:
                assert np.allclose(replica, expected[name], rtol=1e-12, atol=1e-9), (seed, movement, name)
    return movement, schedule


def assert_on_processes(seed, nodes, mpi):
    """Draw a chain and a way for four ranks in two nodes; processes compute the reference's result."""
    draw = random.Random(seed)
    chain = drawn_chain(draw, 4)
    movement, stationary = drawn_movement(draw, chain), draw.choice("ABC")
    schedule = lower(chain, nodes[4][0], movement=movement, stationary=stationary)
    rng = np.random.default_rng(seed)
    operands = {x.name: rng.integers(-3, 4, x.shape).astype(float) for x in chain.tensors if x.is_input}
    expected, trace = chain.reference(operands), mpi.run(schedule, operands)
    for name in chain.outputs:
        for replica in trace.results[name]:
            assert np.allclose(replica, expected[name], rtol=1e-12, atol=1e-9), (seed, movement, name)
    return movement, schedule
