"""Several numbers of nodes or ranks in one table: time, speed-up, efficiency, device time, dollars."""

import re
import signal
from dataclasses import replace

import pytest
from command import good, record, times_only, umm

from umm.cli.printed.streams import share_of_time, stop_after, time_is_up
from umm.errors import EndedEarlyError
from umm.space.peers import peers as module
from umm.space.scaling import Scale, Scaling

SMALL = ["--machine", "dgx-h100x4", "-m", "2K", "-n", "2K", "-k", "2K", "--dtype", "bf16"]


def test_twice_the_ranks_of_a_multiply_without_communication_cost_the_same_device_time():
    """B is everywhere: half of A's rows each, so two GPU-hours buy as much as one."""
    result = record("simulate", "--machine", "h100-8", "--ranks", "8,4", "--price", "3.60", *SMALL[2:],
                   "--a", "row", "--b", "row@4", "--c", "row")["scaling"]  # fmt: skip
    eight, four = result["rows"]
    assert [row["ranks"] for row in result["rows"]] == [8, 4]
    assert eight["speed_up"] == eight["efficiency"] == 1.0
    assert four["speed_up"] == pytest.approx(eight["makespan_s"] / four["makespan_s"])
    assert four["efficiency"] == pytest.approx(2 * four["speed_up"])
    assert four["gpu_seconds"] == pytest.approx(4 * four["makespan_s"])
    assert four["dollars"] == pytest.approx(four["gpu_seconds"] / 1000)


def test_a_number_that_costs_what_the_fastest_does_is_not_called_cheaper():
    rows = [Scale(8, 8, "row", 4e-3, 1, nodes=1), Scale(16, 16, "row", 2.00001e-3, 1, nodes=2)]
    assert Scaling("h100-8", "mlp", rows).verdict == "Fastest: 2 nodes, 2.00x the first."


def test_a_search_has_the_best_of_each_number_of_nodes_and_its_answers():
    result = record("search", *SMALL, "--nodes", "1,2", "--a", "row", "--b", "row,col", "--c", "row")
    rows = result["scaling"]["rows"]
    assert [(row["nodes"], row["ranks"]) for row in rows] == [(1, 8), (2, 16)]
    assert [row["makespan_s"] for row in rows] == [x["top"][0]["makespan_s"] for x in result["answers"]]


def test_in_weak_scaling_the_size_grows_with_the_nodes(tmp_path):
    page = tmp_path / "page.html"
    layouts = ["--a", "row", "--b", "row,col", "--c", "row"]
    out = good("search", *SMALL, "--nodes", "1,2", "--weak", "m", *layouts, "--html", str(page))
    rows = [line.split()[:3] for line in out.splitlines() if line.strip()[:2] in ("1 ", "2 ")]
    assert "m grows with the ranks" in " ".join(out.split())
    assert rows[:2] == [["1", "8", "2048"], ["2", "16", "4096"]]
    text = page.read_text()
    assert "Efficiency and device time" in text
    headings = " ".join(re.findall(r"<th>([^<]*)</th>", text))
    assert headings == "nodes ranks m makespan speed-up efficiency GPU-s memory best"


def test_tokens_of_a_chain_grow_too():
    result = record("simulate", "--machine", "h100-8", "--ranks", "2,4", "--weak", "tokens", "--chain", "mlp",
                   "--hidden", "256", "--ffn", "512", "--tokens", "128")["scaling"]  # fmt: skip
    assert [row["size"] for row in result["rows"]] == [128, 256]


LAYER = ["--machine", "h100-8", "--ranks", "2,4", "--chain", "transformer-layer", "--hidden", "256"]
LAYER += ["--ffn", "512", "--heads", "4", "--layouts", "data", "--dtype", "bf16"]


def test_more_tokens_are_more_sequences_of_the_same_length():
    """Twice the sequences on twice the GPUs, data-parallel, take the same time; longer ones take more."""
    result = record("simulate", *LAYER, "--tokens", "8K", "--sequences", "2", "--weak", "tokens")["scaling"]
    assert [(row["size"], row["sequences"]) for row in result["rows"]] == [(8192, 2), (16384, 4)]
    assert result["rows"][1]["efficiency"] == pytest.approx(1, abs=0.02)
    one = good("simulate", *LAYER, "--tokens", "8K", "--weak", "tokens")
    assert "sequences of 8192 tokens grow in number with the ranks" in " ".join(one.split())
    longer = record("simulate", *LAYER, "--tokens", "8K", "--sequences", "2", "--weak", "length")["scaling"]
    assert [(row["size"], row["sequences"]) for row in longer["rows"]] == [(8192, 2), (16384, 2)]
    assert longer["rows"][1]["makespan_s"] > result["rows"][1]["makespan_s"]
    assert "of tokens per GPU and second" in longer["verdict"]


def test_a_sweep_ends_with_the_fastest_of_each_number(tmp_path):
    out = good("sweep", "--machine", "h100-8", "--ranks", "2,4", "-m", "256", "-n", "256", "-k", "256", "--a",
               "row", "--b", "row", "--c", "row", "-o", str(tmp_path / "s.db"), "--pool", "none")  # fmt: skip
    assert "C = AB with m=256, n=256, k=256, float32 on h100-8" in out
    assert "ranks  makespan  speed-up  efficiency" in out


@times_only()
def test_a_comparison_ended_early_names_what_it_has_not_simulated(monkeypatch):
    """Ctrl-C after the first scheme of 16 ranks: its row is shown, and the missing ones are named."""
    full = module.peers

    def interrupted(*args, ranks, **kwargs):
        results = full(*args, ranks=ranks, **kwargs)
        if results.ranks < 16:
            return results
        raise EndedEarlyError(
            replace(results, rows=results.rows[:1], complete=False, missing=("fsdp", "data"))
        )

    monkeypatch.setattr(module, "peers", interrupted)
    asked = [
        "peers",
        "--chain",
        "mlp",
        "--hidden",
        "256",
        "--ffn",
        "512",
        "--tokens",
        "256",
        "--nodes",
        "1,2,4",
    ]
    done = umm(*asked)
    assert done.exit_code == 130
    result = " ".join(done.stdout.split())
    assert "Ended early: 2 nodes without fsdp, data; 4 nodes not simulated. Fastest so far: " in result
    record_of = umm(*asked, "--json").stdout
    assert '"complete": false, "missing": ["4 nodes"]' in record_of
    assert '"without": ["fsdp", "data"]' in record_of


def test_one_row_has_no_verdict():
    row = Scale(8, 8, "row", 4e-3, 10, nodes=1)
    assert Scaling("h100-8", "mlp", [row]).verdict == ""
    assert Scaling("h100-8", "mlp", [row, row], "tokens").verdict == "1 node keeps 100 % of the efficiency."


def test_each_number_has_its_share_of_the_seconds():
    """100 s for four: 25 s for the first; it uses none, so a third of 100 s for the second."""
    call_off = stop_after(100)
    try:
        with share_of_time(4):
            assert 20 < signal.getitimer(signal.ITIMER_REAL)[0] <= 25
        with share_of_time(3):
            assert 30 < signal.getitimer(signal.ITIMER_REAL)[0] <= 33.4
        with pytest.raises(KeyboardInterrupt), share_of_time(2) as used_up:
            signal.raise_signal(signal.SIGALRM)
        assert used_up()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 80
        with pytest.raises(KeyboardInterrupt), share_of_time(1):
            signal.raise_signal(signal.SIGALRM)
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0  # what is found is printed
    finally:
        call_off()
        assert time_is_up() == 100  # or the next command that is interrupted would say so
    with share_of_time(2):
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["simulate", *SMALL, "--weak", "m"], "--weak compares several numbers"),
        (["simulate", *SMALL, "--nodes", "1,2", "--ranks", "8,16"], "cannot both be lists"),
        (["simulate", *SMALL, "--nodes", "1,x"], "nodes cannot be 'x'"),
        (["search", *SMALL, "--nodes", "1,2", "--emit", "torch"], "leave out --emit"),
        (["search", *SMALL, "--ranks", "8,many"], "is not a number of ranks"),
        (
            ["simulate", *SMALL, "--nodes", "1,2", "--weak", "tokens"],
            "--weak tokens lacks the size that grows",
        ),
        (
            ["simulate", *LAYER, "--ranks", "4,6", "--tokens", "8K", "--weak", "tokens"],
            "--weak tokens adds whole sequences, and 3/2 times 1 is not whole",
        ),
        (
            ["simulate", "--ranks", "4,6", "--chain", "mlp", "--weak", "length", "--tokens", "8K"],
            "--weak length is of chains with attention",
        ),
    ],
)
def test_what_makes_no_table_is_refused_in_a_line(command, output):
    result = umm(*command)
    assert result.exit_code == 2
    assert output in result.stderr


@pytest.mark.parametrize("count", [(), ("--nodes", "2"), ("--ranks", "4")])
@times_only()
def test_a_price_of_one_number_is_a_table_of_one_row(count):
    result = record("peers", "--machine", "h100-8", *count, "--price", "3.60", *SMALL[2:])["scaling"]
    (row,) = result["rows"]
    assert row["ranks"] == {"--nodes": 16, "--ranks": 4}.get(count[0] if count else "", 8)
    assert row["dollars"] == pytest.approx(row["makespan_s"] * row["devices"] * 3.60 / 3600)


@times_only()
def test_the_links_of_a_node_are_called_alike_on_one_node_and_on_several():
    asked = ("simulate", "--machine", "h100-8", *SMALL[2:], "--nodes", "2", "--set")
    one, other = (record(*asked, f"fabric.{x}bandwidth=x0.5")["predicted"] for x in ("", "inside."))
    assert one["makespan_s"] == other["makespan_s"]
