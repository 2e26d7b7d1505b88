"""The duties of every executor of data with any program: rings, chains, random actions."""

from dataclasses import replace

import numpy as np
import pytest
from conformance.executor_suite import MACHINE, laws
from examples import examples
from hypothesis import assume, given, settings
from programs import programs
from reference import plain_program

import umm
from umm.layouts.layout import Layout
from umm.program import Chain, Copy, Sum
from umm.program.tensors import Tensor
from umm.schedules.writer.builder import Builder

SIGNALLING = replace(MACHINE, signal_s=1e-6)
# What grows with what it is done to, so that rounding can be bounded.
GROWING = (
    *("zero", "cast", "scale", "add", "mul", "bias", "mul_cols", "mul_rows", "relu"),
    *("row_sum", "col_sum", "row_max"),
)
comparable_programs = programs(most=16, functions=GROWING, comparable=True)
CHAINS = {
    "mlp": {"hidden": 6, "ffn": 10, "tokens": 5},
    "attention": {"hidden": 8, "heads": 4, "kv_heads": 2, "tokens": 4},
}


def ring_all_gather(build, ranks, piece, into, directions=2):
    """Every rank gets every piece. Each piece goes round the ring, half of it each way."""
    p = len(ranks)
    for rank in ranks:
        build.get(piece(rank), into(rank, rank))
    for step in range(p - 1):
        for way, turn in enumerate((1, -1)[:directions]):
            for place, rank in enumerate(ranks):
                origin, neighbour = ranks[(place - turn * step) % p], ranks[(place + turn) % p]
                source, target = into(rank, origin), into(neighbour, origin)
                build.put(source.part(way, directions), target.part(way, directions))


def ring_all_reduce(build, ranks, piece):
    """Every rank's piece becomes the sum of all: a part of it goes round gathering, then round again."""
    p = len(ranks)
    for step in range(2 * (p - 1)):
        for place, rank in enumerate(ranks):
            number = (place - step if step < p - 1 else place + p - step) % p
            source = piece(rank).part(number, p)
            target = piece(ranks[(place + 1) % p]).part(number, p)
            (build.accumulate if step < p - 1 else build.put)(source, target)


def tensor(name, shape, text, ranks, role):
    return Tensor(name, Layout.parse(text, shape, ranks), "float64", role)


def gathering(ranks, machine=MACHINE, shape=(7, 4)):
    """X in rows, and Y that has all of it on every rank."""
    tensors = tensor("X", shape, "row", ranks, "input"), tensor("Y", shape, f"row@{ranks}", ranks, "output")
    build = Builder("ring", Chain("gather", tensors, (Copy("Y", "X"),), ranks), machine)

    def into(rank, origin):
        piece = build.own("X", origin)
        return build.tile("Y", 0, 0, rank).cut(piece.rows, piece.cols)

    ring_all_gather(build, range(ranks), lambda rank: build.own("X", rank), into)
    return build.schedule()


def summing(ranks, rings, machine=MACHINE, shape=(7, 4)):
    """R, of which every rank has a partial sum, summed up in place over each ring of ranks."""
    partial = tensor("R", shape, f"row@{ranks}", ranks, "both")
    build = Builder("ring", Chain("sum", (partial,), (Sum("R", "R"),), ranks), machine)
    for ring in rings:
        ring_all_reduce(build, ring, lambda rank: build.tile("R", 0, 0, rank))
    return build.schedule()


def repeated(executor, schedule, operands, times=3):
    """The last of some runs, by one executor."""
    performer = executor(replica=None)
    if hasattr(performer, "runs"):
        return performer.runs(schedule, operands, repeat=times)[-1]
    return [performer.run(schedule, operands) for _ in range(times)][-1]


def whole_numbers(*shape):
    return np.random.default_rng(1).integers(-8, 9, shape).astype(np.float64)


class ProgramConformance:
    """Inherit, override ``executor`` as of :class:`ExecutorConformance`, and say how far to go."""

    ranks = (1, 2, 3, 4, 6)

    @pytest.mark.parametrize("machine", [MACHINE, SIGNALLING], ids=["", "signalling"])
    def test_a_ring_gathers_every_piece_on_every_rank(self, executor, machine):
        """7 rows over up to 6 ranks: uneven pieces, halves of which go each way round."""
        for ranks in self.ranks:
            x = whole_numbers(7, 4)
            result = executor(replica=None).run(gathering(ranks, machine), {"X": x}).results["Y"]
            assert np.array_equal(result, [x] * ranks), ranks

    def test_a_ring_sums_up_in_place_run_after_run(self, executor):
        """Every replica has its own partial sum; a tensor of role both starts each run as it was given."""
        for ranks in self.ranks:
            parts = whole_numbers(ranks, 7, 4)
            result = repeated(executor, summing(ranks, [range(ranks)]), {"R": parts}).results["R"]
            assert np.array_equal(result, [parts.sum(axis=0)] * ranks), ranks

    def test_rings_of_some_of_the_ranks_do_not_meet(self, executor):
        """Even and odd ranks of 6, each round a ring of its own, the odd one backwards."""
        parts = whole_numbers(6, 5, 3)
        schedule = summing(6, [(0, 2, 4), (5, 3, 1)], shape=(5, 3))
        result = executor(replica=None).run(schedule, {"R": parts}).results["R"]
        assert np.array_equal(result, [parts[rank % 2 :: 2].sum(axis=0) for rank in range(6)])

    @pytest.mark.parametrize(("layouts", "ranks"), [("megatron", 2), ("sequence", 4), ("data", 3)])
    @pytest.mark.parametrize("chain", CHAINS)
    def test_a_chain_gives_its_results_and_gradients_by_name(self, executor, chain, layouts, ranks):
        """Y = gelu(X·W1)·W2, and attention of heads that share keys: all outputs, in every replica."""
        outline = umm.chain(chain, backward=True, dtype="float64", **CHAINS[chain])
        made = outline.laid_out(layouts, ranks)
        rng = np.random.default_rng(2)
        operands = {x.name: rng.standard_normal(x.shape) for x in made.tensors if x.is_input}
        result = executor(replica=None).run(umm.schedule(made, MACHINE), operands).results
        expected = made.reference(operands)
        assert set(result) == set(made.outputs)
        for name in made.outputs:
            for replica in result[name]:
                np.testing.assert_allclose(replica, expected[name], rtol=1e-9, atol=1e-9, err_msg=name)

    @settings(laws, max_examples=examples(20))
    @given(schedule=comparable_programs)
    def test_any_program_gives_what_its_actions_give_one_after_another(self, executor, schedule):
        """Everything that every rank owns at the end, to the rounding that each action may add."""
        rng = np.random.default_rng(4)
        inputs = [x for x in schedule.tensors if x.is_input]
        operands = {x.name: rng.integers(-2, 3, x.shape).astype(x.dtype) for x in inputs}
        with np.errstate(all="ignore"):
            expected, error, largest = plain_program.bounded(schedule, operands)
        assume(largest < 3e4)  # float16 holds no more than 65,504
        result = executor(replica=None).run(schedule, operands).results
        assert result.keys() == expected.keys()
        for name, x in expected.items():
            assert np.all(np.abs(result[name] - x) <= error[name] + 1e-6), name
