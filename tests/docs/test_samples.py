"""Every sample of the README and the docs does what it shows; what is not run says why on its page."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.samples import agrees, commands, pages, samples

PAGES = pages()


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A new folder to work in, with the command umm on the path and machines of nobody."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, module in {"umm": "-m umm.cli.main", "python": ""}.items():
        script = bin_folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    path = os.pathsep.join([str(bin_folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    for name, value in {**settings, "OPENBLAS_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def with_samples(*languages):
    return [page for page in PAGES if any(x.language in languages and not x.left_out for x in samples(page))]


@pytest.mark.parametrize("page", with_samples("console", "sh"))
def test_commands_print_what_is_shown(page, fresh):
    wrong = []
    for sample in samples(page):
        if sample.left_out or sample.language not in ("console", "sh"):
            continue
        text = sample.text if sample.language == "console" else as_commands(sample.text)
        for command, shown in commands(text):
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=280)
            printed = (done.stdout + done.stderr).splitlines()
            if (sample.language == "sh" and done.returncode) or not agrees(command, shown, printed):
                said = "\n".join(printed[-60:])
                wrong.append(
                    f"{page}:{sample.line}: {command}\nexit code {done.returncode}, printed:\n{said}\n"
                )
    assert not wrong, "\n".join(wrong)


def as_commands(text):
    """A shell block as the console would show it: without comments, continued lines joined."""
    joined = text.replace("\\\n", " ")
    lines = [line.split("  #")[0].strip() for line in joined.splitlines()]
    return "\n".join(f"$ {line}" for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("page", [x for x in PAGES if any(">>>" in y.text for y in samples(x))])
def test_sessions_print_what_is_shown(page, fresh):
    where = Path(__file__).parents[2] / page
    assert doctest.testfile(str(where), module_relative=False).failed == 0


@pytest.mark.parametrize("page", with_samples("python"))
def test_programs_run(page, fresh):
    names = {"__name__": page}
    for sample in samples(page):
        if sample.language == "python" and not sample.left_out and ">>>" not in sample.text:
            exec(compile("\n" * sample.line + sample.text, page, "exec"), names)
