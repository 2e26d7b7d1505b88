"""The words of texts that people read: plain, in short sentences, and heads that the glossary has.

A help, not a judge: that a text has none of these faults does not make it good.
"""

import re
from pathlib import Path

import click
import pytest

from umm.cli.main import main
from umm.cli.printed import leaderboard
from umm.space import Space, search

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs/reference/glossary.md"
RETIRED = (
    "told", "tells", "lie as", "lies as", "held against", "likewise", "reckoned", "by then",
    "there is none of", "whoever", "but for", "at hand", "mended", "performs? every point",
)  # fmt: skip
LONGEST = 35  # words of a sentence
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXACT = {"schedule.md"}  # a specification: its sentences are as long as their formulas
TEACHING = [x for x in PAGES if "decisions" not in str(x) and x.name not in EXACT]


def sources():
    """Every file whose text somebody reads, but the glossary, which may name retired words."""
    code = [x for top in ("umm", "umm_hw", "umm_sim") for x in sorted((ROOT / top).rglob("*.py"))]
    scripts = sorted((ROOT / "umm/explorer/assets").glob("*.js"))
    return [x for x in [*code, *scripts, *PAGES] if x != GLOSSARY]


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_in_no_text(word):
    result = re.compile(rf"\b(?:{word})\b")
    assert [str(x.relative_to(ROOT)) for x in sources() if result.search(x.read_text(encoding="utf-8"))] == []


def sentences(text):
    """The sentences of a page or a docstring without its code, each with its number of words."""
    plain = re.sub(r"```.*?```|\]\([^)]*\)|`[^`]*`", " ", text, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*|#>\d])|\|", plain):
        for sentence in re.split(r"(?<=[.!?:;])\s+", block):
            yield " ".join(sentence.split()), len(re.findall(r"[A-Za-z][\w'’-]*", sentence))


@pytest.mark.parametrize("page", TEACHING, ids=lambda x: str(x.relative_to(ROOT)))
def test_sentences_of_a_page_are_short(page):
    assert [x for x, words in sentences(page.read_text(encoding="utf-8")) if words > LONGEST] == []


def commands(command=main, parent=None):
    """Every command with its help: its own and each flag's."""
    context = click.Context(command, info_name=command.name, parent=parent)
    yield command.name, [command.help or "", *(getattr(x, "help", None) or "" for x in command.params)]
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        yield from commands(command.get_command(context, name), context)


def test_sentences_of_help_are_short():
    long = [
        (name, x) for name, texts in commands() for text in texts for x, n in sentences(text) if n > LONGEST
    ]
    assert long == []


def test_the_heads_of_columns_are_in_the_glossary():
    terms = GLOSSARY.read_text(encoding="utf-8").lower()
    result = search(Space(m=64, n=48, k=40, ranks=4, a="row", b="row,col", c="row"), "h100-8")
    heads = leaderboard.cells_of(result, result.frontier)[0]
    assert "stationary" in heads
    assert [x for x in heads if x not in "ABC" and not re.search(rf"\b{re.escape(x)}\b", terms)] == []
