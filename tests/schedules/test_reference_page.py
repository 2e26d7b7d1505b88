"""docs/reference/schedule.md lists the keys that files have."""

import json
import re
from pathlib import Path

from readable import made

from umm.schedules.file import header
from umm.schedules.file import rows as actions
from umm.schedules.table.details import KINDS

PAGE = (Path(__file__).parents[2] / "docs/reference/schedule.md").read_text(encoding="utf-8")


def test_the_page_lists_every_key_of_a_file_in_its_order():
    table = PAGE[PAGE.index("| key | holds |") : PAGE.index("An action has")]
    keys = [
        key
        for row in table.splitlines()[2:]
        for key in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    ]
    assert [key for key in keys if key != "chain"] == list(json.loads(made("gets-2").to_json()))
    assert set(keys) == {*header._KEYS, *header._PROGRAMS}


def test_the_page_lists_every_key_of_an_action():
    table = PAGE[PAGE.index("| kind | besides |") : PAGE.index("`writes` is a slice")]
    named = set(re.findall(r"`(\w+)`", table)) - {*KINDS, "src", "dst"}
    known = {key for keys in (*actions._REQUIRED.values(), *actions._OPTIONAL.values()) for key in keys}
    assert named | {"src", "dst"} == known


def test_the_page_has_a_row_for_every_kind():
    table = PAGE[PAGE.index("| kind | does |") : PAGE.index("- A lane runs")]
    assert set(
        re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines() if "|" in row))
    ) == set(KINDS)
