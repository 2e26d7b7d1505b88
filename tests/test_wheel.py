"""A wheel built from the tree works by itself, machine files included."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from examples import WHOLE

from umm.space.store.model import model_digest
from umm_sim.build import SOURCES, build_in_place, library

ROOT = Path(__file__).parent.parent
PACKAGES = {"umm", "umm_sim", "umm_hw"}


def done(*command, cwd, env=None):
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=200, check=True
    )


@pytest.mark.skipif(not WHOLE, reason="builds a wheel: make test-install, make test-all")
def test_a_wheel_in_another_venv_simulates_from_any_folder(tmp_path):
    """The new venv borrows the dependencies of this one, but not its editable install.

    Nothing is left in the temporary folder, such as unpacked libraries.
    """
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    build = [sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "-w", tmp_path]
    done(*build, cwd=tmp_path, env=os.environ | {"TMPDIR": str(scratch)})
    assert not list(scratch.iterdir())
    (wheel,) = tmp_path.glob("umm_sim-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES

    assert wheel.stem.split("-")[2:4] == ["cp311", "abi3"]
    assert {str(library(Path(source))) for source in SOURCES} <= {*names}
    assert not [name for name in names if name.endswith((".c", ".h"))]

    venv = tmp_path / "venv"
    done(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    (site,) = venv.glob("lib/python*/site-packages")
    done(
        sys.executable,
        "-m",
        "pip",
        f"--python={venv}",
        "install",
        "--no-deps",
        "--no-compile",
        wheel,
        cwd=tmp_path,
    )
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))

    umm = venv / "bin" / "umm"
    asked = ("--machine", "pvc-12", "--preset", "mlp1", "--a", "col", "--b", "col", "--c", "col", "--json")
    assert json.loads(done(umm, "simulate", *asked, cwd="/").stdout)["machine"] == "pvc-12"
    shown = json.loads(done(umm, "machine", "show", "h100-8", "--json", cwd=tmp_path).stdout)["machine"]
    assert Path(shown["file"]).is_relative_to(site)
    ran = done(umm, "run", "-m", 64, "-n", 48, "-k", 40, "--check", "--iters", 1, "--json", cwd="/")
    assert json.loads(ran.stdout)["measured"]["ok"] is True
    digest = "from umm.space.store.model import model_digest; print(model_digest())"
    assert done(venv / "bin" / "python", "-c", digest, cwd="/").stdout.strip() == model_digest()


def test_an_editable_install_compiles_beside_the_source_what_is_older_than_it(tmp_path, monkeypatch):
    """The critical path, in a tree of its own: compiled, left alone, then compiled anew."""
    header = Path(shutil.copy(ROOT / "umm" / "arrays.h", tmp_path))
    monkeypatch.setattr("umm_sim.build.SOURCES", ("_path.c",))
    monkeypatch.setattr("umm_sim.build.HEADER", header)
    source = Path(shutil.copy(ROOT / "umm" / "traces" / "_path.c", tmp_path))
    build_in_place(tmp_path)
    made = library(tmp_path / "_path.c")
    for path, seconds in ((source, 1), (header, 1), (made, 2)):
        os.utime(path, (seconds, seconds))
    build_in_place(tmp_path)
    assert made.stat().st_mtime == 2
    for path in (source, header):
        os.utime(path, (3, 3))
        build_in_place(tmp_path)
        assert made.stat().st_mtime > 3
        os.utime(made, (2, 2))
        os.utime(path, (1, 1))
    assert {x.name for x in tmp_path.iterdir()} == {source.name, header.name, made.name}


def test_without_a_compiler_a_line_says_what_to_install(tmp_path):
    """Of the tool beside the sources, and of pip."""
    without = os.environ | {"CC": "no-such-compiler"}
    script = (
        "from pathlib import Path; from umm_sim import build; import sys\n"
        "try: build.build(Path('umm/traces/_path.c'), Path(sys.argv[1]))\n"
        "except build.CompilerError as error: sys.exit(str(error))"
    )
    for command in (
        [sys.executable, "-c", script, tmp_path],
        [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "-w", tmp_path],
    ):
        failed = subprocess.run(command, cwd=ROOT, env=without, capture_output=True, text=True, timeout=200)
        assert failed.returncode == 1
        result = [
            x for x in (failed.stdout + failed.stderr).splitlines() if "umm's inner loops are in C" in x
        ]
        assert len(result) == 1
        assert (
            "Install a C compiler and Python's headers (Debian: apt-get install gcc python3-dev" in result[0]
        )
