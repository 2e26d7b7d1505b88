"""A few of the cases of ``make fuzz``: input of every kind is refused in a line, or taken just as it says."""

import os

import pytest

from fuzz.families import FAMILIES, chance

CASES = 10  # for each unit of a family's share


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("family", FAMILIES)
def test_random_input_is_refused_in_a_line_or_taken_as_it_says(family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "XDG_CONFIG_HOME", str(tmp_path / "user"))
    for number in range(CASES * FAMILIES[family].share):
        try:
            FAMILIES[family].case(chance(family, 0, number), tmp_path)
        except Exception as error:
            again = f"python -m fuzz --family '{family}' --seed 0 --case {number}"
            error.add_note(f"PYTHONPATH=tests:tests/helpers:tests/campaigns {again}")
            raise
