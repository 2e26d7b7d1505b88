"""Every sample of the README and the docs does as shown; one that is not run says why on its page."""

import doctest

import pytest
from docs.samples import ROOT, pages, performed, samples

PAGES = pages()


def with_samples(*languages):
    return [page for page in PAGES if any(x.language in languages and not x.left_out for x in samples(page))]


@pytest.mark.parametrize("page", with_samples("console", "sh"))
def test_commands_print_what_is_shown(page, tmp_path):
    """``python -m tests.docs`` writes the current output into the pages."""
    wrong = [str(x) for x in performed(page, tmp_path) if not x.right]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", [x for x in PAGES if any(">>>" in y.text for y in samples(x))])
def test_sessions_print_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert doctest.testfile(str(ROOT / page), module_relative=False).failed == 0


@pytest.mark.parametrize("page", with_samples("python"))
def test_programs_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page}
    for sample in samples(page):
        if sample.language == "python" and not sample.left_out and ">>>" not in sample.text:
            exec(compile("\n" * sample.line + sample.text, page, "exec"), names)
