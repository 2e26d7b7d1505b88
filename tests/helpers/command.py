"""The umm command for tests, run in this process."""

import json
from contextlib import contextmanager
from unittest.mock import patch

from click.testing import CliRunner

from umm.cli.main import main
from umm.space.peers import peers
from umm.space.what_if.beside import Beside

MLP1 = ["--preset", "mlp1", "-m", "8192", "--a", "col", "--b", "col", "--c", "col", "--stationary", "C"]
SMALL = ["-m", "64", "-n", "48", "-k", "40"]


def umm(*args, env=None):
    """Run a command in this process; its stdout, stderr and exit code."""
    return CliRunner().invoke(main, [str(arg) for arg in args], env=env)


def good(*args, env=None):
    """Run a command that must succeed; its stdout."""
    result = umm(*args, env=env)
    assert result.exit_code == 0, result.output
    return result.stdout


def record(*args, env=None):
    """Run a command that must succeed with --json; the object."""
    return json.loads(good(*args, "--json", env=env))


@contextmanager
def times_only():
    """Let commands simulate their own schedules alone, in a block or a decorated test.

    The range of a time, and advice, take dozens of schedules more.
    """
    simulate = "umm.cli.answers.simulate"
    with (
        patch(f"{simulate}.sure_of", lambda trace, request: Beside()),
        patch(f"{simulate}.better_than", lambda trace, request, beside, progress: beside),
        patch("umm.space.search.uncertainty.ends", lambda machine: []),
        patch("umm.space.peers.peers.ranged", lambda rows, *asked: list(rows)),
    ):
        yield


def makespan(*args):
    """Simulate with the command; the makespan alone, in seconds."""
    with times_only():
        return record("simulate", *args)["predicted"]["makespan_s"]


@contextmanager
def peers_once():
    """Let ``umm peers`` compare once, so that the text and the JSON of one question are of one comparison."""
    compare, results = peers.peers, []

    def asked(program, machine, ranks=None, memory=None, crossover=None, **others):
        return program, machine.sha, ranks, memory, crossover, others["tokens"], others["stack"]

    def first(*args, **named):
        if not results:
            results.append((asked(*args, **named), compare(*args, **named)))
        question, result = results[0]
        assert asked(*args, **named) == question
        return result

    with patch.object(peers, "peers", first):
        yield
