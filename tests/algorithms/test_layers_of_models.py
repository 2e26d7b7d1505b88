"""Layers of language models as their systems run them: bytes moved and held; products are elsewhere."""

import numpy as np
import pytest
from command import good

import umm
from umm.algorithms.scheduling import algorithms
from umm.algorithms.writing import counted
from umm.schedules.table.details import GEMM

MLP1 = {"m": 8192, "n": 49152, "k": 12288, "ranks": 8}
MLP2 = {"m": 8192, "n": 12288, "k": 49152, "ranks": 8}


def on_its_layouts(name, size, machine="h100-8", **options):
    algorithm = algorithms()[name]
    native = algorithm.native(umm.Problem(**size), **algorithm.chosen(options))
    problem = umm.Problem(**size, **dict(zip("abc", native, strict=True)))
    return umm.schedule(problem, machine, algorithm=name, **options)


def words(schedule):
    """Elements that reach each rank, all the same."""
    (result,) = set(counted(schedule).words_received.tolist())
    return result


@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        ("megatron", ("row@8", "col", "col")),
        ("sequence", ("row", "col", "col")),
        ("fsdp", ("row", "row", "row")),
        ("data-tensor", ("row@4:interleaved", "col@2", "2d:2x4")),  # a data rank is four consecutive ranks
    ],
)
def test_activations_and_weights_lie_as_the_systems_lay_them(name, layouts):
    problem = on_its_layouts(name, MLP1).problem
    assert (problem.a, problem.b, problem.c) == layouts


def test_the_first_layer_of_megatron_moves_nothing_and_the_second_all_reduces():
    """2(p − 1)/p of C reaches every rank, the all-reduce of a ring; sequence moves half."""
    c = MLP2["m"] * MLP2["n"]
    assert words(on_its_layouts("megatron", MLP1)) == 0
    assert words(on_its_layouts("megatron", MLP2)) == 2 * c * 7 // 8
    assert words(on_its_layouts("sequence", MLP2)) == c * 7 // 8
    assert words(on_its_layouts("sequence", MLP1)) == MLP1["m"] * MLP1["k"] * 7 // 8


def test_megatron_and_sequence_take_as_long_for_an_mlp_but_sequence_holds_less():
    """An all-reduce is a reduce-scatter and an all-gather; at rest activations are an eighth."""
    both = {name: [on_its_layouts(name, size) for size in (MLP1, MLP2)] for name in ("megatron", "sequence")}
    seconds = {name: sum(umm.run(x).makespan_s for x in schedules) for name, schedules in both.items()}
    assert seconds["sequence"] == pytest.approx(seconds["megatron"], rel=0.02)
    at_rest = {
        name: schedules[0].problem.layout("A").elements_of_rank.max() for name, schedules in both.items()
    }
    assert at_rest["megatron"] == 8 * at_rest["sequence"]


def test_fsdp_gathers_its_weight_and_hides_it_behind_what_comes_before():
    """7/8 of B reaches every rank; of 8 units all but the first are gathered while others are multiplied."""
    full, units = (on_its_layouts("fsdp", MLP1, units=n) for n in (1, 8))
    assert words(full) == words(units) == MLP1["k"] * MLP1["n"] * 7 // 8
    assert [np.sum(x.kind == GEMM) for x in (full, units)] == [8, 64]
    gather = MLP1["k"] * MLP1["n"] * 4 * 7 / 8 / 450e9
    saved = umm.run(full).makespan_s - umm.run(units).makespan_s
    assert saved > 0.6 * gather
    assert units.pool_bytes.max() == full.pool_bytes.max() / 4  # two units of eight


def test_a_mesh_of_data_and_tensor_ranks_all_reduces_within_a_data_rank():
    """2x4: C by rows over two, summed over four; 8x1 is data parallel alone and moves nothing."""
    c = MLP2["m"] * MLP2["n"]
    assert words(on_its_layouts("data-tensor", MLP2)) == 2 * (c // 2) * 3 // 4
    assert words(on_its_layouts("data-tensor", MLP2, grid="8x1")) == 0
    assert words(on_its_layouts("data-tensor", MLP2, grid="1x8")) == words(on_its_layouts("megatron", MLP2))


def test_they_are_simulated_and_executed_at_the_command_line():
    flags = ["-m", 13, "-n", 20, "-k", 11, "--ranks", 6, "--machine", "h100-8", "--check", "--iters", 1]
    for name, setting in (("data-tensor", "grid=2x3"), ("fsdp", "units=3"), ("sequence", "part=row")):
        text = good("run", *flags, "--algorithm", name, "--with", setting)
        assert "C is right" in text
