"""A process that saves until it is killed: ``python -m checkpoint_saver FOLDER [processes]``.

It prints the processes of the ranks, then the number of each save that has returned. All elements of a
checkpoint are its number.
"""

import os
import sys
from functools import partial
from itertools import count

import mpi_programs

from umm_hw.mpi.job.job import MpiJob
from umm_hw.numpy.transport import run_ranks

RANKS = 4


def main(folder, processes):
    if processes:
        job = MpiJob(RANKS, timeout=60)
        call, pids = partial(job.call, RANKS), [process for _, process in job.processes]
    else:
        call, pids = partial(run_ranks, RANKS), [os.getpid()]
    print(*pids, flush=True)
    for number in count():
        call(partial(mpi_programs.save_number, folder=folder, number=number))
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], "processes" in sys.argv)
