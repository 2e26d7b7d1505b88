"""Laws over whole answers to random realistic questions, most of them asked twice with one change.

A law draws a question, asks the command with ``--json``, and returns what does not hold, in words with the
commands, or nothing. A refused question is no case.
"""

import json
import math
import os
import shlex
import subprocess
import sys
from functools import cache

from command import umm

from umm.program.presets import chain
from umm.program.systems import in_scheme
from umm.space.search.uncertainty import TOLERANCE

EXACT = 1e-9
"""Share by which one schedule's time may differ from itself, by the order in which it was added up."""


class RefusedError(Exception):
    """A question that has no answer: bad sizes for a layout, or nothing that fits."""


@cache
def answer(*args):
    """Return the JSON of a command.

    Raises:
        RefusedError: if it refuses the question.
    """
    result = umm(*args, "--json", "--quiet")
    if result.exit_code in (2, 3):
        raise RefusedError(result.output)
    if result.exit_code == 130:
        raise KeyboardInterrupt
    assert result.exit_code == 0, f"{shlex.join(args)}: exit code {result.exit_code}, {result.output[-300:]}"
    return json.loads(result.stdout)


def _command(*args):
    return f"umm {shlex.join(args)}"


def _multiply(rng):
    """Return the flags of a random multiply."""
    sizes = [str(rng.choice((1, 2, 3, 5, 8)) * rng.choice((128, 256, 1024))) for _ in "mnk"]
    machine, ranks = rng.choice((("h100-8", 4), ("h100-8", 8), ("b200-8", 8), ("pvc-12", 6), ("a100-8", 8)))
    dtype = "float32" if machine == "pvc-12" else "bf16"
    flags = zip(("-m", "-n", "-k"), sizes, strict=True)
    where = ["--machine", machine, "--ranks", str(ranks), "--dtype", dtype]
    return [x for pair in flags for x in pair] + where


SIZES = ("--tokens", "--hidden", "--ffn", "--heads", "--experts", "--top-k")
PRESETS = (
    ("mlp", {"--hidden": (512, 1024, 4096), "--ffn": (2048, 4096)}),
    ("gated-mlp", {"--hidden": (1024, 4096), "--ffn": (2048, 8192)}),
    ("attention", {"--hidden": (1024, 4096), "--heads": (8, 32)}),
    ("transformer-layer", {"--hidden": (1024, 2048), "--ffn": (4096,), "--heads": (16,)}),
    ("moe", {"--hidden": (512, 2048), "--ffn": (512, 1024), "--experts": (8, 16), "--top-k": (1, 2)}),
)


def _chain(rng, presets=PRESETS, tokens=(256, 1024, 4096), backward=True):
    """Return the flags of a random preset chain but its tokens and machine, and these."""
    name, axes = rng.choice(presets)
    flags = ["--chain", name, "--dtype", "bf16"]
    for flag, values in axes.items():
        flags += [flag, str(rng.choice(values))]
    if backward and rng.random() < 0.3:
        flags.append("--backward")
    return flags, rng.choice(tokens)


def _searched(rng):
    """Return the flags of a random search of a chain: of layers few layouts, so that it takes seconds."""
    flags, tokens = _chain(rng)
    machine = rng.choice(("h100-8", "b200-8", "a100-8", "mi300x-8"))
    flags += ["--tokens", str(tokens), "--machine", machine, "--ranks", str(rng.choice((2, 4, 8)))]
    if "transformer-layer" in flags or "--backward" in flags:
        flags += ["--choices", "row,row@p"]
    return flags


def _asked(rng):
    """Return the flags of a random search."""
    return _searched(rng) if rng.random() < 0.6 else _multiply(rng)


def _least(result):
    """Return the best makespan, and a bound below all that were searched."""
    best = result["top"][0]["makespan_s"]
    return best, best if result["proven"] else best * (1 - result.get("gap", 1.0))


def _never_slower(flags, before, after, what):
    """Return a violation, in words, if the second answer is slower than the first."""
    one, other = answer("search", *flags, *before), answer("search", *flags, *after)
    (slow, _), (fast, bound) = _least(one), _least(other)
    if fast <= slow * (1 + TOLERANCE):
        return ""
    how = "" if bound > slow * (1 + TOLERANCE) else f", though its bound allows {bound:.6g}"
    return (
        f"{what} is slower, {fast:.6g} s after {slow:.6g}{how}: {_command('search', *flags, *before)} and "
        f"{' '.join(after)}"
    )


def more_memory_is_never_slower(rng):
    """A larger budget allows all that a smaller one does."""
    flags = _asked(rng)
    small, large = rng.choice((("1.2x", "1.6x"), ("1.5x", "3x"), ("2x", "none"), ("1.1x", "none")))
    return _never_slower(flags, ["--memory", small], ["--memory", large], "more memory")


def faster_links_are_never_slower(rng):
    """Every schedule's transfers take no longer."""
    change = rng.choice(("fabric.bandwidth=x2", "fabric.bandwidth=x1.3", "fabric.latency=x0.5"))
    return _never_slower(_asked(rng), [], ["--set", change], "a faster link")


def faster_kernels_are_never_slower(rng):
    """Every schedule's multiplies and maps take no longer."""
    change = rng.choice(("peak.bfloat16=x1.5", "memory_bandwidth=x1.5", "launch=x0.5"))
    return _never_slower(_asked(rng), [], ["--set", change], "a faster kernel")


def the_best_is_no_slower_than_schemes(rng):
    """Schemes in use are points of the space, but those that change the chain."""
    flags = _searched(rng)
    if "--choices" in flags:
        flags = flags[: flags.index("--choices")]
    best, _ = _least(answer("search", *flags))
    for row in answer("peers", *flags, "--no-crossover")["rows"]:
        moved = "--movement" in row["command"]  # by a library, which a search has no bounds of
        if moved or not row["fits"] or _changes_the_chain(row["command"]):
            continue
        if row["makespan_s"] < best * (1 - TOLERANCE):
            return (
                f"{row['algorithm']} takes {row['makespan_s']:.6g} s, the best of a search {best:.6g}: "
                f"{_command('search', *flags)}"
            )
    return ""


def _changes_the_chain(command):
    """Whether a command's scheme does more than lay out: copies of weights, rows in parts, keys in rings."""
    words = shlex.split(command)
    given = dict(zip(words, [*words[1:], ""], strict=True))
    scheme, ranks = given["--layouts"], int(given["--ranks"])
    sizes = {x[2:].replace("-", "_"): int(given[x]) for x in given if x in SIZES}
    outline = chain(given["--chain"], backward="--backward" in words, dtype=given["--dtype"], **sizes)
    return "=" not in scheme and in_scheme(scheme, outline, ranks) != outline


def _simulated(command):
    """Return the makespan of a command that another answer gives."""
    return answer(*shlex.split(command)[1:])["predicted"]["makespan_s"]


def a_row_of_peers_is_what_simulate_says(rng):
    """Each row gives the command that simulates it."""
    flags = _searched(rng) if rng.random() < 0.5 else _multiply(rng)
    if "--choices" in flags:
        flags = flags[: flags.index("--choices")]
    rows = answer("peers", *flags, "--no-crossover")["rows"]
    for row in rng.sample(rows, min(3, len(rows))):
        seconds = _simulated(row["command"])
        if not math.isclose(seconds, row["makespan_s"], rel_tol=EXACT):
            return f"{row['command']} takes {seconds:.6g} s, the row of peers {row['makespan_s']:.6g}"
    return ""


OPTIONS = (
    "stationary", "policy", "prefetch", "max_gemms", "max_accumulates", "offset", "granularity", "final",
    "movement",
)  # fmt: skip


def a_row_of_search_is_what_simulate_says(rng):
    """Its layouts, stationary matrix and options are all that the schedule depends on."""
    flags = _asked(rng)
    rows = answer("search", *flags)["top"]
    row = rng.choice(rows[:5])
    if "--choices" in flags:
        flags = flags[: flags.index("--choices")]
    if "layouts" in row:
        stays, movement = row["stationary"], row["movement"]
        more = ["--layouts", ",".join(f"{name}={text}" for name, text in row["layouts"].items())]
        more += ["--stationary", ",".join(f"{x}={y}" for x, y in stays.items())] if stays else []
        if isinstance(movement, dict) and movement:
            more += ["--movement", ",".join(f"{x}={y}" for x, y in movement.items())]
        elif movement:
            more += ["--movement", movement]
    else:
        more = [x for name in "abc" for x in (f"--{name}", row[name])]
        more += [x for name in OPTIONS for x in (f"--{name.replace('_', '-')}", str(row[name]))]
        more += ["--reuse", "on" if row["reuse"] else "none"]
    seconds = answer("simulate", *flags, *more)["predicted"]["makespan_s"]
    if math.isclose(seconds, row["makespan_s"], rel_tol=EXACT):
        return ""
    return (
        f"{_command('simulate', *flags, *more)} takes {seconds:.6g} s, the row of search "
        f"{row['makespan_s']:.6g}"
    )


SCHEMES = ("megatron", "sequence", "data")


def _of_scheme(rng):
    """Return the flags of a preset in a scheme on a machine, without its tokens, and these."""
    flags, tokens = _chain(rng)
    scheme = rng.choice(("expert", "tensor") if "moe" in flags else SCHEMES)
    flags += ["--layouts", scheme, "--machine", rng.choice(("h100-8", "b200-8", "a100-8"))]
    return flags, tokens


def more_tokens_take_no_less(rng):
    """Twice the tokens are twice the work in every scheme, and in the best layouts."""
    flags, tokens = _of_scheme(rng)
    one, two = (
        answer("simulate", *flags, "--tokens", str(x))["predicted"]["makespan_s"]
        for x in (tokens, 2 * tokens)
    )
    if two >= one * (1 - TOLERANCE):
        return ""
    return f"{2 * tokens} tokens take {two:.6g} s, {tokens} {one:.6g}: {_command('simulate', *flags)}"


def more_layers_take_no_less(rng):
    """A step of more layers of a model takes longer, and needs more memory."""
    flags = ["--chain", "transformer-layer", "--model", rng.choice(("llama-3-8b", "llama-3-70b")), "--dtype"]
    flags += ["bf16", "--machine", "h100-8", "--tokens", rng.choice(("1K", "4K")), "--layouts"]
    flags += [rng.choice(SCHEMES)] + ["--backward"] * (rng.random() < 0.5)
    count = rng.choice((2, 4, 8))
    one, two = (answer("simulate", *flags, "--layers", str(x))["predicted"] for x in (count, 2 * count))
    if all(two[x] >= one[x] for x in ("makespan_s", "memory_bytes")):
        return ""
    return f"{2 * count} layers take less than {count}: {_command('simulate', *flags)}"


NODES = (
    "h100-8", "a100-8", "b200-8", "mi300x-8", "mi355x-8", "h200-8", "h20-8", "h800-8", "b300-8", "mi250x-8",
)  # fmt: skip
"""Machines whose links inside a node carry no fewer bytes/s than its cards."""


def _nodes(rng):
    """Return the flags of a random machine of several nodes: one of these with other links and cards.

    Links inside are no slower than they are: a library chooses its ways by estimates of those.
    """
    flags = ["--machine", rng.choice(NODES)]
    for name, factors in (
        ("fabric.bandwidth", (1, 1.5, 2)),
        ("fabric.latency", (0.5, 1, 3)),
        ("network.card.bandwidth", (0.25, 0.5, 1)),
        ("network.card.latency", (1, 4)),
        ("devices.memory_bandwidth", (0.5, 1, 2)),
    ):
        if (factor := rng.choice(factors)) != 1:
            flags += ["--set", f"{name}=x{factor}"]
    return flags


def weak_scaling_is_not_super_linear(rng):
    """Twice the tokens on twice the nodes take no less: each node could do half of them by itself."""
    flags, tokens = _chain(rng, presets=PRESETS[:3], backward=False)
    flags += [*_nodes(rng), "--choices", "row,row@p"]
    one, two = (
        _least(answer("search", *flags, "--nodes", str(x), "--tokens", str(x * tokens)))[0] for x in (1, 2)
    )
    if two >= one * (1 - TOLERANCE):
        return ""
    return (
        f"two nodes take {two:.6g} s for {2 * tokens} tokens, one {one:.6g} for {tokens}: "
        f"{_command('search', *flags)}"
    )


def groups_in_a_node_cost_the_same_on_one_node_and_on_two(rng):
    """Tensor parallelism inside a node takes as long whether there is another node with other tokens."""
    flags, tokens = _chain(rng, presets=PRESETS[:2], backward=False)
    flags += [*_nodes(rng), "--movement", rng.choice(("flat", "gathered", "chunks", "library"))]
    one = answer("simulate", *flags, "--nodes", "1", "--tokens", str(tokens), "--layouts", "tp8")
    two = answer("simulate", *flags, "--nodes", "2", "--tokens", str(2 * tokens), "--layouts", "tp8-dp2")
    one, two = (x["predicted"]["makespan_s"] for x in (one, two))
    if math.isclose(one, two, rel_tol=TOLERANCE):
        return ""
    return (
        f"tp8 of {tokens} tokens takes {one:.6g} s on one node, tp8-dp2 of twice as many {two:.6g} on two: "
        f"{_command('simulate', *flags)}"
    )


STEPS = 0.05
"""Share of a small collective's time by which its schedule may miss latencies of a library between nodes."""


def a_collective_in_one_node_is_never_slower_than_over_two(rng):
    """The same bytes take no less among the ranks of two nodes, which pass them on by links inside too."""
    what = rng.choice(("all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce"))
    size = f"{rng.choice((4, 64, 1024, 16384, 262144))}K"
    flags = [what, *_nodes(rng), "-b", size, "-e", size]
    one, two = (answer("collective", *flags, "--nodes", str(x))["rows"][0]["seconds"] for x in (1, 2))
    if two >= one * (1 - STEPS):
        return ""
    return f"two nodes take {two:.6g} s, one {one:.6g}: {_command('collective', *flags)}"


def no_answer_is_above_the_peak(rng):
    """A share of peak is at most all of it, of every row of a search."""
    flags = _asked(rng)
    for row in answer("search", *flags)["top"]:
        share = row["fraction_of_peak"]
        if share is not None and not 0 < share <= 1:
            return f"{share:.4g} of peak: {_command('search', *flags)}"
    return ""


VARIED = ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})


def the_answer_is_the_same_on_any_hash_seed(rng):
    """A question has one answer, whatever runs it."""
    flags = _multiply(rng) if rng.random() < 0.5 else _of_few(rng)
    program = "from umm.cli.main import main; main()"
    command = [sys.executable, "-c", program, "search", *flags, "--json", "--quiet"]
    outputs = {
        subprocess.run(
            command, env=os.environ | more, capture_output=True, text=True, check=False, timeout=600
        ).stdout
        for more in VARIED
    }
    return "" if len(outputs) == 1 else f"{len(outputs)} different answers: {_command('search', *flags)}"


def _of_few(rng):
    flags, tokens = _chain(rng, presets=(PRESETS[0], PRESETS[4]), backward=False)
    return [*flags, "--tokens", str(tokens), "--machine", "h100-8", "--ranks", "4"]


LAWS = (
    more_memory_is_never_slower,
    faster_links_are_never_slower,
    faster_kernels_are_never_slower,
    the_best_is_no_slower_than_schemes,
    a_row_of_peers_is_what_simulate_says,
    a_row_of_search_is_what_simulate_says,
    more_tokens_take_no_less,
    more_layers_take_no_less,
    weak_scaling_is_not_super_linear,
    groups_in_a_node_cost_the_same_on_one_node_and_on_two,
    a_collective_in_one_node_is_never_slower_than_over_two,
    no_answer_is_above_the_peak,
    the_answer_is_the_same_on_any_hash_seed,
)
