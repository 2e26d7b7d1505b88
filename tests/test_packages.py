"""Every package opens with its subject, and no folder is a heap."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def in_tree():
    """Every package of the tree and the sentence that its ``__init__`` opens with."""
    result = {}
    for top in ("umm", "umm_sim", "umm_hw"):
        for init in (ROOT / top).rglob("__init__.py"):
            doc = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8")))
            assert doc, f"{init} does not say what its package knows"
            result[".".join(init.parent.relative_to(ROOT).parts)] = doc.splitlines()[0]
    return result


def test_every_package_says_what_it_knows_in_a_sentence_of_its_own():
    """docs/reference/packages.md lists these sentences when the site is built."""
    result = in_tree()
    assert len(set(result.values())) == len(result)
    assert all(sentence.endswith(".") for sentence in result.values())


@pytest.mark.parametrize(("package", "most"), [("umm", 17), ("umm_hw", 10)])
def test_few_modules_are_loose_at_the_top(package, most):
    assert len([x for x in (ROOT / package).glob("*.py") if x.name != "__init__.py"]) <= most
