"""The style that no linter knows: names, docstrings and constants in words of the field.

A room of the packages that is clean stands in CLEAN and stays clean; the list grows until it is the packages.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CLEAN = [
    "umm_hw", "umm_sim", "umm/algorithms", "umm/checkpoints", "umm/emit", "umm/figures", "umm/host",
    "umm/layouts", "umm/program/functions", "umm/program/models", "umm/quoting", "umm/schedules", "umm/torch",
    "umm/policies", "umm/step", "umm/traces", "umm/*.py",
]  # fmt: skip
WORDS = {"found", "of", "said", "there", "held", "own", "whole", "once", "on"}
"""Names that say nothing of their value, where a noun of the field would: result, rows, owner, tiles."""
LIMITS = {"FEW", "MOST", "REACH", "DEEPEST", "KEPT"}
"""Constants that do not say what they limit, as MAX_SIMULATED_LAYERS does."""
REPEATED = re.compile(r"(\w+): (?:Where|Which|Who|Whose|What|How many|(?:The|Its|A|An) (\w+))\.")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


@cache
def trees():
    """The syntax tree of every file of a clean room."""
    files = [x for room in CLEAN for x in ROOT.glob(room if room.endswith(".py") else f"{room}/**/*.py")]
    assert files
    return {str(x.relative_to(ROOT)): ast.parse(x.read_text(encoding="utf-8")) for x in sorted(files)}


def docstrings():
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, DEFINITIONS) and (text := ast.get_docstring(node)):
                yield f"{path}:{getattr(node, 'lineno', 1)}", text


def locals_of(function):
    """Parameters and names that are assigned in a function."""
    yield from (x.arg for x in ast.walk(function.args) if isinstance(x, ast.arg))
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_a_name_says_what_its_value_is():
    """Of locals and parameters; ``found = search(…)`` is ``result``, or the noun of what was searched."""
    named = [
        f"{path}:{node.lineno} {node.name}: {name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, DEFINITIONS[:2])
        for name in sorted(WORDS.intersection(locals_of(node)))
    ]
    assert named == []


def test_a_docstring_opens_with_a_noun_or_a_verb_and_no_what_clause():
    assert [
        f"{place} {text.splitlines()[0]}"
        for place, text in docstrings()
        if re.search(r"\bwhat\b", text.splitlines()[0], re.IGNORECASE)
    ] == []


def test_a_docstring_does_not_repeat_a_signature():
    """No ``machine: Where.``, ``ranks: How many.``, ``chain: The chain.``"""
    lines = [(place, line.strip()) for place, text in docstrings() for line in text.splitlines()]
    matches = [(place, line, REPEATED.fullmatch(line)) for place, line in lines]
    assert [(p, line) for p, line, match in matches if match and match[2] in (None, match[1])] == []


@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_a_constant_says_what_it_limits(limit):
    assert [
        f"{path}:{node.lineno}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == limit
    ] == []
