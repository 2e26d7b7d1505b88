"""The samples of the pages: fenced blocks, and how a command's output agrees with the page."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
LEFT_OUT = re.compile(r"<!-- not run: (.+?) -->\n *$")
NUMBER = re.compile(r"\d+(\.\d+)?(e[-+]\d+)?( ?(ns|µs|ms|s|B|KiB|MiB|GiB)\b)?")
# What is told on stderr where a host is busy and so things take long.
SLOW = re.compile(r"^[^:]+: (working|[\d,]+ of [\d,]+)|^about .* of this host's memory")
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
    result = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in result if "/_" not in str(path)]


def samples(page):
    """The fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        left_out = LEFT_OUT.search(text, 0, match.start())
        line = text.count("\n", 0, match.start()) + 1
        yield Sample(page, line, match[2], match[3], left_out[1] if left_out else "")


def commands(text):
    """The commands of a console block, each with the lines that it is shown to print."""
    result = []
    for line in text.splitlines():
        if line.startswith("$ "):
            result.append((line[2:], []))
        elif result:
            result[-1][1].append(line)
    return result


def as_commands(text):
    """A shell block as the console would show it: without comments, continued lines joined."""
    joined = text.replace("\\\n", " ")
    lines = [line.split("  #")[0].strip() for line in joined.splitlines()]
    return "\n".join(f"$ {line}" for line in lines if line and not line.startswith("#"))


@dataclass(frozen=True)
class Performed:
    """A command of a page, as shown and as it went.

    Attributes:
        sample: The block it is in.
        command: What is typed.
        shown: The lines it is shown to print.
        printed: The lines it printed.
        code: Its exit code.
    """

    sample: Sample
    command: str
    shown: list[str]
    printed: list[str]
    code: int

    @property
    def right(self):
        """Whether its output is the shown one; commands of a shell block show nothing, but must end well."""
        if self.sample.language == "sh":
            return self.code == 0
        return agrees(self.command, self.shown, self.printed)

    def __str__(self):
        result = "\n".join(self.printed[-60:])
        where = f"{self.sample.page}:{self.sample.line}"
        return f"{where}: {self.command}\nexit code {self.code}, printed:\n{result}\n"


def settings(folder):
    """The environment of a new user in a folder: the command umm on the path, machines of nobody."""
    commands_folder = folder / "bin"
    commands_folder.mkdir()
    for name, module in {"umm": "-m umm.cli.main", "python": ""}.items():
        script = commands_folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    path = os.pathsep.join([str(commands_folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    result = {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "HOME": str(folder), "XDG_CONFIG_HOME": ""}
    return {**os.environ, **result, "OPENBLAS_NUM_THREADS": "1"}


def performed(page, folder):
    """The commands of a page, performed one after another in an empty folder."""
    environment, work = settings(folder), folder / "work"
    work.mkdir()
    for sample in samples(page):
        if sample.left_out or sample.language not in ("console", "sh"):
            continue
        text = sample.text if sample.language == "console" else as_commands(sample.text)
        for command, shown in commands(text):
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                timeout=280,
            )
            result = done.stdout + done.stderr
            result = result.replace(f"{ROOT}/", "").replace(str(folder), "~").splitlines()
            printed = [line for line in result if not SLOW.match(line)]
            yield Performed(sample, command, shown, printed, done.returncode)


def agrees(command, shown, printed):
    """Whether a command's output agrees with the page; ``…`` alone on a line stands for anything.

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
