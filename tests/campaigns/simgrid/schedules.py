"""Random schedules of many kinds, the same ones every time: for SimGrid to play too."""

import random
from dataclasses import replace

import umm
from umm.machines.files import resized
from umm.plans.collectives.hierarchical import MANY
from umm.program.schemes import on_nodes
from umm.schedules.table.details import NO_INTERFERENCE

FLAT = ("flat",)
WAYS = ("two-level", "gathered", "chunks")
CHAINS = ("chains",)
# Machine, ranks (None: any number up to the machine's), how many schedules, fewest and most actions of one,
# and how operands move: the ways of one multiply, or schemes of chains on nodes.
COLLECTIONS = [
    ("pvc-12", None, 160, 1, 3000, FLAT),
    ("h100-8", None, 160, 1, 3000, FLAT),
    ("pvc-12-planes", None, 20, 1, 3000, FLAT),
    ("h200-1", None, 20, 1, 3000, FLAT),
    ("h100-8", 64, 14, 1000, 20000, FLAT),
    ("dgx-h100x4", 64, 6, 1000, 20000, FLAT),
    ("h100-8", 256, 2, 10000, 40000, FLAT),
    ("dgx-h100x4", 256, 1, 10000, 40000, FLAT),
    ("dgx-h100x4 nodes=2", 16, 60, 1, 5000, WAYS),
    ("mi300x-8 nodes=2", 16, 20, 1, 5000, WAYS),
    ("frontera-rtx nodes=3", 12, 20, 1, 5000, WAYS),
    ("dgx-h100x4 nodes=2", 16, 20, 1, 8000, CHAINS),
    ("dgx-h100x4 nodes=5", 40, 6, 1, 20000, CHAINS),
    ("dgx-h100x4 nodes=9", 72, 4, 1, 40000, CHAINS),
]


def collection(machine, ranks, count, fewest, most, ways=FLAT):
    """Return schedules of random problems with random options, interference off."""
    result = umm.machine(machine)
    if ranks and result.device_count != ranks:
        result = resized(result, ranks)
    named = f"{machine} {ranks}" if ways == FLAT else f"{machine} {ranks} {ways}"
    random_numbers = random.Random(named)
    schedules = []
    while len(schedules) < count:
        p = ranks or random_numbers.randint(1, result.default_ranks)
        if ways == CHAINS:
            schedule = scheme(random_numbers, result, p)
        else:
            moves = {} if ways == FLAT else {"movement": random_numbers.choice(ways)}
            schedule = umm.schedule(problem(random_numbers, p), result, **options(random_numbers), **moves)
        if fewest <= len(schedule) <= most:
            still = tuple(means._replace(interference=0.0) for means in schedule.means)
            schedules.append(replace(schedule, interference=NO_INTERFERENCE, means=still))
    return schedules


def scheme(random_numbers, machine, ranks):
    """Return the schedule of a random chain by a scheme that people use on nodes, operands gathered."""
    sizes = {x: random_numbers.choice((96, 512, 1000, 4096)) for x in ("hidden", "ffn", "tokens")}
    name = random_numbers.choice(("mlp", "gated-mlp"))
    chain = umm.chain(name, backward=random_numbers.random() < 0.7, dtype="bfloat16", **sizes)
    nodes = ranks // machine.fabric.near
    over_all = ("megatron", "sequence") if nodes >= MANY else ()  # in waves, and in rounds
    layouts = random_numbers.choice((*on_nodes(nodes, machine.fabric.near), *over_all))
    movement = random_numbers.choice(("auto", "chunks"))
    return umm.schedule(chain.laid_out(layouts, ranks=ranks), machine, movement=movement)


def problem(random_numbers, ranks):
    m, n, k = (random_numbers.choice((96, 1000, 4096, 6007, 12288)) for _ in "mnk")
    a, b, c = (layout(random_numbers, shape, ranks) for shape in ((m, k), (k, n), (m, n)))
    dtype = random_numbers.choice(("float32", "float64"))
    return umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks, dtype=dtype)


def layout(random_numbers, shape, ranks):
    """Return the text of a random layout: any partition, replication and order of replicas."""
    replicas = random_numbers.choice(divisors(ranks))
    rows = random_numbers.choice(divisors(ranks // replicas))
    grid = f"{rows}x{ranks // replicas // rows}"
    kinds = ["row", "col", "2d", f"2d:{grid}", "row:balanced", "col:balanced"]
    if ranks <= 12:
        tile = "x".join(str(-(-size // random_numbers.randint(1, 7))) for size in shape)
        edges = "x".join(edge_list(random_numbers, size) for size in shape)
        kinds += [f"cyclic:{tile}:{grid}", f"edges:{edges}:{grid}"]
    return f"{random_numbers.choice(kinds)}@{replicas}{random_numbers.choice(('', ':interleaved'))}"


def edge_list(random_numbers, size):
    inner = sorted(random_numbers.randint(0, size) for _ in range(random_numbers.randint(0, 4)))
    return "-".join(map(str, (0, *inner, size)))


def divisors(number):
    return [x for x in range(1, number + 1) if number % x == 0]


def options(random_numbers):
    return {
        "stationary": random_numbers.choice("ABC"),
        "prefetch": random_numbers.randint(0, 3),
        "max_gemms": random_numbers.randint(1, 3),
        "max_accumulates": random_numbers.randint(1, 3),
        "offset": random_numbers.choice(("none", "index", "rotate")),
        "granularity": random_numbers.choice(("tile", "slice")),
        "reuse": random_numbers.choice((True, False)),
        "final": random_numbers.choice(("reduce", "broadcast")),
    }
