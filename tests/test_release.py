"""A release's facts are stated once: version, files that pyproject names, extras, workflows."""

import re
import tomllib
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import umm

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_that_of_the_package_everywhere():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited
    assert umm.__version__ == cited[1] == version("umm-sim")
    assert "version" not in PROJECT["project"]


def test_files_that_pyproject_names_are_there():
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    mentioned = re.findall(r"docs/\S+\.md", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert [name for name in [*included, *mentioned] if not (ROOT / name).exists()] == []


def test_extras_that_messages_name_exist():
    """``pip install 'umm-sim[…]'`` in any message is a line that works."""
    known = set(PROJECT["project"]["optional-dependencies"])
    named = set()
    for package in ("umm", "umm_sim", "umm_hw"):
        for path in (ROOT / package).rglob("*.py"):
            for extras in re.findall(r"umm-sim\[([a-z0-9,-]+)\]", path.read_text(encoding="utf-8")):
                named |= set(extras.split(","))
    assert named
    assert named <= known


def test_dependencies_have_floors_and_no_ceilings():
    """SPEC 0: an upper limit would exclude releases that may well work."""
    optional = PROJECT["project"]["optional-dependencies"].values()
    lines = [*PROJECT["project"]["dependencies"], *(x for extra in optional for x in extra)]
    assert [line for line in lines if "<" in line.split(";")[0]] == []


def test_the_conda_recipe_has_the_version_and_the_dependencies_of_the_package():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{umm.__version__}"' in recipe
    run = recipe.split("  run:\n")[1].split("\ntests:")[0].replace("    - ", "").split("\n")
    needed = [
        PROJECT["project"]["requires-python"].replace(">=", "python >="),
        *PROJECT["project"]["dependencies"],
    ]
    assert [line.replace(" ", "") for line in run if line] == [line.replace(" ", "") for line in needed]
    host = recipe.split("  host:\n")[1].split("  run:")[0]
    assert all(line.replace(">=", " >=") in host for line in PROJECT["build-system"]["requires"])
    assert PROJECT["project"]["description"] in recipe


def test_every_extra_but_those_of_gpus_tables_and_frameworks_is_in_all():
    extras = set(PROJECT["project"]["optional-dependencies"])
    (line,) = PROJECT["project"]["optional-dependencies"]["all"]
    inside = set(line.removeprefix("umm-sim[").removesuffix("]").split(","))
    assert extras - inside == {"aic", "all", "cuda", "jax", "mpi", "nvshmem", "torch"}


def test_the_metadata_has_authors_and_current_pythons():
    data = metadata("umm-sim")
    assert data["Author"] or data["Author-Email"]
    assert any(x.endswith(":: 3.14") for x in data.get_all("Classifier"))


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda x: x.stem)
def test_workflows_call_targets_that_the_makefile_has(path):
    targets = set(re.findall(r"^(\S+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called = set(re.findall(r"\bmake (\S+)", path.read_text(encoding="utf-8")))
    assert called <= targets
