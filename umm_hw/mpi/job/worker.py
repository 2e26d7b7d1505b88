"""One rank of a job that MpiJob started, as ``python -m mpi4py -m umm_hw.mpi.job.worker ADDRESS``."""

import sys
from multiprocessing.connection import Client

from umm_hw.mpi.job.supervisor import supervise


def serve(address: str) -> int:
    """Perform what comes over the socket until it closes; return the exit code."""
    supervise()
    from umm_hw.mpi import wait
    from umm_hw.mpi.job.team import Team

    team = Team()
    if team.rank > 0:
        sys.path[:] = wait.broadcast(team.world)
        return team.follow()
    with Client(address, family="AF_UNIX") as parent:
        sys.path[:] = parent.recv()  # programs are pickled by name
        wait.broadcast(team.world, sys.path)
        parent.send((team.processes, team.parents))
        try:
            while True:
                parent.send(team.lead(*parent.recv()))
        except (EOFError, ConnectionError):
            team.close()
    return 0


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]))
