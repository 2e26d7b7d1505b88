"""Numbers that the C sources write out are those of the tables in Python."""

from pathlib import Path

from umm.schedules.table.accesses import ADD, READ, WRITE
from umm.schedules.table.details import ACCUMULATE, BARRIER, GEMM, GET, LOCAL, REDUCE

ROOT = Path(__file__).resolve().parents[1]


def test_numbers_of_kinds_and_accesses_are_the_tables():
    result = {
        "umm_sim/_player.c": f"LOCAL = {LOCAL}, BARRIER = {BARRIER}",
        "umm/plans/multiply/_plan.c": f"GET = {GET}, GEMM = {GEMM}, ACCUMULATE = {ACCUMULATE}, "
        f"REDUCE = {REDUCE}, BARRIER = {BARRIER} }}",
        "umm/schedules/_bound.c": f"enum {{ GEMM = {GEMM} }};",
        "umm/traces/_path.c": f"enum {{ BARRIER = {BARRIER} }};",
        "umm/schedules/table/_accesses.c": "enum { READ, WRITE, ADD };",
    }
    for source, text in result.items():
        assert text in (ROOT / source).read_text(encoding="utf-8")
    assert (READ, WRITE, ADD) == (0, 1, 2)
