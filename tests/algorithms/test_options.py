"""The choices of a schedule: their legal values, and that everything follows from their one definition."""

import inspect
import json
import re
import subprocess
import sys

import pytest

import umm
from umm.errors import ScheduleError
from umm.plans.multiply.options import Options, in_words, known

SMALL = umm.Problem(m=64, n=48, k=40, ranks=4)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"prefech": 1}, "'prefech' is not an option of a schedule; did you mean 'prefetch'?"),
        ({"speed": 1}, "'speed' is not an option of a schedule; choose from policy, prefetch, max_gemms, "),
        ({"prefetch": 1.0}, "prefetch = 1.0 is not possible; it must be a whole number ≥ 0 and ≤ 4096"),
        ({"max_gemms": 0}, "max_gemms = 0 is not possible; it must be a whole number ≥ 1 and ≤ 4096"),
        ({"reuse": "on"}, "reuse = 'on' is not possible; it must be True or False"),
        ({"offset": "random"}, "offset 'random' is unknown; choose from none, index, rotate, last"),
    ],
)
def test_what_cannot_be_chosen_is_answered_in_one_line(options, line):
    for asked in (
        lambda: umm.schedule(SMALL, "h100-8", **options),
        lambda: umm.Space(m=64, n=48, k=40, **options),
    ):
        with pytest.raises(ScheduleError) as refused:
            asked()
        assert str(refused.value).startswith(line)


def test_help_and_completion_know_every_option_and_its_default():
    for function in (umm.schedule, umm.Space):
        shown = inspect.signature(function).parameters
        assert {x.name: shown[x.name].default for x in known()} == Options().to_dict()


def test_words_of_a_file_from_elsewhere_leave_out_what_they_do_not_know():
    read = {"policy": "direct", "max_gemms": "two", "granularity": 3, "offset": "random", "gap": "?"}
    assert in_words(read) == "direct"


OUTSIDE = """
from dataclasses import dataclass, field
from umm.plans.multiply import options

@dataclass(frozen=True)
class Wider(options.Options):
    colour: str = field(default="green", metadata={
        "help": "Of the tiles.", "words": "painted {}".format, "choices": ("green", "red")})
    depth: int = field(default=3, metadata={"help": "Of the paint.", "words": str, "heading": "dep."})

options.Options = Wider  # as if options.py had two more fields

import json, sys
import umm
from umm.cli.main import main

seen = {"chosen": dict(umm.schedule(umm.Problem(m=8, n=8, k=8), "h100-8", depth=4).options)}
try:
    umm.schedule(umm.Problem(m=8, n=8, k=8), "h100-8", colour="blue")
except umm.errors.ScheduleError as error:
    seen["refused"] = str(error)
points = umm.Space(m=64, n=96, k=48, a="row", b="row", c="row", stationary="C", depth=(3, 4))
swept = umm.sweep(points, "h100-8", sys.argv[1], pool="none")
seen["found"] = [swept.asked, swept.found]
seen["stored"] = swept.to_frame()[["colour", "depth"]].sort_values("depth").values.tolist()
print(json.dumps(seen))
for asked in (["simulate", "--help-all"], ["search", "-m", "8", "-n", "8", "-k", "8", "--memory", "none",
              "--a", "row", "--b", "row", "--c", "row", "--depth", "1,2", "--colour", "red"]):
    try:
        main(asked)
    except SystemExit as ended:
        assert not ended.code
"""


def test_an_option_is_added_by_one_field(tmp_path):
    """Two fields more: keyword, check, flag, axis and columns follow; an older store reads as by default."""
    store = tmp_path / "s.db"
    points = umm.Space(m=64, n=96, k=48, a="row", b="row", c="row", stationary="C")
    umm.sweep(points, "h100-8", store, pool="none")
    command = [sys.executable, "-c", OUTSIDE, store]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, rest = done.stdout.split("\n", 1)
    seen = json.loads(first)
    assert seen["chosen"] == Options().to_dict() | {"colour": "green", "depth": 4}
    assert seen["refused"] == "colour 'blue' is unknown; choose from green, red"
    assert seen["found"] == [2, 1]
    assert seen["stored"] == [["green", 3], ["green", 4]]
    assert "--colour green|red" in rest
    assert "Of the paint.  [default: 3]" in rest
    assert re.search(r"stationary +dep\.\n", rest)
