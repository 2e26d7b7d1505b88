"""A small machine file for tests, and questions to it."""

from pathlib import Path

import pytest

from umm.errors import MachineError
from umm.machines import Machine, machine

GOOD = """
schema = 1
description = "four devices"

[devices]
count = { value = 4, source = "test" }
memory = { value = "16 GB", source = "test" }
memory_bandwidth = { value = "1 TB/s", source = "test" }
copy_engines = { value = 2, source = "test" }
launch = { value = "1 us", source = "test" }
transfer_overhead = { value = "3 us", source = "test" }
accumulate_efficiency = { value = 0.8, source = "test" }

[devices.peak]
float32 = { value = "10 Tflop/s", source = "test" }

[devices.interference]
get = { value = 0.0, source = "test" }
accumulate = { value = 0.25, source = "test" }
reduce = { value = 0.25, source = "test" }

"""
LINK = 'bandwidth = { value = "10 GB/s", source = "test" }\nlatency = { value = "1 us", source = "test" }\n'
SWITCH = f'[fabric]\nkind = "switch"\n{LINK}'
GRAPH = f'[fabric]\nkind = "links"\nswitches = ["s", "t"]\nROUTES\n[fabric.types.wire]\n{LINK}\n'


def edges(*pairs: str) -> str:
    return "".join(
        f'[[fabric.links]]\ntype = "wire"\nbetween = ["{a}", "{b}"]\n'
        for a, b in (p.split("-") for p in pairs)
    )


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def links(m: Machine, src: int, dst: int) -> list[str]:
    return [m.link_names[i] for i in m.route(src, dst)]


def error_of(path: Path) -> str:
    with pytest.raises(MachineError) as caught:
        machine(path)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)
