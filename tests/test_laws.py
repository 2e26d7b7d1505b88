"""Whole answers keep laws that none of their parts shows alone; ``make test-laws`` asks hundreds more."""

import random

import laws
import pytest
from command import times_only

SEEDS = {
    laws.more_memory_is_never_slower: (13,),
    laws.faster_links_are_never_slower: (1, 14),
    laws.faster_kernels_are_never_slower: (15,),
    laws.the_best_is_no_slower_than_schemes: (3,),
    laws.a_row_of_peers_is_what_simulate_says: (4, 30),
    laws.a_row_of_search_is_what_simulate_says: (5, 31),
    laws.more_tokens_take_no_less: (19, 32, 45),
    laws.more_layers_take_no_less: (7, 20),
    laws.weak_scaling_is_not_super_linear: (8,),
    laws.groups_in_a_node_cost_the_same_on_one_node_and_on_two: (9, 22),
    laws.a_collective_in_one_node_is_never_slower_than_over_two: (23, 36),
    laws.no_answer_is_above_the_peak: (10,),
    laws.the_answer_is_the_same_on_any_hash_seed: (11,),
}
"""Questions that are answered in a second or two each."""


@pytest.mark.parametrize(
    ("law", "seed"),
    [pytest.param(law, seed, id=f"{law.__name__}-{seed}") for law, seeds in SEEDS.items() for seed in seeds],
)
@times_only()
def test_a_random_question_keeps(law, seed):
    assert law(random.Random(seed)) == ""


def test_every_law_has_a_question():
    assert set(SEEDS) == set(laws.LAWS)
