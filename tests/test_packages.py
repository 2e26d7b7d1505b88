"""The page of packages and the tree agree, and no folder is a heap."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/reference/packages.md"
LINE = re.compile(r"^( *)- `([a-z_.]+)`: (.+)$", re.MULTILINE)


def listed():
    """Every package the page lists, as (indent, name, sentence)."""
    return [(len(indent), *rest) for indent, *rest in LINE.findall(PAGE.read_text(encoding="utf-8"))]


def in_tree():
    """Every package of the tree and the sentence that its ``__init__`` opens with."""
    found = {}
    for top in ("umm", "umm_sim", "umm_hw"):
        for init in (ROOT / top).rglob("__init__.py"):
            doc = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8")))
            assert doc, f"{init} does not say what its package knows"
            found[".".join(init.parent.relative_to(ROOT).parts)] = doc.splitlines()[0]
    return found


def test_the_page_lists_every_package_with_its_own_sentence():
    assert {name: sentence for _, name, sentence in listed()} == in_tree()


def test_each_package_is_listed_once_below_the_one_it_is_in():
    path = []
    for indent, name, _ in listed():
        *parents, _ = name.split(".")
        assert indent == 2 * len(parents)
        path[len(parents) :] = [name]
        assert path[:-1] == [".".join(parents[: i + 1]) for i in range(len(parents))]
    assert len({name for _, name, _ in listed()}) == len(listed())


@pytest.mark.parametrize(("package", "most"), [("umm", 17), ("umm_hw", 10)])
def test_few_modules_are_loose_at_the_top(package, most):
    assert len([x for x in (ROOT / package).glob("*.py") if x.name != "__init__.py"]) <= most
