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

from umm.space.store.model import model_digest
from umm_sim.build import SOURCES, build_in_place

ROOT = Path(__file__).parent.parent
PACKAGES = {"umm", "umm_sim", "umm_hw"}


def done(*command, cwd, env=None):
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=200, check=True
    )


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

    compiled = wheel.stem.split("-")[2] == "cp311"
    assert compiled == (sum(name.endswith(".so") for name in names) == len(SOURCES))
    assert compiled or not shutil.which("cc")

    venv = tmp_path / "venv"
    done(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    (site,) = venv.glob("lib/python*/site-packages")
    done(sys.executable, "-m", "pip", f"--python={venv}", "install", "--no-deps", wheel, cwd=tmp_path)
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
    """The critical path in C, in a tree of its own: compiled, left alone, then compiled anew."""
    if not (shutil.which("cc") and Path(sysconfig.get_paths()["include"], "Python.h").exists()):
        pytest.skip("needs a C compiler and Python's headers")
    monkeypatch.setattr("umm_sim.build.SOURCES", ("_path.c",))
    source = Path(shutil.copy(ROOT / "umm" / "traces" / "_path.c", tmp_path))
    build_in_place(tmp_path)
    made = tmp_path / "_path.abi3.so"
    os.utime(source, (1, 1))
    os.utime(made, (2, 2))
    build_in_place(tmp_path)
    assert made.stat().st_mtime == 2
    os.utime(source, (3, 3))
    build_in_place(tmp_path)
    assert made.stat().st_mtime > 3
