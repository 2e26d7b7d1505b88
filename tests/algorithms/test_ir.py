"""The IR: the graph and the steps a person can read, their rules, and their cost."""

from itertools import combinations

import pytest
from examples import examples
from hypothesis import assume, given
from problem_corpus import corpus
from readable import MACHINE
from strategies import problems, schedule_options, stationaries

import umm
from umm.errors import ScheduleError
from umm.plans.multiply.oplist import op_list
from umm.plans.multiply.options import Options
from umm.policies.annealing import improved
from umm.policies.exhaustive import exhaustive
from umm.policies.graph import graphs
from umm.policies.greedy import cost_greedy, greedy
from umm.policies.ir import IR, Limits, Step, total, validate

PROBLEM = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="col", ranks=2)
LIMITS = Limits(1, 1)


def graph_of(problem=PROBLEM, stationary="C", machine=MACHINE, rank=0, **options):
    return graphs(op_list(problem, stationary), machine, Options(**options))[rank]


def test_the_graph_says_what_each_multiply_reads_and_what_must_be_fetched():
    """C's left half is A's two halves times B's: rank 0 holds the first of each; 256 flop are 256 ns."""
    assert str(graph_of()).splitlines() == [
        "rank 0: 2 multiplies, 4 tiles",
        "  0: 2.56e-07 s, reads A(0,0) own, B(0,0) own",
        "  1: 2.56e-07 s, reads A(0,1) to get, B(1,0) to get",
    ]


def test_the_ir_prints_a_line_for_each_step():
    """One get a step: 128 bytes take 128 ns, hidden by the first gemm in one step of two."""
    ops = op_list(PROBLEM, "C")
    of_ranks = graphs(ops, MACHINE, Options())
    ir = IR(ops, of_ranks[:1], [greedy(of_ranks[0], LIMITS)], LIMITS)
    assert str(ir).splitlines() == [
        "r0 step 0: gemm 0 | get A(0,1) from r1 | 256 ns (communication 128 ns, computation 256 ns)",
        "r0 step 1: get B(1,0) from r1 | 128 ns (communication 128 ns, computation 0 s)",
        "r0 step 2: gemm 1 | 256 ns (communication 0 s, computation 256 ns)",
    ]
    assert ir.cost_s == pytest.approx(640e-9)


def test_accumulates_are_communication_after_their_gemm():
    """Stationary B: rank 0's gemm into rank 1's rows of C is sent in a later step, at twice its bytes."""
    graph = graph_of(umm.Problem(m=8, n=8, k=8, a="col", b="row", c="row", ranks=2), "B")
    (sent,) = [i for i, update in enumerate(graph.updates) if update.target == 1]
    assert graph.updates[sent].seconds == pytest.approx(2 * 4 * 8 * 4e-9)
    steps = greedy(graph, Limits(2, 2))
    assert steps[0] == Step((), (0, 1), ())
    assert steps[1] == Step((), (), (0, 1))


def test_a_farther_rank_costs_more_to_get_from():
    """pvc-12: 230 GB/s to the other tile of the GPU, 20 GB/s to any other."""
    problem = umm.Problem(m=1024, n=1024, k=1024, a="col", b="col", c="col", ranks=12)
    graph = graph_of(problem, machine=umm.machine("pvc-12"))
    per_byte = {data.source: data.seconds / data.nbytes for data in graph.data if data.nbytes}
    assert per_byte[1] == pytest.approx(1 / 230e9)
    assert {round(1 / per_byte[source]) for source in range(2, 12)} == {20_000_000_000}


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([Step((), (1,), ())], r"step 0 of rank 0 multiplies 1 before A\(0,1\) is there"),
        ([Step((2,), (), ()), Step((2,), (), ())], "step 1 of rank 0 gets 2 a second time"),
        ([Step((2, 3), (), ())], "step 0 of rank 0 has 2 communications; the limit is 1"),
        ([Step((), (0,), (0,))], "step 0 of rank 0 accumulates 0, which has nothing to send yet"),
        ([Step((), (), ())], "step 0 of rank 0 is empty"),
        ([Step((), (0,), ())], "no step of rank 0 multiplies 1"),
    ],
)
def test_steps_that_break_a_rule_are_refused(steps, message):
    with pytest.raises(ScheduleError, match=message):
        validate(graph_of(), steps, LIMITS)


@given(problems(max_ranks=6), stationaries, schedule_options)
def test_greedy_steps_keep_the_rules_for_any_problem(problem, stationary, options):
    options = Options(**options)
    ops = op_list(problem, stationary)
    assume(len(ops) <= 300)
    limits = Limits.of(options)
    for graph in graphs(ops, umm.machine("dgx-h100x4"), options):
        for method in (greedy, cost_greedy):
            validate(graph, method(graph, limits), limits)


def brute_force(graph, limits):
    """The least cost by Dijkstra's algorithm over all sets and all steps, nothing left out."""
    remote = sorted(set(range(len(graph.data))) - graph.own)
    start = (frozenset(), frozenset(), frozenset())
    best, settled = {start: 0.0}, set()
    end = (
        frozenset(remote),
        frozenset(range(len(graph))),
        frozenset(i for i, update in enumerate(graph.updates) if update),
    )
    while True:
        state = min((s for s in best if s not in settled), key=best.__getitem__)
        if state == end:
            return best[state]
        settled.add(state)
        have, done, sent = state
        ready = [i for i in end[1] - done if set(graph.needs[i]) <= have]
        talks = [("get", x) for x in end[0] - have] + [("send", i) for i in (done & end[2]) - sent]
        for gemms in subsets(ready, limits.gemms):
            for chosen in subsets(talks, limits.communications):
                gets = frozenset(x for what, x in chosen if what == "get")
                sends = frozenset(x for what, x in chosen if what == "send")
                communication = sum(graph.data[x].seconds for x in gets)
                communication += sum(graph.updates[i].seconds for i in sends)
                cost = best[state] + max(communication, sum(graph.seconds[i] for i in gemms))
                then = (have | gets, done | frozenset(gemms), sent | sends)
                if cost < best.get(then, float("inf")):
                    best[then] = cost


def subsets(items, most):
    return [chosen for size in range(min(most, len(items)) + 1) for chosen in combinations(items, size)]


def small_graphs(most, scale):
    """The different graphs of the corpus with at most so many gemms and communications together."""
    result = {}
    for problem, machine, stationary, options in corpus(examples(510), scale):
        options = Options(**options)
        for graph in graphs(op_list(problem, stationary), umm.machine(machine), options):
            items = len(graph) + len(graph.data) - len(graph.own) + sum(map(bool, graph.updates))
            if items <= most:
                result[graph.shape, Limits.of(options)] = graph
    return [(graph, limits) for (_, limits), graph in result.items()]


@pytest.mark.parametrize("scale", [1, 128])
def test_exhaustive_equals_brute_force_wherever_that_is_feasible(scale):
    """All graphs of 510 problems with up to ten gemms and communications: the same cost, proven."""
    cases = small_graphs(10, scale)
    assert len(cases) > 1.9 * examples(510)
    for graph, limits in cases:
        solution = exhaustive(graph, limits)
        assert solution.gap == 0
        assert solution.cost_s == pytest.approx(brute_force(graph, limits), rel=1e-9)


def test_24_equal_ops_are_solved_exactly_in_a_few_states():
    """12 tiles of B to get, two gemms each: symmetry leaves little."""
    problem = umm.Problem(
        m=2304, n=2304, k=2304, a="row", b="cyclic:192x2304:12x1", c="row:balanced", ranks=12
    )
    graph = graph_of(problem, "C", umm.machine("pvc-12"))
    solution = exhaustive(graph, Limits(2, 4), tries=None)
    assert solution.gap == 0


def test_a_search_that_is_stopped_says_what_may_still_be_saved():
    """Without any tries the best known steps come back with the bound of the start."""
    problem = umm.Problem(m=960, n=960, k=960, a="2d", b="2d", c="row", ranks=12)
    graph = graph_of(problem, "B", umm.machine("pvc-12"))
    stopped, searched = exhaustive(graph, Limits(2, 4), tries=0), exhaustive(graph, Limits(2, 4))
    assert 0 < stopped.gap < 1
    assert stopped.bound_s <= searched.bound_s <= searched.cost_s <= stopped.cost_s


def test_other_orders_never_cost_more():
    problem = umm.Problem(m=960, n=960, k=960, a="2d", b="2d", c="row", ranks=12)
    graph, limits = graph_of(problem, "B", umm.machine("pvc-12")), Limits(2, 4)
    steps = cost_greedy(graph, limits)
    better = improved(graph, limits, steps)
    validate(graph, better, limits)
    assert total(graph, better) < 0.99 * total(graph, steps)
