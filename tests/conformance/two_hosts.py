"""Two hosts on one: network namespaces with names of their own, joined by a cable."""

import json
import os
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from umm_hw.mpi.job.job import find_mpiexec

NETWORK = "10.201.77"
NUMBERS = count()
"""Of pairs of hosts of this process: two pairs may be there at once."""


class NamespaceError(Exception):
    """Network namespaces cannot be made here."""


def call(*words):
    """Run a command, of iproute2 or as a trial."""
    if shutil.which(words[0]) is None:
        raise NamespaceError(f"there is no {words[0]} (Debian's iproute2 has ip)")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise NamespaceError(f"{' '.join(words)}: {done.stderr.strip()}")


class Hosts(NamedTuple):
    """The hosts.

    Attributes:
        mpiexec: A command that deals out as many ranks in turn to each; by default one, so even ranks are on
            the first and odd ranks on the second.
        names: Their names, which are those of their namespaces.
    """

    mpiexec: str
    names: tuple[str, str]

    def sent(self) -> int:
        """Return the bytes that have gone through the cable, both ways."""
        total = 0
        for name in self.names:
            words = ["ip", "-n", name, "-s", "-j", "link", "show", "dev", f"{name}c"]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            total += json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"]
        return total

    def processes(self, host: int) -> list[int]:
        """Return the processes of a host, by its number."""
        done = subprocess.run(
            ["ip", "netns", "pids", self.names[host]], capture_output=True, text=True, check=True
        )
        return [int(x) for x in done.stdout.split()]


@contextmanager
def two_hosts(folder: Path, per_host: int = 1):
    """Make the hosts and yield them.

    Args:
        folder: Where scripts go.
        per_host: Ranks that a host gets at a turn.

    Raises:
        NamespaceError: saying why they cannot be made.
    """
    pair = next(NUMBERS)
    names = [f"umm{os.getpid()}{x}{pair}" for x in "ab"]
    cables = [f"{name}c" for name in names]
    made = []
    try:
        for name in names:
            call("ip", "netns", "add", name)
            made.append(name)
        one, other = names
        call(
            *("ip", "link", "add", cables[0], "netns", one, "type", "veth"),
            *("peer", "name", cables[1], "netns", other),
        )
        for number, (name, cable) in enumerate(zip(names, cables, strict=True), start=1):
            call("ip", "-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", cable)
            for link in ("lo", cable):
                call("ip", "-n", name, "link", "set", link, "up")
        mpiexec = _mpiexec(folder, names, per_host)
        call(mpiexec, "-n", "2", "sleep", "0.3")  # what ends at once may break a pipe of mpiexec
        yield Hosts(mpiexec, (one, other))
    finally:
        for name in made:
            call("ip", "netns", "del", name)


def _mpiexec(folder: Path, names, per_host):
    """Return a command that starts mpiexec on the first host, and reaches the second as if by ssh."""
    first, second = (f"{NETWORK}.{number}" for number in (1, 2))
    enter = 'exec ip netns exec "$name" unshare --uts sh -c "hostname $name; exec $*"\n'
    shell = _script(
        folder / "shell",
        'while [ "${1#-}" != "$1" ]; do shift; done\n'
        f"case $1 in {first}) name={names[0]};; *) name={names[1]};; esac\n"
        f"shift\n{enter}",
    )
    command = [find_mpiexec(), "-hosts", f"{first},{second}", "-localhost", first, "-ppn", str(per_host)]
    command += ["-launcher", "ssh", "-launcher-exec", shell]
    return _script(
        folder / "mpiexec",
        f"name={names[0]}\nquoted={shlex.quote(shlex.join(command))}\n"
        'for word in "$@"; do quoted="$quoted \'$word\'"; done\n'
        'exec ip netns exec "$name" unshare --uts sh -c "hostname $name; exec $quoted"\n',
    )


def _script(path: Path, text: str):
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o700)
    return str(path)
