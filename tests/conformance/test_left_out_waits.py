"""Waits left out of programs show as wrong results: in random orders of NumPy, and in streams of GPUs."""

import numpy as np
import pytest
from conformance.executor_suite import MACHINE
from conformance.fake_device import FakeWorld
from conformance.program_suite import gathering, summing, whole_numbers
from hazards import without_waits

import umm
from umm_hw.cuda.executor import CudaExecutor
from umm_hw.numpy.executor import NumpyExecutor

SEEDS = range(60)


def on_numpy(seed):
    return NumpyExecutor(order="random", seed=seed, replica=None)


def on_gpus(seed):
    return CudaExecutor(devices=FakeWorld(seed, eager=(0.0, 0.7)[seed % 2]).devices(2), replica=None)


def block():
    """An MLP block and its gradients over four ranks, which own parts of the tokens."""
    outline = umm.chain("mlp", backward=True, dtype="float64", hidden=6, ffn=10, tokens=8)
    made = outline.laid_out("sequence", 4)
    rng = np.random.default_rng(2)
    operands = {x.name: rng.uniform(1, 2, x.shape) for x in made.tensors if x.is_input}
    return umm.schedule(made, MACHINE), operands, made.reference(operands)


def ring_sum():
    parts = whole_numbers(4, 8, 3)
    return summing(4, [range(4)], shape=(8, 3)), {"R": parts}, {"R": parts.sum(axis=0)}


def ring_gather():
    x = whole_numbers(8, 3)
    return gathering(4, shape=(8, 3)), {"X": x}, {"Y": x}


@pytest.mark.parametrize(
    ("executor", "program", "waiting", "awaited"),
    [
        (on_numpy, block, "map", "gemm"),  # on one lane, which on GPUs is in order
        (on_numpy, block, "gemm", "map"),
        *(
            (executor, *reason)
            for executor in (on_numpy, on_gpus)
            for reason in (
                (block, "gemm", "get"),
                (block, "get", "gemm"),
                (ring_gather, "put", "put"),
                (ring_gather, "put", "get"),
                (ring_sum, "accumulate", "accumulate"),
                (ring_sum, "put", "accumulate"),
                (ring_sum, "put", "put"),
            )
        ),
    ],
)
def test_a_reason_to_wait_that_is_left_out_is_caught(executor, program, waiting, awaited):
    """With all waits no order fails; without those of one kind for another some of 60 does."""
    schedule, operands, expected = program()

    def is_wrong(performed, seed):
        result = executor(seed).run(performed, operands).results
        return not all(np.allclose(result[name], expected[name], rtol=1e-9) for name in result)

    assert not any(is_wrong(schedule, seed) for seed in range(4))
    wrong = without_waits(schedule, waiting, awaited)
    assert any(is_wrong(wrong, seed) for seed in SEEDS)
