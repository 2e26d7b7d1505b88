"""Draws of slow ranks and jitter: their effect on a makespan, and which point suffers least."""

import json
from dataclasses import replace

import numpy as np
import pytest
from command import umm
from hypothesis import given
from hypothesis import strategies as st

import umm as library
from umm.algorithms.scheduling import schedule
from umm.errors import InputError
from umm.executor import executor
from umm.machines import machine
from umm.plans.lower import lower
from umm.plans.steady import steady
from umm.program.problem import Problem
from umm.program.systems import in_scheme
from umm.schedules.table.details import LOCAL
from umm.space import Space, search
from umm.space.search import uncertainty
from umm.space.search.noise import Noise
from umm.space.search.robustness import LEAST_SAVING, drawn_makespans, robust, spread
from umm.space.search.uncertainty import layers_range
from umm_sim.executor import SimExecutor

SIM = SimExecutor()
H100 = machine("h100-8")
SMALL = "search --machine h100-8 -m 512 -n 768 -k 640 --ranks 4 --top 3 --json --quiet"


def made(a="row", b="row", c="row"):
    return schedule(Problem(m=512, n=768, k=640, a=a, b=b, c=c, ranks=4), H100)


@given(st.integers(0, 50), st.sampled_from(["lognormal", "normal"]))
def test_each_draw_is_the_schedule_with_other_durations(seed, law):
    """Played again with the same dependencies: the same makespans as of a schedule with those columns."""
    one, noise = made("2d", "col", "col"), Noise(0.1, 0.2, 0.3, law, slow=1, rate=0.5, draws=3, seed=seed)
    moves = (one.src != one.dst) | (one.kind == LOCAL)
    gemm, link, launch = noise.by_run(4).swapaxes(0, 1)
    for draw, result in enumerate(drawn_makespans(one, noise, SIM)):
        seconds = one.seconds * np.where(moves, launch[draw][one.rank], gemm[draw][one.rank])
        nbytes = np.rint(one.nbytes * np.where(moves, link[draw][one.src], 1)).astype(int)
        assert result == SIM.makespan(replace(one, seconds=seconds, nbytes=nbytes))


def test_nothing_drawn_is_the_prediction():
    one = made()
    assert spread(one, Noise(draws=5), SIM) == (SIM.makespan(one), SIM.makespan(one))


def test_a_straggler_slows_what_only_computes_by_its_rate():
    """Nothing moves, so the slow rank decides: 1 / 0.8 of its gemms, whichever rank it is."""
    one = made("row@4", "col", "col")
    assert spread(one, Noise.of(None, "1:0.8"), SIM) == pytest.approx([1.25 * SIM.makespan(one)] * 2)


@pytest.mark.parametrize("layouts", ["tp8-dp2", "megatron", "sequence"])
def test_a_slow_rank_costs_no_more_than_if_all_were_slow(layouts):
    """Of two nodes, summed within each or over both: others wait for it once, and then sum in step."""
    model = library.chain("gated-mlp", model="llama-3-70b", tokens=8192, dtype="bfloat16")
    one = lower(model.laid_out(layouts, 16), machine("h100-8", nodes=2))
    some, every = (spread(one, Noise(slow=x, rate=0.5), SIM).p95_s for x in (1, 16))
    assert SIM.makespan(one) < some <= 1.001 * every


def test_factors_are_those_of_the_seed_and_jitter_of_one_resource_leaves_the_others():
    both, gemm = Noise.of("3%", None), Noise.of("gemm=3%", None)
    assert (both.by_run(4)[:, 0] == gemm.by_run(4)[:, 0]).all()
    assert (gemm.by_run(4)[:, 1] == 1).all()
    assert np.std(np.log(both.by_run(12)[:, 1])) == pytest.approx(0.03, rel=0.1)
    assert (replace(gemm, seed=1).by_run(4)[:, 0] != gemm.by_run(4)[:, 0]).any()
    assert ((Noise(slow=2, rate=0.5).by_run(4)[:, 0] == 2).sum(axis=1) == 2).all()


def test_the_robust_choice_has_the_least_p95_up_to_the_tolerance():
    result = search(Space(512, 768, 640, ranks=4), H100, top=5)
    best = robust(result, Noise.of("link=30%", "1:0.5", draws=40), executor("sim"))
    least = min(x.p95_s for x in best.spreads.values())
    assert best.spreads[best.choice].p95_s <= least / (1 - LEAST_SAVING)
    assert best.fastest == result.top[0]
    assert best.good_day_cost >= 0
    assert all(x.makespan_s <= 1.1 * result.top[0].makespan_s for x in best.spreads)


@pytest.mark.parametrize(
    ("jitter", "straggler", "result"),
    [
        ("3 percent", None, "write 3%"),
        ("disk=3%", None, "write 3%"),
        ("300%", None, "not possible"),
        (None, "0.8", "write 1:0.8"),
        (None, "1:1.5", "not possible"),
    ],
)
def test_what_means_nothing_is_refused(jitter, straggler, result):
    with pytest.raises(InputError, match=result):
        Noise.of(jitter, straggler)


def test_more_stragglers_than_ranks_are_refused():
    with pytest.raises(InputError, match="more than the 4 ranks"):
        Noise.of(None, "5:0.8").by_run(4)


def test_search_and_simulate_have_p50_and_p95_as_json():
    noise = "--jitter 3% --straggler 1:0.8 --draws 20"
    result = json.loads(umm(*f"{SMALL} {noise}".split()).stdout)
    first, best = result["top"][0], result["robust"]
    assert first["makespan_s"] < first["p50_s"] <= first["p95_s"]
    assert best["p95_s"] <= min(x["p95_s"] for x in result["top"] if x["p95_s"]) / (1 - LEAST_SAVING)
    assert best["noise"] == {
        "gemm": 0.03, "link": 0.03, "launch": 0.03, "law": "lognormal",
        "slow": 1, "rate": 0.8, "draws": 20, "seed": 0,
    }  # fmt: skip
    small = "simulate --machine h100-8 -m 512 -n 768 -k 640 --ranks 4 --json --quiet"
    predicted = json.loads(umm(*f"{small} {noise}".split()).stdout)["predicted"]
    assert predicted["makespan_s"] < predicted["p50_s"] <= predicted["p95_s"]


def test_delays_are_late_or_on_time_never_early_and_those_of_search():
    """``--delay 30%,1:0.5`` draws the same as ``--jitter 30%,delay --straggler 1:0.5``."""
    noise = Noise.delays("30%,1:0.5", draws=50)
    assert noise == Noise.of("30%,delay", "1:0.5", draws=50)
    factors = noise.by_run(4)
    assert factors.shape == (50, 3, 4)
    assert factors.min() >= 1
    assert (factors[:, 0].max(axis=1) >= 2).all()


@pytest.mark.parametrize("text", ["3%,lognormal", "1:0.8,2:0.9", "1:2"])
def test_delays_that_cannot_be_put_into_a_run_are_refused(text):
    with pytest.raises(InputError, match=r"never early|not possible"):
        Noise.delays(text)


def test_ranks_of_one_process_cannot_be_delayed():
    result = umm(
        *["run", "--executor", "numpy", "-m", "8", "-n", "8", "-k", "8", "--ranks", "2", "--delay", "30%"]
    )
    assert result.exit_code == 2
    assert "cannot delay its ranks; --executor mpi can" in result.stderr


@pytest.mark.mpi
@pytest.mark.usefixtures("shared_ranks")
def test_a_rank_at_a_twentieth_takes_that_long_on_mpi():
    """Each of two ranks multiplies 256x512x512 with nothing to fetch; one of them, drawn, at 5 %."""
    words = "run --executor mpi --ranks 2 -m 512 -n 512 -k 512 --a row --b row@2 --c row --iters 3 --check"
    plain, late = (
        json.loads(umm(*f"{words} --json --quiet {more}".split()).stdout) for more in ("", "--delay 1:0.05")
    )
    assert late["measured"]["ok"]
    assert late["measured"]["best_s"] > 4 * plain["measured"]["best_s"]
    assert late["delays"]["measured"]["p95_s"] >= late["measured"]["best_s"]
    assert late["delays"]["predicted"]["p50_s"] > 0
    assert late["delays"]["noise"]["rate"] == 0.05


def test_a_measured_list_is_drawn_from(tmp_path):
    """Four runs of 1, 1, 1 and 2 s: a rank takes its median or twice that, 2 in about one of four draws."""
    file = tmp_path / "times.txt"
    file.write_text("1.0\n1.0\n1.0\n2.0\n")
    noise = Noise.of(f"gemm={file},link=5%", None, draws=400)
    gemm, link, _ = noise.by_run(4).swapaxes(0, 1)
    assert set(gemm.flat) == {1.0, 2.0}
    assert (gemm == 2).mean() == pytest.approx(0.25, abs=0.05)
    assert link.std() > 0.02
    assert "gemm as in 4 runs" in str(noise)
    for text in ("", "1.0", "1 x", "1 -1"):
        file.write_text(text)
        with pytest.raises(InputError, match="times"):
            Noise.of(f"gemm={file}", None)
    file.write_text("1 2")
    with pytest.raises(InputError, match="sometimes early"):
        Noise.delays(f"gemm={file}")


@pytest.mark.parametrize("scheme", ["sequence", "fsdp8"])
def test_layers_take_longest_where_all_numbers_are_slow(monkeypatch, scheme):
    """So of large layers those corners are left out at which some numbers are fast and others slow."""
    layer = in_scheme(scheme, library.chain("transformer-layer", model="llama-3-8b", tokens=2**13), 8)
    layouts = layer.layouts_of(scheme, 8)
    result = steady(layer, layouts, 8, H100, 2)
    makespan, lowered = SIM.makespan, []

    def alone(target):
        lowered.append(target)
        return lower(layer.laid_out(layouts, 8), target)

    ends = layers_range(result, H100, alone, makespan)
    monkeypatch.setattr(uncertainty, "MOST_OF_ALL_CORNERS", 0)
    assert layers_range(result, H100, alone, makespan) == ends
    assert len(lowered) == 4 + 2
    assert ends[0] < result.makespan_s < ends[1]
