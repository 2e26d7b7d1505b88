"""One rank that times every placement of sets of weights, in turns; run by mpiexec.

``mpiexec -n 2 python rank.py CASES ROUNDS`` prints the host's numbers as these ranks see them, and then each
placement's best seconds of each set, a line each.
"""

import json
import sys
from time import perf_counter

import numpy as np
from mpi4py import MPI

import umm
from experiments.muon.cases import weights_of
from umm.muon import Matrix


def calibrated(comm: MPI.Comm, rounds: int = 50) -> dict[str, float]:
    """Return the flop/s of a multiply on every rank at once, and the seconds of an exchange of few bytes."""
    x, seconds = np.ones((384, 384), np.float32), [[], []]
    tiny = umm.DistributedMatrix.wrap(comm, "row", (1, comm.size), np.ones((int(comm.rank == 0), comm.size)))
    plan = umm.muon.plan([Matrix("tiny", 1, comm.size, 1)], f"fsdp{comm.size}", "localhost", only="owners")
    for number in range(rounds):
        begin = perf_counter()
        x @ x
        middle = perf_counter()
        umm.muon.update(plan, {"tiny": tiny})
        if number:
            seconds[0].append(middle - begin)
            seconds[1].append(perf_counter() - middle)
    multiply, update = (max(comm.allgather(float(np.median(x)))) for x in seconds)
    return {"flops": 2 * 384**3 / multiply, "exchange_s": update / 2}


def main() -> None:
    """Time the placements, the slowest rank's seconds each round, and print the best round of each."""
    comm, cases, rounds = MPI.COMM_WORLD, json.loads(sys.argv[1]), int(sys.argv[2])
    numbers = calibrated(comm)
    if comm.rank == 0:
        print(json.dumps(numbers), flush=True)
    for case in cases:
        weights, rng = weights_of(case), np.random.default_rng(comm.rank)
        momenta = {}
        for x in weights:
            share = -(-x.rows // comm.size)
            rows = len(range(x.rows)[comm.rank * share :][:share])
            local = rng.standard_normal((x.count, rows, x.cols)).astype(np.float32)
            momenta[x.name] = umm.DistributedMatrix.wrap(comm, "row", (x.count, x.rows, x.cols), local)
        plans = {
            name: umm.muon.plan(weights, case["grid"], "localhost", only=name) for name in case["placements"]
        }
        seconds = np.zeros((rounds + 1, len(plans)))
        for number in range(rounds + 1):
            for column, plan in enumerate(plans.values()):
                # A call begins when all ranks have entered it, and so does the next one.
                begin = perf_counter()
                umm.muon.update(plan, momenta)
                seconds[number, column] = perf_counter() - begin
        slowest = np.max(comm.allgather(seconds), axis=0)
        if comm.rank == 0:
            best = slowest[1:].min(axis=0)  # the first round prepares exchanges
            print(json.dumps(dict(zip(plans, best.tolist(), strict=True))), flush=True)


if __name__ == "__main__":
    main()
