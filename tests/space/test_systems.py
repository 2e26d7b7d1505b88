"""Chains as training systems run them, beside the best layouts: every row computes the chain."""

import doctest
from pathlib import Path

import numpy as np
import pytest
from command import makespan, record

import umm
from umm.errors import InputError, ProblemError
from umm.plans.lower import lower
from umm.program import Copy
from umm.program.layers import repeated
from umm.program.outline import Outline
from umm.program.systems import choices_left, fully_sharded, gradients_by_tokens, in_scheme, sharded_choices
from umm.space.peers.contender import systems
from umm.space.peers.peers import peers
from umm.space.pricing.multiplies import pricer_of
from umm.traces.traffic import bytes_by_kind

GUIDE = Path(__file__).parents[2] / "docs/guides/compare.md"
SIZES = {"hidden": 16, "ffn": 20, "tokens": 12, "heads": 4, "kv_heads": 2}
NEEDED = {"mlp": ("hidden", "ffn", "tokens"), "gated-mlp": ("hidden", "ffn", "tokens")}


def preset(name, backward, **sizes):
    wanted = {x: (SIZES | sizes)[x] for x in NEEDED.get(name, SIZES)}
    return umm.chain(name, backward=backward, dtype="float64", **wanted)


def is_right(schedule):
    """All outputs against float64 NumPy, in a random order."""
    chain = schedule.program
    rng = np.random.default_rng(0)
    operands = {x.name: rng.uniform(-1, 1, x.shape) for x in chain.tensors if x.is_input}
    results = umm.run(schedule, "numpy", operands=operands, order="random", seed=1).results
    wanted = chain.reference(operands)
    return all(np.allclose(results[x], wanted[x], rtol=1e-9, atol=1e-9) for x in chain.outputs)


@pytest.mark.parametrize(
    ("nodes", "name"),
    [
        (1, "megatron"), (1, "data"), (1, "fsdp8"), (1, "hsdp4x2"), (1, "tp2-dp4"),
        (2, "sp8-dp2"), (2, "fsdp16"), (2, "hsdp8x2"),
        (4, "tp8-dp4"), (4, "fsdp32"), (4, "hsdp8x4"), (4, "fsdp4-tp8"),
    ],
)  # fmt: skip
def test_a_scheme_has_one_time_whoever_is_asked(nodes, name):
    """The command, the function, a row of peers and the line of a search are one schedule."""
    sizes = {"hidden": 512, "ffn": 1024, "tokens": 2048}
    outline = umm.chain("mlp", **sizes, backward=True, dtype="bfloat16")
    machine, ranks = umm.machine("dgx-h100x4", nodes=nodes), 8 * nodes
    typed = ["--machine", "dgx-h100x4", "--nodes", nodes, "--chain", "mlp", "--backward", "--dtype", "bf16"]
    typed += [word for key, size in sizes.items() for word in (f"--{key}", size)]
    simulated = makespan(*typed, "--layouts", name)
    called = umm.run(umm.schedule(outline, machine, layouts=name)).makespan_s
    row = next(x for x in systems(outline, ranks, machine) if x.name in (name, name.rstrip("0123456789")))
    compared = umm.run(row.schedule(outline, machine)).makespan_s
    beside = pricer_of(umm.Space(chain=outline, ranks=ranks).over(machine), machine).outside(name, 2**40)
    assert simulated == called == compared == beside.makespan_s


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", ["mlp", "gated-mlp", "transformer-layer"])
def test_sharded_weights_and_meshes_give_what_the_chain_computes(name, backward):
    """Uneven sizes too: 13 tokens and 20 columns on 4 ranks."""
    outline = preset(name, backward, tokens=13 if name != "transformer-layer" else 12)
    sharded = fully_sharded(outline).laid_out("fsdp", ranks=4)
    for movement in ("auto", "library"):
        stays = gradients_by_tokens(outline)
        assert is_right(lower(sharded, "h100-8", stationary=stays, movement=movement))
    for mesh in ("tp2-dp2", "fsdp2-tp2", "hsdp2x2"):
        for movement in ("gathered", "library"):
            assert is_right(lower(outline.laid_out(mesh, 4), "h100-8", movement=movement))


def test_collectives_of_a_library_run_one_after_another_and_start_together():
    """W1 and W2 are gathered at once, W1 again, their gradients summed: a rank that is late holds up all."""
    sharded = fully_sharded(preset("mlp", True)).laid_out("fsdp", ranks=4)
    schedule = lower(sharded, "h100-8", **sharded_choices(sharded))
    spans = [x for x in umm.run(schedule).to_frame().itertuples() if x.kind != "map"]
    moving = [x for x in spans if x.lane.startswith("library")]
    starts = {}
    for x in spans:
        if x.lane == "start":
            starts.setdefault(x.rank, []).append(x)
    assert [len(x) for x in starts.values()] == [4] * 4
    for number in range(4):
        ready = max(by_number[number].end_s for by_number in starts.values())
        before = [x for x in moving if x.start_s < ready - 1e-12]
        assert all(
            x.end_s <= min(by_number[number].start_s for by_number in starts.values()) + 1e-12 for x in before
        )


def test_a_search_has_no_bounds_for_a_library():
    with pytest.raises(InputError, match="movement library has no bounds"):
        umm.search(umm.Space(m=64, n=64, k=64, ranks=4, movement="library"), "h100-8")


def test_fsdp_gathers_a_weight_for_each_use():
    """Forward W1 and W2, backward W1 again and W2 is there; nothing reads the cut weights but copies."""
    outline = fully_sharded(preset("mlp", True))
    copies = [x.x for x in outline.statements if isinstance(x, Copy)]
    assert copies == ["W1", "W2", "W1"]
    assert {outline.layouts["fsdp"][x] for x in ("W1", "W2", "dW1", "dW2")} == {"row"}
    readers = [x for x in outline.statements if "W1" in x.reads or "W2" in x.reads]
    assert all(isinstance(x, Copy) for x in readers)


@pytest.mark.parametrize(
    "name", ["fsdp8", "hsdp4x2", "fsdp2-tp4", "fsdp2-sp4", "fsdp4-tp2", "fsdp2-ulysses4"]
)
@pytest.mark.parametrize("tokens", [8, 1024])
def test_on_several_nodes_too_a_sharded_weight_comes_to_the_tokens_however_few_they_are(name, tokens):
    """On 2 nodes of 4: weights are gathered, and activations only for tensor parallelism."""
    layer = umm.chain(
        "transformer-layer", hidden=64, ffn=128, heads=4, kv_heads=4, tokens=tokens, sequences=8,
        backward=True, dtype="bfloat16",
    )  # fmt: skip
    machine = umm.machine("a100-2x4")
    changed = in_scheme(name, layer, 8)
    laid = changed.laid_out(changed.layouts_of(name, 8), 8)
    made = lower(laid, machine, **choices_left(laid, {"stationary": "auto", "movement": "auto"}, name))
    gathered = set[str]()
    for part in made.options["moved_by"].split("; "):
        names, result, _ = part.partition(" gathered")
        gathered |= set(names.split(", ")) if result else set()
    readers = [x for x in laid.statements if {"Wq", "Wo", "W1", "W3", "W2"} & {*x.reads}]
    assert all(isinstance(x, Copy) for x in readers)
    assert len(readers) == 2 * 5 - 1  # the backward part begins with W2
    between_blocks = {"N1", "N2", "dR", "dY"} if name.endswith("sp4") else set()
    assert gathered == between_blocks


def _two_layers(scheme, layer, ranks, machine):
    """The trace of two layers in a scheme, on its own choices."""
    full = repeated(in_scheme(scheme, layer, ranks), 2)
    laid = full.laid_out(full.layouts_of(scheme, ranks), ranks)
    how = choices_left(laid, {"stationary": "auto", "movement": "auto"}, scheme)
    return umm.run(lower(laid, machine, **how))


def test_gathers_of_weights_neither_part_sums_nor_hold_up_gathers_of_tokens():
    """With FSDP over sequence parallelism dN2, of two products, is summed once; N1 is gathered first."""
    layer = umm.chain(
        "transformer-layer", model="llama-3-8b", tokens=4096, sequences=4, backward=True, dtype="bfloat16"
    )
    frame = _two_layers("fsdp2-sp2", layer, 4, umm.machine("h100-8")).to_frame()
    summed = frame[(frame.kind == "accumulate") & (frame.dN2_tile != "")]
    assert summed.nbytes.sum() == 2 * 2 * 4096 * 4096 * 2 / 2  # two layers, two groups, half a rank
    mine = frame[frame["rank"] == 0]
    normed = mine[(mine.kind == "map") & (mine["N1.1_tile"] != "")].end_s.min()
    gathered = mine[(mine.kind == "get") & (mine["N1.1_tile"] != "")].start_s.min()
    weights = mine[mine.lane.str.startswith("library") & (mine.flop == 0) & (mine["N1.1_tile"] == "")]
    assert not ((weights.start_s > normed) & (weights.start_s < gathered)).any()


def test_experts_over_nodes_gather_behind_multiplies():
    """Mixtral 8x22B on 2 nodes: cards carry 18.7 ms of weights a layer behind 29.4 ms of multiplies."""
    layer = umm.chain(
        "moe-layer", model="mixtral-8x22b", tokens=2**16, sequences=16, backward=True, dtype="bfloat16"
    )
    trace = _two_layers("ep8-fsdp2", layer, 16, umm.machine("h100-8", nodes=2))
    parts = trace.breakdown().mean
    first = 6.2e-3  # nothing hides the gathers of the first experts
    assert parts["exposed_communication"] + parts["idle"] - first < 0.05 * parts["compute"]


def test_on_several_nodes_too_ranks_without_tokens_gather_weights():
    """Few tokens on 2 nodes of 4: each rank gets the 7/8 that it lacks of three weights of 32 MiB."""
    result = []
    for batch in (2, 4, 8):
        layer = umm.chain("gated-mlp", hidden=4096, ffn=4096, tokens=batch, dtype="bfloat16")
        changed = in_scheme("fsdp8", layer, 8)
        laid = changed.laid_out(changed.layouts_of("fsdp8", 8), 8)
        how = choices_left(laid, {"stationary": "auto", "movement": "auto"}, "fsdp8")
        trace = umm.run(lower(laid, umm.machine("a100-2x4"), **how))
        result.append(bytes_by_kind(trace.schedule)["get"])
    assert result == [3 * 7 * 4096**2 * 2] * 3


def test_hybrid_shards_go_to_their_copies_beside_the_next_sum():
    """Each sum starts once, and its copies have a lane of their own: 6.5 ms on 2 nodes of 4, as fsdp8 7.1."""
    layer = umm.chain("gated-mlp", hidden=4096, ffn=8192, tokens=16384, backward=True, dtype="bfloat16")
    took = dict[str, float]()
    for name in ("hsdp4x2", "fsdp8"):
        changed = in_scheme(name, layer, 8)
        laid = changed.laid_out(changed.layouts_of(name, 8), 8)
        how = choices_left(laid, {"stationary": "auto", "movement": "auto"}, name)
        trace = umm.run(lower(laid, umm.machine("a100-2x4"), **how))
        took[name] = trace.makespan_s
        if name == "hsdp4x2":
            lanes = [x.lane for x in trace.to_frame().itertuples() if x.rank == 0]
            assert lanes.count("start") == 3  # dW1, dW3 and dW2
            assert sum(x.startswith("copies") for x in lanes) == 3
    assert took["hsdp4x2"] < 0.95 * took["fsdp8"]


@pytest.mark.parametrize("name", ["fsdp8", "hsdp4x2", "fsdp2-tp4"])
def test_on_several_nodes_too_layers_share_the_room_of_gathered_weights(name):
    """Two layers more hold two layers more of weights and gradients, and gather as much for each layer."""
    layer = umm.chain("mlp", hidden=512, ffn=1024, tokens=64, backward=True, dtype="bfloat16")
    memory, moved = [], []
    for layers in (4, 6, 8):
        changed = repeated(in_scheme(name, layer, 8), layers)
        laid = changed.laid_out(changed.layouts_of(name, 8), 8)
        how = choices_left(laid, {"stationary": "auto", "movement": "auto"}, name)
        made = lower(laid, umm.machine("a100-2x4"), **how)
        memory.append(int(made.memory_bytes.max()))
        moved.append(bytes_by_kind(made)["get"])
    assert moved[1] - moved[0] == moved[2] - moved[1]
    assert memory[1] - memory[0] == memory[2] - memory[1]


def test_a_chain_without_such_layouts_is_told_what_it_lacks():
    outline = preset("mlp", False)
    bare = Outline("bare", outline.tensors, outline.statements)
    with pytest.raises(ProblemError, match="chain bare has no layouts"):
        fully_sharded(bare)


def test_rows_are_what_is_simulated_and_no_row_of_the_space_beats_the_proven_best():
    outline = preset("mlp", True, hidden=256, ffn=512, tokens=128)
    result = peers(outline, "h100-8", ranks=4, crossover=None)
    names = [row.algorithm for row in result.rows]
    assert set(names) == {
        "universal",
        "megatron",
        "sequence",
        "data",
        "fsdp",
        "tp2-dp2",
        "fsdp2-tp2",
        "fsdp2-sp2",
        "hsdp2x2",
    }
    assert names[0] == "universal"
    assert result.proven
    for row in result.rows:
        made = row.contender.schedule(outline, result.machine)
        assert is_right(made)
        assert umm.run(made).makespan_s == row.makespan_s
        if row.algorithm in ("megatron", "sequence", "data"):
            assert row.makespan_s >= result.rows[0].makespan_s
    assert result.best.makespan_s == min(row.makespan_s for row in result.rows if row.fits)


def test_the_command_tells_at_how_many_tokens_the_fastest_changes():
    flags = ["peers", "--chain", "mlp", "--hidden", 2048, "--ffn", 8192, "--tokens", 1024, "--ranks", 4]
    result = record(*flags, "--machine", "h100-8", "--dtype", "bfloat16", "--crossover")
    assert {"megatron", "sequence", "fsdp"} <= {row["algorithm"] for row in result["rows"]}
    starts = [x["start"] for x in result["stretches"]]
    assert starts[0] == 128
    assert result["stretches"][-1]["stop"] == 8192
    if result["crossover"]:
        assert result["crossover"]["tokens"] == starts[1]


def test_the_guide_s_example_says_what_happens():
    assert doctest.testfile(str(GUIDE), module_relative=False) == (0, 5)


def test_inside_a_node_a_scheme_moves_as_it_is_fastest():
    """The MLP of one node: megatron's sums, flat one-sided or by collectives, as its row says."""
    outline = umm.chain("mlp", hidden=1024, ffn=4096, tokens=2048, dtype="bfloat16", backward=True)
    row = next(
        x for x in umm.peers(outline, "h100-8", ranks=8, crossover=None).rows if x.algorithm == "megatron"
    )
    chain = outline.laid_out("megatron", 8)
    seconds = [umm.run(lower(chain, "h100-8", movement=x)).makespan_s for x in ("flat", "gathered", "chunks")]
    assert row.makespan_s == min(seconds)


def test_a_mixture_has_rows_in_which_every_rank_has_an_expert_or_a_copy():
    """Eight experts on 32 ranks of four nodes: over 8 groups, or 16 and 32 with copies; none over nodes."""
    outline = umm.chain("moe", model="mixtral-8x7b", tokens=4096)
    names = [x.name for x in systems(outline, 32, umm.machine("h100-8", nodes=4))]
    assert names == ["expert", "whole", "ep8-tp4", "ep4-tp8", "ep32+24", "ep16-tp2+8", "ep8-dp4", "ep8-fsdp4"]
