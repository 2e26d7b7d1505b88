"""Random schedules of many kinds, the same ones every time: for SimGrid to play too."""

import random
from dataclasses import replace

import umm
from umm.machines.files import resized
from umm.schedules.table.details import NO_INTERFERENCE

# Machine, ranks (None: any number up to the machine's), how many schedules, fewest and most actions of one.
COLLECTIONS = [
    ("pvc-12", None, 160, 1, 3000),
    ("h100-8", None, 160, 1, 3000),
    ("pvc-12-planes", None, 20, 1, 3000),
    ("h200-1", None, 20, 1, 3000),
    ("h100-8", 64, 14, 1000, 20000),
    ("dgx-h100x4", 64, 6, 1000, 20000),
    ("h100-8", 256, 2, 10000, 40000),
    ("dgx-h100x4", 256, 1, 10000, 40000),
]


def collection(machine, ranks, count, fewest, most):
    """Return schedules of random problems with random options, interference off."""
    found = umm.machine(machine)
    if ranks:
        found = resized(found, ranks)
    random_numbers = random.Random(f"{machine} {ranks}")
    schedules = []
    while len(schedules) < count:
        p = ranks or random_numbers.randint(1, found.default_ranks)
        schedule = umm.schedule(problem(random_numbers, p), found, **options(random_numbers))
        if fewest <= len(schedule) <= most:
            schedules.append(replace(schedule, interference=NO_INTERFERENCE))
    return schedules


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
