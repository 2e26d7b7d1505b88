"""Several numbers of nodes or ranks in one table: time, speed-up, efficiency, device time, dollars."""

import pytest
from command import good, record, umm

SMALL = ["--machine", "dgx-h100x4", "-m", "2K", "-n", "2K", "-k", "2K", "--dtype", "bf16"]


def test_twice_the_ranks_of_a_multiply_without_communication_cost_the_same_device_time():
    """B is everywhere: half of A's rows each, so two GPU-hours buy what one did, but for starts and waves."""
    found = record("simulate", "--machine", "h100-8", "--ranks", "8,4", "--price", "3.60", *SMALL[2:],
                   "--a", "row", "--b", "row@4", "--c", "row")["scaling"]  # fmt: skip
    eight, four = found["rows"]
    assert [row["ranks"] for row in found["rows"]] == [8, 4]
    assert eight["speed_up"] == eight["efficiency"] == 1.0
    assert four["speed_up"] == pytest.approx(eight["makespan_s"] / four["makespan_s"])
    assert four["efficiency"] == pytest.approx(2 * four["speed_up"])
    assert four["gpu_seconds"] == pytest.approx(4 * four["makespan_s"])
    assert four["dollars"] == pytest.approx(four["gpu_seconds"] / 1000)


def test_a_search_has_the_best_of_each_number_of_nodes_and_its_answers():
    found = record("search", *SMALL, "--nodes", "1,2", "--a", "row", "--b", "row,col", "--c", "row")
    rows = found["scaling"]["rows"]
    assert [(row["nodes"], row["ranks"]) for row in rows] == [(1, 8), (2, 16)]
    assert [row["makespan_s"] for row in rows] == [x["top"][0]["makespan_s"] for x in found["answers"]]


def test_in_weak_scaling_the_size_grows_with_the_nodes(tmp_path):
    page = tmp_path / "page.html"
    layouts = ["--a", "row", "--b", "row,col", "--c", "row"]
    out = good("search", *SMALL, "--nodes", "1,2", "--weak", "m", *layouts, "--html", str(page))
    rows = [line.split()[:3] for line in out.splitlines() if line.strip()[:2] in ("1 ", "2 ")]
    assert "m grows with the ranks" in " ".join(out.split())
    assert rows[:2] == [["1", "8", "2048"], ["2", "16", "4096"]]
    assert "Efficiency and device time" in page.read_text()


def test_tokens_of_a_chain_grow_too():
    found = record("simulate", "--machine", "h100-8", "--ranks", "2,4", "--weak", "tokens", "--chain", "mlp",
                   "--hidden", "256", "--ffn", "512", "--tokens", "128")["scaling"]  # fmt: skip
    assert [row["size"] for row in found["rows"]] == [128, 256]


def test_a_sweep_ends_with_the_fastest_of_each_number(tmp_path):
    out = good("sweep", "--machine", "h100-8", "--ranks", "2,4", "-m", "256", "-n", "256", "-k", "256", "--a",
               "row", "--b", "row", "--c", "row", "-o", str(tmp_path / "s.db"), "--pool", "none")  # fmt: skip
    assert "C = AB with m=256, n=256, k=256, float32 on h100-8" in out
    assert "ranks  makespan  speed-up  efficiency" in out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["simulate", *SMALL, "--price", "3"], "--price compares several numbers"),
        (["simulate", *SMALL, "--nodes", "1,2", "--ranks", "8,16"], "cannot both be lists"),
        (["simulate", *SMALL, "--nodes", "1,x"], "nodes cannot be 'x'"),
        (["search", *SMALL, "--nodes", "1,2", "--emit", "torch"], "leave out --emit"),
        (["search", *SMALL, "--ranks", "8,many"], "is not a number of ranks"),
        (
            ["simulate", *SMALL, "--nodes", "1,2", "--weak", "tokens"],
            "--weak tokens lacks the size that grows",
        ),
    ],
)
def test_what_makes_no_table_is_refused_in_a_line(command, said):
    found = umm(*command)
    assert found.exit_code == 2
    assert said in found.stderr
