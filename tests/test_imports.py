"""No file of the packages needs itself: imports for types, in functions and by name count too."""

import ast
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def named(node):
    """The modules that an import names, one by ``import_module`` too."""
    if isinstance(node, ast.Import):
        return [x.name for x in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{x.name}" for x in node.names]
    called = getattr(getattr(node, "func", None), "id", getattr(getattr(node, "func", None), "attr", ""))
    if isinstance(node, ast.Call) and called == "import_module" and isinstance(node.args[0], ast.Constant):
        return [node.args[0].value]
    return []


def test_no_file_needs_itself_by_any_import():
    files = [path for x in ("umm", "umm_sim", "umm_hw") for path in (ROOT / x).rglob("*.py")]
    modules = {module_of(path): path for path in files}
    needs = nx.DiGraph()
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            for name in named(node):
                while name and name not in modules:
                    name = name.rpartition(".")[0]
                if name and name != module and "__getattr__" not in name:
                    needs.add_edge(module, name)
    circles = [sorted(x) for x in nx.strongly_connected_components(needs) if len(x) > 1]
    assert not circles


HEAVY = {
    "concurrent.futures",
    "dash",
    "matplotlib",
    "mpi4py",
    "multiprocessing",
    "networkx",
    "pandas",
    "plotly",
}
HEAVY |= {"scipy", "sqlite3", "torch", "umm.explorer", "umm.figures", "umm.space.store", "umm_hw"}
SIMULATE = "simulate --machine pvc-12 -m 64 -n 64 -k 64 --a 2d --b 2d --c 2d"


@pytest.mark.parametrize(
    ("command", "unused"),
    [
        (SIMULATE, {"umm.space.peers", "umm.space.what_if.sensitivity"}),
        ("simulate --help", {"umm.plans.lower", "umm.space", "umm_sim", "pandas", "rich"}),
        ("machine list", {"umm.program", "umm.layouts", "umm.schedules", "umm.algorithms", "umm.space"}),
        ("--help", {"numpy", "pydantic", "umm.machines"}),
    ],
)
def test_a_command_imports_nothing_heavy_that_it_does_not_use(command, unused):
    """Nor the imports of its help, or of another command."""
    code = (
        "import sys; from umm.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, check=True, timeout=60
    )
    assert not (HEAVY | unused) & set(ran.stderr.split())


def test_traces_are_compared_without_the_prices_of_a_profile():
    """Training steps and PyTorch's modules, a hundred files, took as long to import as the rest."""
    code = "import sys, umm.cli.answers.compare; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"umm.torch.eager", "umm.step.step", "umm.profiles.files"} & set(ran.stdout.split())
