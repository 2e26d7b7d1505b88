"""The samples of the pages: fenced blocks, and what a command must print to agree with what is shown."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
LEFT_OUT = re.compile(r"<!-- not run: (.+?) -->\n *$")
NUMBER = re.compile(r"\d+(\.\d+)?(e[-+]\d+)?( ?(ns|µs|ms|s|B|KiB|MiB|GiB)\b)?")
MEASURED = re.compile(r"\b(umm (run|compare|sweep|doctor)|--executor)\b")


@dataclass(frozen=True)
class Sample:
    """A fenced block of a page.

    Attributes:
        page: The page, from the root.
        line: Where it begins.
        language: What stands behind the fence.
        text: What is in it.
        left_out: Why it is not run; empty if it is.
    """

    page: str
    line: int
    language: str
    text: str
    left_out: str = ""


def pages():
    """Every page with samples, from the root."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found if "/_" not in str(path)]


def samples(page):
    """The fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        left_out = LEFT_OUT.search(text, 0, match.start())
        line = text.count("\n", 0, match.start()) + 1
        yield Sample(page, line, match[2], match[3], left_out[1] if left_out else "")


def commands(text):
    """The commands of a console block, each with the lines that it is shown to print."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def agrees(command, shown, printed):
    """Whether a command printed what is shown; ``…`` alone on a line stands for anything.

    Numbers that are measured, which differ each time, are not compared; nothing is if nothing is shown.
    """
    if not shown:
        return True

    def plain(line):
        line = " ".join(line.split())
        return " ".join(NUMBER.sub("#", line).split()) if MEASURED.search(command) else line

    parts, lines = [[]], [plain(line) for line in printed]
    for line in map(plain, shown):
        if line == "…":
            parts.append([])
        else:
            parts[-1].append(line)
    text = "\n".join(lines) + "\n"
    pattern = r"(.*\n)?".join("".join(re.escape(line) + r"\n" for line in part) for part in parts)
    return re.fullmatch(pattern, text, re.DOTALL) is not None
