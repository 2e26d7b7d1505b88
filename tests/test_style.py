"""The style that no linter knows: names, docstrings and constants in words of the field.

CLEAN is every room of the packages but ``umm/cli/commands``, whose docstrings are the help that users read.
The laws of names and of first lines hold for tests and experiments too.
"""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CLEAN = [
    "umm_hw", "umm_sim", "umm/algorithms", "umm/checkpoints", "umm/cli/answers", "umm/cli/flags",
    "umm/cli/printed", "umm/emit", "umm/explorer", "umm/figures", "umm/host", "umm/jax", "umm/layouts",
    "umm/machines", "umm/mcp", "umm/muon", "umm/plans", "umm/policies", "umm/profiles", "umm/program",
    "umm/quoting", "umm/schedules", "umm/serve", "umm/space", "umm/step", "umm/torch", "umm/traces",
    "umm/*.py",
]  # fmt: skip
WORDS = {"found", "of", "said", "there", "held", "own", "whole", "once", "on"}
"""Names that say nothing of their value, where a noun of the field would: result, rows, owner, tiles."""
LIMITS = {"FEW", "MOST", "REACH", "DEEPEST", "KEPT"}
"""Constants that do not say what they limit, as MAX_SIMULATED_LAYERS does."""
DENSE = ["umm/plans", "umm/space", "umm/schedules", "umm/algorithms"]
"""Rooms whose code takes comments that say why."""
LONGEST = 30
"""Words of a sentence of a docstring, without code, formulas and parentheses."""
REPEATED = re.compile(r"(\w+): (?:Where|Which|Who|Whose|What|How many|(?:The|Its|A|An) (\w+))\.")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


NAMED = ["umm", "umm_hw", "umm_sim", "tests", "experiments"]


@cache
def nodes_of(file):
    """The definitions, parameters and assigned names of a file: of all nodes few, for they stay in memory."""
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    kinds = (*DEFINITIONS, ast.arg)
    return [x for x in tree if isinstance(x, kinds) or isinstance(getattr(x, "ctx", None), ast.Store)]


def nodes(*rooms):
    """The nodes of every file of some rooms that laws here look at, the clean ones if none are given."""
    files = [
        x for room in rooms or CLEAN for x in ROOT.glob(room if room.endswith(".py") else f"{room}/**/*.py")
    ]
    assert files
    return {str(x.relative_to(ROOT)): nodes_of(x) for x in sorted(files)}


def docstrings(*rooms):
    for path, all_nodes in nodes(*rooms).items():
        for node in all_nodes:
            if isinstance(node, DEFINITIONS) and (text := ast.get_docstring(node)):
                yield f"{path}:{getattr(node, 'lineno', 1)}", text


def named(node):
    """The name that a node assigns or takes as a parameter, else none; fields of a class are annotated."""
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None


def fields(all_nodes):
    """The names of fields, which are words of a file or of the public interface."""
    classes = [x for x in all_nodes if isinstance(x, ast.ClassDef)]
    return {id(x.target) for each in classes for x in each.body if isinstance(x, ast.AnnAssign)}


def test_a_name_says_what_its_value_is():
    """Locals and parameters: ``found = search(…)`` is ``result``, or a noun of the field."""
    assert [
        f"{path}:{node.lineno} {named(node)}"
        for path, all_nodes in nodes(*NAMED).items()
        for skipped in [fields(all_nodes)]
        for node in all_nodes
        if named(node) in WORDS and id(node) not in skipped
    ] == []


def test_a_docstring_opens_with_a_noun_or_a_verb_and_no_what_clause():
    assert [
        f"{place} {text.splitlines()[0]}"
        for place, text in [*docstrings(), *docstrings("tests", "experiments")]
        if re.search(r"\bwhat\b(?!-if)", text.splitlines()[0], re.IGNORECASE)
    ] == []


def test_a_docstring_does_not_repeat_a_signature():
    """No ``machine: Where.``, ``ranks: How many.``, ``chain: The chain.``"""
    lines = [(place, line.strip()) for place, text in docstrings() for line in text.splitlines()]
    matches = [(place, line, REPEATED.fullmatch(line)) for place, line in lines]
    assert [(p, line) for p, line, match in matches if match and match[2] in (None, match[1])] == []


def sentences(text):
    """The sentences of a docstring without examples, code and parentheses; a formula is none."""
    plain = re.sub(r"^\s*(>>>|\.\.\. ).*$|`[^`]*`|\([^()]*\)", " ", text, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*|\d])|\n\s*\w+: ", plain):
        for sentence in re.split(r"(?<=[.!?:;])\s+", block):
            if not re.search(r"[=≤≥Σ]", sentence):
                yield " ".join(sentence.split())


def test_sentences_of_a_docstring_are_short():
    assert [
        f"{place} {sentence}"
        for place, text in docstrings()
        for sentence in sentences(text)
        if len(re.findall(r"[A-Za-z][\w'’-]*", sentence)) > LONGEST
    ] == []


@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_a_constant_says_what_it_limits(limit):
    assert [
        f"{path}:{node.lineno}"
        for path, all_nodes in nodes().items()
        for node in all_nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == limit
    ] == []


@pytest.mark.parametrize("room", DENSE)
def test_dense_code_says_why(room):
    """Of the lines of a dense room at least 3 % are comments."""
    texts = [x.read_text(encoding="utf-8") for x in ROOT.glob(f"{room}/**/*.py")]
    kinds = [x.type for text in texts for x in tokenize.generate_tokens(io.StringIO(text).readline)]
    assert kinds.count(tokenize.COMMENT) >= 0.03 * sum(text.count("\n") for text in texts)
