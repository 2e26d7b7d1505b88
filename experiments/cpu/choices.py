"""Regret of DTensor's choice of a way to multiply, of umm's, and of constant ones, on gloo.

``PYTHON -m experiments.cpu.choices RANKS -o FILE``, by a Python that has torch and umm, draws products and
times each by all ways; run again, it goes on. ``python -m experiments.cpu.choices FILE…`` prints the table.
"""

import csv
import itertools
import os
import random
import sys
import time
from math import exp, log
from pathlib import Path

import click

SIZES = (32, 64, 128, 256, 512, 1024, 2048)
MOST = 2**28  # of m·n·k: 25 ms on a core
FIRST_ROUNDS, ROUNDS = 2, 12
FAR = 2  # times the quickest in the first rounds: such a way is timed no further
DTENSOR, UMM = "DTensor", "umm"
CONSTANT = ("gather A", "gather B", "split k", "replicate", "in place")
FIELDS = ("ranks", "number", "product", "option", "predicted", "even", "odd")


def drawn(number, ranks):
    """Return a product: operation, shapes of A and B, mesh, and how each axis cuts A and B."""
    chance = random.Random(f"{number} of {ranks}")
    op = chance.choices(("mm", "addmm", "bmm"), (5, 2, 3))[0]
    batch = (chance.choice((2, 4, 8)),) if op == "bmm" else ()
    while True:
        m, n, k = (chance.choice(SIZES) for _ in range(3))
        if m * n * k * (batch or (1,))[0] <= MOST:
            break
    axes = chance.choice([(ranks,), (2, ranks // 2)][: 1 + (ranks > 2)])
    uses = [[chance.choice((*range(len(batch) + 2), "R")) for _ in axes] for _ in "AB"]
    return op, (*batch, m, k), (*batch, k, n), axes, *uses


def measured(rank, ranks, count, minutes, path, port):
    """Time products on one rank of several."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": str(port)}
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    import torch
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    from umm_hw.dtensor.chooser import Chooser
    from umm_hw.dtensor.measuring import measure, slowest

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    begin, handlers = time.monotonic(), DTensor._op_dispatcher._custom_op_handlers
    chooser = Chooser(measure())
    meshes = {axes: init_device_mesh("cpu", axes) for axes in ((ranks,), (2, ranks // 2))[: 1 + (ranks > 2)]}
    done = {int(row["number"]) for row in rows(path) if int(row["ranks"]) == ranks}
    for number in itertools.count():
        over = torch.tensor([len(done) >= count or time.monotonic() - begin > 60 * minutes])
        distributed.broadcast(over, 0)
        if over:
            break
        if number in done:
            continue
        name, *shapes, axes, of_a, of_b = drawn(number, ranks)
        op = getattr(torch.ops.aten, name).default
        placed = [[Shard(x) if x != "R" else Replicate() for x in uses] for uses in (of_a, of_b)]
        args = [
            distribute_tensor(torch.ones(x), meshes[axes], y) for x, y in zip(shapes, placed, strict=True)
        ]
        if name == "addmm":
            bias = torch.ones(shapes[1][-1])
            args.insert(0, distribute_tensor(bias, meshes[axes], [Replicate()] * len(axes)))
        options = chooser.options(op, args)
        if len(options) < 2:
            continue
        wanted = next(iter(options.values())).perform(args).placements

        def torchs(op=op, args=args, wanted=wanted):
            c = op(*args)
            return c if c.placements == wanted else c.redistribute(placements=wanted)

        def handled(handler, op=op, args=args):
            handlers[op] = handler
            c = op(*args)
            del handlers[op]
            return c

        def forced(perform):
            return lambda: handled(lambda op, given, kwargs: perform(given))

        some = timed_options(options)
        chosen = min(options, key=lambda x: options[x].seconds)
        names = f"{DTENSOR}: {torchs_way(op, args, wanted)}", f"{UMM}: {chosen}", *some
        actions = [torchs, lambda: handled(chooser), *(forced(options[x].perform) for x in some)]
        times = slowest(actions, FIRST_ROUNDS)
        limit = FAR * min(map(min, times))
        near = [i for i, seconds in enumerate(times) if i < 2 or min(seconds) <= limit]
        for i, seconds in zip(near, slowest([actions[i] for i in near], ROUNDS), strict=True):
            times[i] = seconds
        if rank == 0:
            text = f"{name} {shapes[0]} {shapes[1]} {axes} {of_a} {of_b}".replace("'", "")
            predicted = ["", options[chosen].seconds, *(options[x].seconds for x in some)]
            with open(path, "a", newline="") as file:
                csv.writer(file).writerows(
                    (ranks, number, text, option, guess, min(seconds[::2]), min(seconds[1::2]))
                    for option, guess, seconds in zip(names, predicted, times, strict=True)
                )
        done.add(number)
    if rank == 0:
        begin = time.perf_counter()
        for _ in range(10_000):
            chooser.decision(op, args)
        print(f"{ranks} ranks: {len(done)} products; {100 * (time.perf_counter() - begin):.1f} us a lookup")
    distributed.barrier()
    os._exit(0)  # threads that DTensor keeps abort if they drop a tensor while Python ends


def torchs_way(op, args, wanted):
    """Return the name of the way that DTensor takes."""
    from torch.distributed.tensor import DTensor

    from umm_hw.dtensor.chooser import uses_of
    from umm_hw.dtensor.ways import ways

    info = DTensor._op_dispatcher.unwrap_to_op_info(op, tuple(args), {})
    DTensor._op_dispatcher.sharding_propagator.propagate(info)
    sharding = info.output_sharding
    schema = sharding.redistribute_schema if sharding.needs_redistribute else info.schema
    operands = tuple(uses_of(x.placements) for x in schema.args_spec[-2:])
    shapes, axes = [tuple(x.shape) for x in args[-2:]], tuple(args[-1].device_mesh.shape)
    return next(x.name for x in ways(axes, *shapes, uses_of(wanted)) if (x.a, x.b) == operands)


def timed_options(options):
    """Return the ways to time: the same on every axis, and others predicted within twice the best."""
    limit = 2 * min(x.seconds for x in options.values())
    return [x for x in options if len(set(x.split(", "))) == 1 or options[x].seconds <= limit]


def rows(path):
    """Return the rows measured so far."""
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def constant(seconds, way):
    """Return the name of a way on every axis; none where it cannot be taken."""
    same = [x for x in seconds if set(x.split(", ")) == {way}]
    return same[0] if same else None


def table(measured_rows):
    """Return lines: for each choice its mean regret, that of all seconds together, and how often above 5 %.

    Calls by the same way are samples of its time. At most: against the quickest way
    in the same rounds, whose luck counts as regret. Crossed: the quickest way of one half of the rounds,
    compared in the other half, where its luck is gone.
    """
    products, chosen = {}, {}
    for row in measured_rows:
        key, (name, colon, way) = (row["ranks"], row["number"]), row["option"].partition(": ")
        if colon:
            chosen.setdefault(key, {})[name] = way
        times, way = products.setdefault(key, {}), way or name
        halves = float(row["even"]), float(row["odd"])
        times[way] = tuple(map(min, halves, times.get(way, halves)))
    lines = []
    for ranks in sorted({x for x, _ in products}):
        some = {key: times for key, times in products.items() if key[0] == ranks}
        columns = "".join(f"{x:>10}" for x in ("at most", "in all", "> 5 %", "crossed", "in all"))
        lines.append(f"{f'{ranks} ranks, {len(some)} products':<24}{columns}")
        choices = {name: {key: chosen[key][name] for key in some} for name in (DTENSOR, UMM)}
        for way in CONSTANT:
            choices[f"always {way}"] = {
                key: constant(times, way) or chosen[key][DTENSOR] for key, times in some.items()
            }
        for name, ways in choices.items():
            same = [(min(x[ways[key]]), min(map(min, x.values()))) for key, x in some.items()]
            crossed = [
                (x[ways[key]][1 - half], min(x.values(), key=lambda y, half=half: y[half])[1 - half])
                for key, x in some.items()
                for half in (0, 1)
            ]
            far = sum(x > 1.05 * y for x, y in same) / len(same)
            numbers = (*regret(same), far, *regret(crossed))
            lines.append(f"{name:<24}{''.join(f'{x:>10.1%}' for x in numbers)}")
    return lines


def regret(pairs):
    """Return by how much first numbers exceed second ones: in the geometric mean, and their sums."""
    mean = exp(sum(log(x / y) for x, y in pairs) / len(pairs)) - 1
    return mean, sum(x for x, _ in pairs) / sum(y for _, y in pairs) - 1


@click.command()
@click.argument("what", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write measured rows.")
@click.option("--count", default=500, show_default=True, help="Products to time.")
@click.option("--minutes", default=10.0, show_default=True, help="Most minutes, then stop as if done.")
@click.option("--port", default=29583, show_default=True, help="Of this host, for torch's processes to meet.")
def main(what, output, count, minutes, port):
    """Time products on RANKS processes, or print the table of measured FILEs."""
    if output is None:
        click.echo("\n".join(table([row for path in what for row in rows(Path(path))])))
        return
    import torch.multiprocessing as processes

    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    rows(output)
    processes.spawn(measured, (int(what[0]), count, minutes, output, port), nprocs=int(what[0]))


if __name__ == "__main__":
    sys.exit(main())
