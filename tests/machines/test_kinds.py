"""Kinds of fabric: found by being in their package, like that of docs/how-to."""

import re
import subprocess
import sys
from pathlib import Path

from machine_text import GOOD, write

from umm.machines.content import kinds

PAGE = Path(__file__).parents[2] / "docs/how-to/add-a-kind-of-fabric.md"
USE = """
import sys
from umm.machines import fabrics
fabrics.__path__.append(sys.argv[1])
from umm.machines import machine
from umm.errors import MachineError
bus = machine(sys.argv[2])
print(bus.link_names[bus.route(0, 3)[0]], bus.bandwidth_matrix()[0, 1])
try:
    machine(sys.argv[3])
except MachineError as error:
    print(error)
"""


def test_the_kinds_are_those_of_the_package_simplest_first():
    assert [kind.__name__ for kind in kinds()] == [
        "Single",
        "PairsFabric",
        "SwitchFabric",
        "RingFabric",
        "GridFabric",
        "FatTreeFabric",
        "TiersFabric",
        "LinksFabric",
        "ClusterFabric",
    ]


def test_a_file_in_the_package_is_a_kind_more(tmp_path):
    """The very file and table of the page: g0 → g3 crosses the bus; the list of choices names it."""
    page = PAGE.read_text(encoding="utf-8")
    file, table = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("python", "toml"))
    write(tmp_path / "fabrics", file, "bus.py")
    right = write(tmp_path, GOOD + table)
    wrong = write(tmp_path, GOOD + table.replace('"bus"', '"bos"'), "wrong.toml")
    command = [sys.executable, "-c", USE, str(tmp_path / "fabrics"), str(right), str(wrong)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    shown, error = done.stdout.splitlines()
    assert shown == "bus 10000000000.0"
    assert error.endswith("fabric.kind must be one of none, pairs, switch, ring, mesh, torus, fat_tree, "
                          "tiers, links, bus, cluster")  # fmt: skip
