"""The ledger: it equals the code's result, its numbers have their places, a run goes on where it stopped."""

from dataclasses import dataclass

import numpy as np
import pytest
from examples import WHOLE

from experiments.common import points
from experiments.common.image import is_current
from experiments.common.kept import FULL, SMOKE, StaleError
from experiments.common.machines import shipped
from experiments.common.points import Table
from experiments.common.published import published
from experiments.cpu import figure as cpus
from experiments.ledger import CLAIMS, DOCUMENTS, LEDGER, csv_of, page, read, rows_of, with_part, with_rows
from experiments.truth import holdout, multiplies
from experiments.truth.page import Judged
from experiments.truth.rows import Row
from umm.machines.library import considered

QUICK = [x for x in DOCUMENTS if x not in ("truth", "universal")]
"""Documents whose smoke run takes under a second; those of all are ``make ledger``."""


@pytest.mark.parametrize("name", DOCUMENTS if WHOLE else QUICK)
def test_the_ledger_is_what_a_smoke_run_finds(name):
    text = CLAIMS.read_text(encoding="utf-8")
    assert csv_of(with_rows(read(text), name, rows_of(name, SMOKE))) == text


def test_the_page_of_the_ledger_sums_up_its_rows():
    """It names each claim that is not reproduced or refuted; the others are in the table alone."""
    rows, text = read(CLAIMS.read_text(encoding="utf-8")), LEDGER.read_text(encoding="utf-8")
    assert with_part(text, "claims", page(rows)) == text
    named = [x["why"] in text for x in rows if x["verdict"].startswith(("not reproduced", "refuted"))]
    assert len(named) > 30
    assert all(named)


def test_the_image_of_cpus_is_of_its_data():
    """``python -m experiments.cpu.figure`` draws it."""
    assert is_current(cpus.figure(cpus.committed(cpus.DRAWN)), cpus.IMAGE)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_published_number_says_where_it_stands(name):
    tables = published(name)
    assert tables
    assert [key for key, table in tables.items() if not table.get("where")] == []


@dataclass(frozen=True)
class Point:
    x: int


def square(point):
    """The square; 3 cannot be done while there is a file ``broken``."""
    if point.x == 3 and (points.BUILD / "broken").exists():
        raise OSError("broken")
    with (points.BUILD / "done").open("a") as done:
        done.write(f"{point.x} ")
    return {"square": float(point.x**2)}


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(points, "BUILD", tmp_path)
    return Table(tmp_path / "squares.csv", [Point(x) for x in range(5)], square, one_in=2)


def test_a_run_that_is_broken_off_goes_on_where_it_stopped(table, tmp_path):
    """Of 0 to 4, in order by one process, 3 fails at first; no other is performed twice."""
    (tmp_path / "broken").touch()
    with pytest.raises(OSError, match="broken"):
        table.rows(FULL, jobs=1)
    (tmp_path / "broken").unlink()
    rows = table.rows(FULL, jobs=1)
    assert [row["square"] for row in rows] == [0, 1, 4, 9, 16]
    assert sorted((tmp_path / "done").read_text().split()) == ["0", "1", "2", "3", "4"]


def test_a_smoke_run_performs_some_points_and_refuses_what_has_changed(table, tmp_path):
    """0, 2 and 4 are performed; a committed square of 2 that is wrong is named."""
    table.rows(FULL, jobs=1)
    (tmp_path / "done").unlink()
    assert len(table.rows(SMOKE)) == 5
    assert (tmp_path / "done").read_text() == "0 2 4 "
    table.file.write_text(table.file.read_text().replace("2,4", "2,5"))
    with pytest.raises(StaleError, match=r"squares.csv is not what the code gives now: .*'square': 5"):
        table.rows(SMOKE)


def test_the_law_of_the_hold_out_is_that_of_the_machine_file():
    """Vectorised for the fit, and the same seconds as the ways' own."""
    machine = shipped("gb200-nvl72")
    width = machine.hears([0, 1])[0]
    for what in ("all-gather", "all-reduce", "all-to-all"):
        paces, rows = machine.library.ways(what), holdout.rows_of(what)
        result = holdout.Law(paces, what, rows, width).seconds(
            [holdout.numbers_of(x) for x in paces.values()]
        )
        asked = [(int(p), n) for p, n in zip(rows.ranks, rows.nbytes, strict=True)]
        expected = [
            min(paces[x].seconds(what, n, p, width) for x in considered(paces, what, n, p)) for p, n in asked
        ]
        assert result.tolist() == pytest.approx(expected)


def test_a_row_that_others_contradict_is_judged_by_the_median_of_three_sources():
    """10 us measured, 12 predicted: 20 % off. Two more sources say 12.5 and 13: 4 % off their median."""
    row = Row("cluster", "64 MiB", "b200-8", lambda machine: 12e-6, 10e-6, "a log", tolerance=0.15)
    output = ((), (10e-6, 11e-6), (10e-6, 12.5e-6), (10e-6, 12.5e-6, 13e-6))
    result = [Judged(row, 12e-6, 11e-6, 13e-6, sources) for sources in output]
    assert [x.contradicted for x in result] == [False, False, True, True]
    assert [round(x.error, 3) for x in result] == [0.2] * 4
    assert [round(x.by_median, 3) for x in result] == [0.2, 0.2, 0.2, -0.04]


def test_a_table_contradicts_a_multiply_that_takes_longer_than_one_that_contains_it():
    """512 cubed takes 13 us, with twice the k 7 us; the row with twice the k is not contradicted."""
    shapes = np.array([[1, 1], [512, 512], [512, 512], [512, 1024]])
    times, none = np.array([13e-6, 7e-6]), np.zeros(2, dtype=bool)
    group = multiplies.Group("mi355x-8", "f32xf32->f32", shapes, times, times, none)
    assert group.contradicted.tolist() == [True, False]
