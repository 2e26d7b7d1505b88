"""``umm explore``: the address that it opens, and its refusals."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import umm
from umm.cli.main import main
from umm.explorer.app import make_app
from umm.explorer.point import case_of
from umm.explorer.state import State, read


@pytest.fixture
def opened(monkeypatch):
    """Return the output of ``umm explore``; the server ends at once."""
    monkeypatch.setattr("werkzeug.serving.BaseWSGIServer.serve_forever", lambda *_: None)

    def run(*args, env=None):
        return CliRunner().invoke(main, ["explore", "--no-open", "--quiet", "--port", "0", *args], env=env)

    return run


def test_a_preset_a_file_and_a_variable_are_in_the_address(opened, tmp_path):
    """Wherever a value comes from, the page begins with it; the sizes of a preset are below typed ones."""
    result = opened("--machine", "h100-8", "--preset", "mlp2", "-m", "1K", "--b", "col@2", "--dtype", "bf16")
    assert result.stdout.strip().partition("/?")[2] == ("m=1024&n=12288&k=49152&dtype=bfloat16&b=col%402")
    path = tmp_path / "mine.toml"
    path.write_text('preset = "mlp2"\nmax-gemms = 1\nset = "fabric.bandwidth=x2"\n')
    result = opened("--config", str(path), env={"UMM_MACHINE": "a100-8"})
    assert result.stdout.strip().partition("/?")[2] == "machine=a100-8&n=12288&k=49152&max_gemms=1"


def test_without_a_machine_the_page_begins_with_that_of_the_other_commands(opened):
    usual = {x.name: x.default for x in main.get_command(None, "search").params}
    assert opened().stdout.strip().endswith("/")  # an address that says nothing means the same
    assert State().machine == usual["machine"] == "h100-8"


def test_a_machine_file_on_the_command_line_is_one_that_the_page_has(opened, tmp_path, monkeypatch):
    """Its numbers are those of other commands, and a copied command names a file beside a shipped machine."""
    served = []
    monkeypatch.setattr("umm.explorer.app.make_app", lambda *args: served.append(args[-1]) or make_app())
    text = Path("topologies/h100-8.toml").read_text().replace('3.35 TB/s", source', '3.5 TB/s", source')
    for name, named in (("mine", "mine"), ("h100-8", "h100-8.toml")):
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        address = opened("--machine", f"{path}:tf32", "-m", "1K").stdout.strip().partition("/?")[2]
        state, mistakes = read(address)
        assert (state.machine, state.m, mistakes) == (f"{named}:tf32", 1024, [])
        assert state.machine_text == f"{name}.toml:tf32"
        (machines,) = served
        assert machines == {named: umm.machine(path)}
        case = case_of(state, machines)
        assert case.machine == umm.machine(f"{path}:tf32")
        assert case.machine.memory_bandwidth == 3.5e12
        served.clear()


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--set", "fabric.bandwidth=x0.5"), "--set is not for this page; umm simulate takes it"),
        (("--with", "mesh=2x4"), "--with is not for this page"),
        (("--c-dtype", "float64"), "--c-dtype is not for this page"),
        (("--machine", "mine.toml"), "no such machine file: mine.toml"),
    ],
)
def test_a_flag_that_the_page_has_no_place_for_is_refused_in_a_line(opened, args, why):
    result = opened(*args)
    assert result.exit_code == 2
    assert why in result.stderr
    assert result.stderr.count("\n") <= 4
