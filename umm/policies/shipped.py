"""The policies of section 4.3 of Brock & Golin (2025), as ``pyproject.toml`` offers them."""

from umm.policies.exhaustive import exhaustive
from umm.policies.graph import Graph
from umm.policies.greedy import cost_greedy, greedy
from umm.policies.ir import Limits, Steps
from umm.policies.policy import StepPolicy


def _searched(graph: Graph, limits: Limits) -> tuple[Steps, float]:
    solution = exhaustive(graph, limits)
    return solution.steps, solution.gap


GREEDY = StepPolicy(lambda graph, limits: (greedy(graph, limits), None))
COST_GREEDY = StepPolicy(lambda graph, limits: (cost_greedy(graph, limits), None))
EXHAUSTIVE = StepPolicy(_searched, searches=True)
