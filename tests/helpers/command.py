"""The umm command for tests, run in this process."""

import json

from click.testing import CliRunner

from umm.cli.main import main

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
