"""The design space: its points, bounds below them, the search that proves the best, and sweeps."""

from umm.space.chain_space import ChainSpace
from umm.space.choice import Choice
from umm.space.points import Points, Space
from umm.space.search.any_space import search
from umm.space.search.chain_layouts import FoundChain, search_chain
from umm.space.search.chain_tries import ChainChoice
from umm.space.search.found import Found
from umm.space.search.proven import SearchInterruptedError
from umm.space.search.sure import makespan_range
from umm.space.store.chain_runs import NamedLayouts
from umm.space.store.database import Store
from umm.space.store.sweeps import Progress, Swept, sweep
from umm.space.what_if.advice import Advice, advise
from umm.space.what_if.decision_map import DecisionMap, Stretch, map_over_memory, map_over_number
from umm.space.what_if.sensitivity import Flip, Move, Sensitivity, frontier, sensitivity

__all__ = [
    "Advice",
    "ChainChoice",
    "ChainSpace",
    "Choice",
    "DecisionMap",
    "Flip",
    "Found",
    "FoundChain",
    "Move",
    "NamedLayouts",
    "Points",
    "Progress",
    "SearchInterruptedError",
    "Sensitivity",
    "Space",
    "Store",
    "Stretch",
    "Swept",
    "advise",
    "frontier",
    "makespan_range",
    "map_over_memory",
    "map_over_number",
    "search",
    "search_chain",
    "sensitivity",
    "sweep",
]
