"""Measured multiplies beside a machine file: where they are near they count, elsewhere the law does."""

import pickle

import numpy as np
import pytest

import umm
from tests.helpers.command import good
from tests.helpers.command import umm as command
from umm import kept
from umm.cost import gemm_seconds, least_factors, table_factors
from umm.errors import InputError, MachineError
from umm.machines import machine, parts, tables, user_folder
from umm.machines.drafts.measured import aic_table, read_measured
from umm.machines.files import tables_beside
from umm.machines.kernels import Kernels
from umm.machines.tables import FAMILIES, ROWS_EACH

HEAD = "gemm_dtype,m,n,k,latency"


@pytest.fixture(autouse=True)
def own_config_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def table(tmp_path, *rows, head=HEAD, name="gemm.csv"):
    path = tmp_path / name
    path.write_text("\n".join([head, *rows, ""]))
    return path


def imported(tmp_path, *rows):
    good("machine", "import", "--kernels", table(tmp_path, *rows), "mine", "--from", "h100-8 kernels=vllm")
    return machine("mine")


def test_importing_names_the_file_and_says_nothing_of_comments_that_it_has_not(tmp_path):
    rows = table(tmp_path, "bfloat16,64,1024,1024,0.02")
    text = good("machine", "import", "--kernels", rows, "mine", "--from", "h100-8 kernels=vllm")
    assert "mine.toml" in text
    assert "Then:" in text
    assert "Each has a comment" not in text


def test_a_row_counts_where_it_was_measured_and_less_the_farther_a_shape_is(tmp_path):
    law = machine("h100-8", kernels="vllm")
    mine = imported(tmp_path, "bfloat16,64,1024,1024,0.02", "bfloat16,128,1024,1024,0.02")
    assert mine.engine == law.engine
    m = np.array([64, 96, 256, 65536])
    took, plain = (gemm_seconds(x, "bfloat16", m, 1024, 1024, 2) for x in (mine, law))
    assert took[0] == pytest.approx(20e-6)
    ratio = took / plain
    assert ratio[0] > ratio[2] > 1.0
    assert 17e-6 < took[1] < 21e-6
    assert ratio[3] == pytest.approx(1.0, abs=1e-3)
    assert table_factors(mine, "bfloat16", m, 1024, 1024)[1].tolist() == [True, True, True, False]
    assert (gemm_seconds(mine, "float32", m, 64, 64, 4) == gemm_seconds(law, "float32", m, 64, 64, 4)).all()


def test_rows_of_wide_types_count_with_the_c_that_multiplies_of_them_have(tmp_path):
    """C has 8 bytes an element in float64, 4 in float32; a shape of the table takes its measured time."""
    rows = table(tmp_path, "float64,4096,8192,64,0.5", "float32,4096,8192,64,0.2")
    good("machine", "import", "--kernels", rows, "mine", "--from", "h200-1")
    mine = machine("mine")
    for dtype, nbytes, seconds in (("float64", 8, 5e-4), ("float32", 4, 2e-4)):
        assert float(gemm_seconds(mine, dtype, 4096, 8192, 64, nbytes)) == pytest.approx(seconds, rel=1e-5)


def test_nodes_count_for_a_machine_with_a_table(tmp_path):
    rows = table(tmp_path, "bfloat16,64,1024,1024,0.02")
    asked = ("--from", "h100-8 kernels=vllm", "--nodes", "2")
    good("machine", "import", "--kernels", rows, "mine", *asked)
    assert machine("mine").device_count == 16


def test_a_new_machine_of_the_name_of_another_has_not_its_table(tmp_path):
    """With its own numbers changed it keeps the table; with those of another machine it does not."""
    rows = tables_beside(imported(tmp_path, "bfloat16,64,1024,1024,0.02").source_path)[0]
    good("machine", "new", "mine", "--from", "mine", "--set", "devices.launch=x2", "--force")
    assert machine("mine").tables is not None
    assert f"removed {rows}" in command("machine", "new", "mine", "--from", "a10-8", "--force").stderr
    assert machine("mine").tables is None
    assert not rows.exists()


def test_a_kernel_that_begins_at_an_m_is_seen_at_n_and_k_that_are_not_in_the_table(tmp_path):
    """Twice the law's time at 65 rows, the law's at 64, for some n and k: so it is between these."""
    law = machine("h100-8", kernels="vllm")
    m, n, k = (x.ravel() for x in np.meshgrid([64, 65], [1024, 2048, 4096], [1024, 4096]))
    ms = 1e3 * gemm_seconds(law, "bfloat16", m, n, k, 2) * np.where(m == 65, 2, 1)
    mine = imported(tmp_path, *(f"bfloat16,{a},{b},{c},{t}" for a, b, c, t in zip(m, n, k, ms, strict=True)))
    factors, inside = table_factors(mine, "bfloat16", [64, 65], 2048, 2048)
    assert factors[0] < 1.2
    assert factors[1] > 1.7
    assert inside.all()


def test_the_work_of_a_shape_does_not_grow_with_the_table_and_is_done_once(tmp_path, monkeypatch):
    """100 n and k of 40 m: two rows of each of 24 n and k are solved for, and no row is priced again."""
    rows = [
        f"bfloat16,{m},{1024 + 64 * n},{1024 + 64 * k},0.02"
        for m in range(1, 41)
        for n in range(10)
        for k in range(10)
    ]
    mine = imported(tmp_path, *rows)
    kernels, solve = mine.kernels("bfloat16"), np.linalg.solve
    priced, solved = [], []
    monkeypatch.setattr(Kernels, "_priced", lambda *x: priced.append(len(x[1])) or np.ones(len(x[1])))
    monkeypatch.setattr(np.linalg, "solve", lambda a, b: solved.append(len(a)) or solve(a, b))
    least_factors(mine, "bfloat16", (1, 1, 1), (4096, 4096, 4096))
    for _ in range(2):
        table_factors(mine, "bfloat16", [5, 5, 70], 1100, 1100)
    assert (priced, solved) == ([], [FAMILIES * ROWS_EACH] * 2)
    assert not kernels._known


def test_no_multiply_is_faster_than_the_least_factor_between_two_shapes_says(tmp_path):
    """On a grid with gaps, small k half by chance 3 times as fast as the law, at and outside of its rows."""
    law, random = machine("h100-8", kernels="vllm"), np.random.default_rng(1)
    rows = random.choice(2 ** np.arange(4, 13), (300, 3)) + random.choice([0, 1, 40], (300, 3))
    rows = np.unique(rows, axis=0)
    faster = np.where(rows[:, 2] < 64, random.choice([1, 3], len(rows)), 1)
    ms = 1e3 * gemm_seconds(law, "bfloat16", *rows.T, 2) / faster
    mine = imported(
        tmp_path, *(f"bfloat16,{m},{n},{k},{t}" for (m, n, k), t in zip(rows.tolist(), ms, strict=True))
    )
    shapes = np.exp2(random.uniform(2, 15, (500, 3))).round()
    factors, _ = table_factors(mine, "bfloat16", *shapes.T)
    shortest, longest = np.maximum(1, shapes // 3).T, 2 * shapes.T
    for low, high in ((shapes.T, shapes.T), (shortest, longest), ((1, 1, 1), shapes.T)):
        assert (least_factors(mine, "bfloat16", low, high) <= factors).all()
    assert np.ptp(least_factors(mine, "bfloat16", shapes.T, shapes.T)) > 0.3
    assert least_factors(law, "bfloat16", shortest, longest) == 1.0


def test_no_multiply_of_a_table_goes_below_the_limits_of_a_search(tmp_path):
    mine = imported(tmp_path, "bfloat16,8192,8192,8192,0.5", "bfloat16,1,64,64,0.0005")
    for m, n, k in ((8192, 8192, 8192), (1, 64, 64), (4096, 8192, 8192)):
        limits, least = (
            mine.gemm_limits("bfloat16", float(k)),
            float(least_factors(mine, "bfloat16", (m, n, k), (m, n, k))),
        )
        took = float(gemm_seconds(mine, "bfloat16", m, n, k, 2))
        moved = 2 * (m * k + n * k + m * n)
        assert took >= limits.start_s * least
        assert took >= 2 * m * n * k / limits.rate * least
        assert took >= moved / limits.bandwidth * least


def test_a_table_stays_with_a_machine_whose_numbers_are_set_and_not_with_another_of_its_file(tmp_path):
    mine = imported(tmp_path, "bfloat16,64,1024,1024,0.02")
    sha = mine.sha
    gemm_seconds(mine, "bfloat16", 64, 1024, 1024, 2)  # which may keep what it found
    assert umm.machine("mine", {"fabric.bandwidth": "x0.5"}).tables is mine.tables
    assert machine("mine").sha == sha != machine("h100-8", kernels="vllm").sha
    path = tables_beside(user_folder() / "mine.toml")[0]
    path.write_text(path.read_text().replace("2e-05", "0.00003"))
    assert float(gemm_seconds(machine("mine"), "bfloat16", 64, 1024, 1024, 2)) == pytest.approx(30e-6)
    path.unlink()
    assert machine("mine").tables is None


def test_a_later_command_reads_the_rows_of_the_types_that_it_asks_for_alone(tmp_path, monkeypatch):
    """Two types beside a file: the kept machine has neither, and asking for one reads no table again."""
    monkeypatch.setattr(kept, "_folders", [tmp_path / "kept"])
    mine = imported(tmp_path, "bfloat16,64,1024,1024,0.02", "fp8,64,1024,1024,0.01")
    again = pickle.loads(pickle.dumps(mine))
    monkeypatch.setattr(tables, "read_rows", None)
    parts._every.cache_clear()
    assert (again, list(again.tables.rows), again.tables.rows._parts) == (mine, ["bfloat16", "float8"], {})
    assert float(gemm_seconds(again, "bfloat16", 64, 1024, 1024, 2)) == pytest.approx(20e-6)
    assert list(again.tables.rows._parts) == ["bfloat16"]


def test_rows_that_were_written_since_the_machine_was_read_are_not_taken_for_those_it_has(tmp_path):
    mine = pickle.loads(pickle.dumps(imported(tmp_path, "bfloat16,64,1024,1024,0.02")))
    path = tables_beside(mine.source_path)[0]
    path.write_text(path.read_text().replace("2e-05", "0.00003"))
    parts._every.cache_clear()
    with pytest.raises(MachineError, match="was written while it was read; run the command again"):
        gemm_seconds(mine, "bfloat16", 64, 1024, 1024, 2)


def test_the_least_time_of_a_shape_counts_and_types_of_others_are_left_out(tmp_path):
    rows = ("fp8,1,2,3,2", "fp8,1,2,3,1", "int8_wo,1,2,3,1", "nvfp4,1,2,3,4")
    result = read_measured([table(tmp_path, *rows)])
    assert result.rows == {("float8", 1, 2, 3): 1e-3, ("float4", 1, 2, 3): 4e-3}
    assert result.left == {"int8_wo": 1}


@pytest.mark.parametrize(
    ("head", "row", "result"),
    [
        (HEAD, "bfloat16,0,2,3,1", "row 1: m, n, k and latency must be numbers of more than 0"),
        (HEAD, "bfloat16,1,2,3,nan", "row 1: m, n, k and latency must be"),
        (HEAD, "bfloat16,1_000,2,3,1", "row 1: m, n, k and latency must be"),
        (HEAD, "bfloat16,1.5,2,3,1", "row 1: m, n, k and latency must be"),
        (HEAD, f"bfloat16,{2**31},2,3,1", "row 1: m, n, k and latency must be"),
        (HEAD, "bfloat16,1,2", "row 1: m, n, k and latency must be"),
        ("m,n,k", "1,2,3", "has the columns m, n, k; multiplies need"),
        (HEAD, "sq,1,2,3,4", "its types are sq"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused(tmp_path, head, row, result):
    with pytest.raises(InputError, match=result):
        read_measured([table(tmp_path, row, head=head)])


def test_times_in_another_unit_are_refused_or_doubted(tmp_path):
    """2 x 8192^3 flop take 1.11 ms at the 989.4 Tflop/s of H100; 1.57 us would be 708 times that."""
    to = ["--from", "h100-8", tmp_path / "m.toml"]
    eight_bits = table(tmp_path, "fp8,8192,8192,8192,0.00085", name="eight.csv")
    assert "is 653.6 times the peak" in command("machine", "import", "--kernels", eight_bits, *to).stderr
    right, fast, slow = (
        table(tmp_path, f"bfloat16,8192,8192,8192,{x}", "bfloat16,8,8,8,0.001", name=f"{x}.csv")
        for x in ("1.57", "0.00157", "1570")
    )
    result = command("machine", "import", "--kernels", fast, *to)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: 8192 x 8192 x 8192 of bfloat16 in 1.57 µs is 708")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "m.toml").exists()
    assert (
        "no multiply reaches 1 % of the peak" in command("machine", "import", "--kernels", slow, *to).stderr
    )
    assert "peak" not in command("machine", "import", "--kernels", right, *to, "--force").stderr


def test_a_table_of_a_spreadsheet_is_read_as_any_other(tmp_path):
    path = tmp_path / "gemm.csv"
    path.write_bytes(b"\xef\xbb\xbfdtype,m,n,k,us\r\nbf16,1,2,3,4\r\n")
    assert read_measured([path]).rows == {("bfloat16", 1, 2, 3): pytest.approx(4e-6)}


def test_parquet_is_read_as_csv_is(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "gemm.parquet"
    columns = {"dtype": ["bfloat16"], "m": [1], "n": [2], "k": [3], "seconds": [1e-6]}
    parquet.write_table(pyarrow.table(columns), path)
    assert read_measured([path]).rows == {("bfloat16", 1, 2, 3): 1e-6}
    path.write_text("no Parquet")
    with pytest.raises(InputError, match=r"gemm\.parquet is no Parquet file"):
        read_measured([path])


@pytest.mark.parametrize(
    ("column", "odd"),
    [("gemm_dtype", [1]), ("gemm_dtype", {"a": 1}), ("m", [1]), ("m", b"\xff"), ("latency", None)],
)
def test_parquet_whose_values_are_no_numbers_or_types_is_refused(tmp_path, column, odd):
    """A list or a struct ended in a traceback."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"gemm_dtype": ["fp8"], "m": [4096], "n": [4096], "k": [2048], "latency": [0.0731]}
    path = tmp_path / "gemm.parquet"
    parquet.write_table(pyarrow.table(columns | {column: [odd]}), path)
    result = command("machine", "import", "--kernels", path, "--from", "h100-8", "-o", tmp_path / "m.toml")
    assert result.exit_code == 2, result.exception
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "m.toml").exists()


@pytest.mark.parametrize("at", [6, 30, 60, 90, 200, -30, -60])
def test_a_damaged_parquet_file_is_named_and_refused(tmp_path, at):
    """Pyarrow raises an OSError or a UnicodeDecodeError: exit code 1 without a name, or a traceback."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"gemm_dtype": ["fp8"] * 9, "m": [*range(1, 10)], "n": [4096] * 9, "k": [2048] * 9}
    path = tmp_path / "gemm.parquet"
    parquet.write_table(pyarrow.table(columns | {"latency": [0.07] * 9}), path)
    content = bytearray(path.read_bytes())
    content[at : at + 8] = b"\xff" * 8
    path.write_bytes(content)
    result = command("machine", "import", "--kernels", path, "--from", "h100-8", "-o", tmp_path / "m.toml")
    assert result.exit_code in (0, 2), result.exception
    assert "gemm.parquet" in result.stderr or result.exit_code == 0
    assert result.stderr.count("\n") == 1 or result.exit_code == 0


def test_a_table_beside_a_file_without_kernels_of_its_types_is_refused(tmp_path):
    rows = table(tmp_path, "bfloat16,64,64,64,0.02")
    result = command("machine", "import", "--kernels", rows, "mine", "--from", "l20-8")
    assert result.exit_code == 2
    assert "the file of l20-8 has no kernels" in result.output
    mine = imported(tmp_path, "bfloat16,64,64,64,0.02")
    tables_beside(mine.source_path)[0].write_text("dtype,m\n")
    with pytest.raises(MachineError, match="has not the columns dtype, m, n, k, seconds"):
        machine("mine")


def test_the_newest_table_of_an_engine_is_taken_unless_a_version_is_named(tmp_path):
    for version in ("0.9.0", "0.24.0"):
        folder = tmp_path / "h100_sxm" / "gemm" / "vllm" / version
        folder.mkdir(parents=True)
        (folder / "gemm_perf.parquet").touch()
    assert aic_table("h100_sxm/vllm", tmp_path)[:2] == ("h100-8", "vllm")
    assert aic_table("h100_sxm/vllm", tmp_path)[2].parent.name == "0.24.0"
    assert aic_table("h100_sxm/vllm/0.9.0", tmp_path)[2].parent.name == "0.9.0"
    for asked, result in (
        ("h100_sx/vllm", "h100_sxm"),
        ("h100_sxm/vlm", "vllm"),
        ("h100_sxm/vllm/1", "0.9.0"),
    ):
        with pytest.raises(InputError, match=result):
            aic_table(asked, tmp_path)


def test_what_import_lacks_is_said_in_a_line(tmp_path):
    for args, outcome in (
        ((), "name the files to read"),
        (("--kernels", "x.csv", "mine"), "--kernels needs FILE"),
    ):
        result = command("machine", "import", *args)
        assert (result.exit_code, outcome in result.output) == (2, True), args
