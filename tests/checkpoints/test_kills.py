"""A save that is killed at any moment leaves the checkpoint before it or its own, whole."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import umm

KILLS = 5
"""How often; ``make kill`` kills much more."""


def killed(folder, seed, *how):
    """Let a process save into a folder, and kill it, or one of its ranks; the last save that had returned."""
    drawn = random.Random(seed)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "checkpoint_saver", str(folder), *how]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        victim = int(drawn.choice(process.stdout.readline().split()))
        assert process.stdout.readline() == "0\n"
        time.sleep(drawn.uniform(0, 0.2))
        os.kill(victim, signal.SIGKILL)
        return max(map(int, process.stdout.read().split()), default=0)


def assert_whole(folder, last):
    """One number in both matrices: of the last save that had returned, or of the one that was killed."""
    result = {float(x) for array in umm.load(folder).values() for x in np.unique(array)}
    assert result in ({last}, {last + 1})


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_save_leaves_the_one_before_or_its_own(tmp_path, seed):
    assert_whole(tmp_path, killed(tmp_path, seed))


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(max(1, KILLS // 5)))
def test_a_killed_rank_leaves_the_one_before_or_its_own(tmp_path, seed):
    """One process of four; the others end with it, wherever they are."""
    assert_whole(tmp_path, killed(tmp_path, seed, "processes"))


def test_a_save_removes_what_a_killed_one_left(tmp_path):
    killed(tmp_path, 0)
    killed(tmp_path, 1)
    array = np.zeros((4, 4))
    chain = umm.chain("mlp", hidden=4, ffn=4, tokens=4).laid_out("data", ranks=2)
    umm.save(tmp_path, {"X": array}, chain.tensors)
    assert len(list(tmp_path.iterdir())) == 3
