"""What layers of transformers take on one GPU, by torch, beside what umm predicts of one rank.

``python -m experiments.hardware.layers -o FOLDER`` writes ``layers.csv``: a row for each layer and way of
running it, with seconds of one pass, and of its multiplies, attention and all else as CUPTI clocks their
kernels. ``--again FOLDER`` predicts anew what was measured, without a GPU. Measuring needs torch.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any, cast

import umm
from umm.program.files import model
from umm.schedules.table.details import KINDS

PASSES = 30  # timed in a row, of which the median counts
PARTS = ("multiply", "attention", "else")


@dataclass(frozen=True)
class Layer:
    """One transformer layer as one rank has it: heads and FFN are a rank's share.

    Attributes:
        model: Whose sizes it has.
        share: Ranks that heads and FFN are split over; the multiplies of one are run.
        tokens: Tokens of a pass.
        sequences: Sequences these are; causal within each.
        context: Tokens whose keys and values are read by each new one; 0 where none are decoded.
        backward: Whether gradients are computed too.
        way: eager, compiled or graph, and the attention.
        seconds: Of one pass, all kernels and what lies between them.
        multiply, attention, rest: Seconds of the kernels of each kind.
        predicted_s: What umm says.
        predicted_multiply, predicted_attention, predicted_rest: Of what.
    """

    model: str
    share: int
    tokens: int
    sequences: int
    context: int
    backward: bool
    way: str = ""
    seconds: float = 0.0
    multiply: float = 0.0
    attention: float = 0.0
    rest: float = 0.0
    predicted_s: float = 0.0
    predicted_multiply: float = 0.0
    predicted_attention: float = 0.0
    predicted_rest: float = 0.0

    def sizes(self) -> tuple[int, int, int, int, int]:
        """Return hidden size, heads, heads of keys, their size, FFN: one rank's."""
        known = model(self.model)
        hidden, heads, kv, ffn = known.hidden, known.heads, known.kv_heads, known.ffn
        return hidden, heads // self.share, kv // self.share, hidden // heads, ffn // self.share


LAYERS = (
    Layer("llama-3-8b", 1, 8192, 1, 0, True),
    Layer("llama-3-8b", 1, 8192, 4, 0, True),
    Layer("llama-3-8b", 1, 8192, 1, 0, False),
    Layer("llama-3-70b", 8, 8192, 1, 0, True),
    Layer("llama-3-70b", 8, 8192, 1, 0, False),
    Layer("llama-3-8b", 1, 32768, 1, 0, True),
    Layer("llama-3-8b", 1, 1024, 1, 0, False),
    *(Layer("llama-3-8b", 1, batch, batch, 8192, False) for batch in (1, 8, 64)),
    *(Layer("llama-3-70b", 8, batch, batch, 8192, False) for batch in (1, 8, 64)),
)


def main() -> None:
    """Measure until all is done or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="predict what is measured there; no GPU")
    parser.add_argument("--machine", default="h100-8", help="what predicts")
    options = parser.parse_args()
    if options.again is not None:
        file = options.again / "layers.csv"
        with file.open(encoding="utf-8", newline="") as lines:
            rows = [_row(row) for row in csv.DictReader(lines)]
        write(file, [predicted(row, options.machine) for row in rows])
        return
    end, found = time.monotonic() + options.seconds, []
    for layer, way, call in calls():
        if time.monotonic() > end:
            print("time is up before", layer, way)
            break
        try:
            found.append(measured(replace(layer, way=way), call()))
        except Exception as error:
            print("not measured:", layer, way, str(error).splitlines()[0][:200], flush=True)
            continue
        print(found[-1], flush=True)
        write(options.output / "layers.csv", found)


def write(file: Path, rows: list[Layer]) -> None:
    """Write a row for each layer."""
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow([field.name for field in fields(Layer)])
        for row in rows:
            writer.writerow(f"{x:.4g}" if isinstance(x, float) else x for x in asdict(row).values())


def _row(row: dict[str, str]) -> Layer:
    kinds = {"model": str, "way": str, "backward": lambda x: x == "True"}
    counts = ("share", "tokens", "sequences", "context")
    return Layer(**{x: kinds.get(x, int if x in counts else float)(y) for x, y in row.items()})  # type: ignore[operator]


def predicted(layer: Layer, machine: str) -> Layer:
    """Return a layer with what umm says: of one rank where a layer is split, its work without the sums."""
    sizes = {"batch": layer.tokens, "context": layer.context} if layer.context else {"tokens": layer.tokens}
    if not layer.context:
        sizes["sequences"] = layer.sequences
    chain = umm.chain(
        "transformer-layer",
        model=layer.model,
        backward=layer.backward,
        dtype="bfloat16",
        decode=bool(layer.context),
        **sizes,
    )
    of = umm.machine(machine)
    schedule = umm.schedule(chain.laid_out("megatron", layer.share), of)
    trace, fn = umm.run(schedule, executor="sim"), schedule.details.fn
    took = dict.fromkeys(PARTS, 0.0)
    for row in (schedule.rank == 0).nonzero()[0].tolist():
        name = KINDS[schedule.kind[row]]
        if name == "map":
            name = "attention" if schedule.functions[fn[row]].name.startswith("attend") else "else"
        elif name == "gemm":
            name = "multiply"
        if name in took:
            took[name] += float(trace.end[row] - trace.start[row])
    return replace(
        layer,
        predicted_s=sum(took.values()),
        predicted_multiply=took["multiply"],
        predicted_attention=took["attention"],
        predicted_rest=took["else"],
    )


def calls() -> Iterator[tuple[Layer, str, Callable[[], Callable[[], object]]]]:
    """Yield each layer, the way, and what prepares a pass: what is quickly prepared first."""
    whole = [layer for layer in LAYERS if not layer.context]
    for layer in whole:
        yield layer, "eager cudnn", lambda x=layer: passes(x, "eager CUDNN")  # type: ignore[misc]
    yield LAYERS[0], "eager flash", lambda: passes(LAYERS[0], "eager FLASH")
    decoding = [layer for layer in LAYERS if layer.context]
    for one, other in zip_longest(whole, decoding):
        if one is not None:
            yield one, "compiled cudnn", lambda x=one: passes(x, "compiled CUDNN")  # type: ignore[misc]
        if other is not None:
            yield other, "graph flash", lambda x=other: graph(decoded(x, "FLASH_ATTENTION"))  # type: ignore[misc]


def random(*shape: int, scale: float = 1.0, grad: bool = False) -> Any:
    """Return normal numbers in bfloat16 on the GPU."""
    import torch

    x = (torch.randn(shape, device="cuda") * scale).to(torch.bfloat16)
    return x.requires_grad_(grad)


def weights(layer: Layer) -> tuple[Any, ...]:
    """Return norms' gains and weights as torch's linear layers keep them."""
    hidden, heads, kv, head, ffn = layer.sizes()
    shapes = [(hidden,), (heads * head, hidden), (kv * head, hidden), (kv * head, hidden)]
    shapes += [(hidden, heads * head), (hidden,), (ffn, hidden), (ffn, hidden), (hidden, ffn)]
    return tuple(random(*shape, scale=0.02, grad=layer.backward) for shape in shapes)


def forward(x: Any, w: tuple[Any, ...], layer: Layer, attend: Callable[..., Any], turn: Any) -> Any:
    """Return a layer's output: norms, rotary positions, attention, gated FFN, two residuals."""
    import torch
    from torch.nn.functional import linear, rms_norm, silu

    hidden, heads, kv, head, _ = layer.sizes()
    g1, wq, wk, wv, wo, g2, w1, w3, w2 = w
    batch = layer.sequences

    def heads_of(y: Any, count: int) -> Any:
        return y.view(batch, -1, count, head).transpose(1, 2)

    def rotated(y: Any) -> Any:
        cos, sin = turn
        one, two = y.chunk(2, dim=-1)
        return torch.cat((one * cos - two * sin, two * cos + one * sin), dim=-1)

    n = rms_norm(x, (hidden,), g1, 1e-5)
    q, k, v = heads_of(linear(n, wq), heads), heads_of(linear(n, wk), kv), heads_of(linear(n, wv), kv)
    o = attend(rotated(q), rotated(k), v).transpose(1, 2).reshape(-1, heads * head)
    r = x + linear(o, wo)
    n = rms_norm(r, (hidden,), g2, 1e-5)
    return r + linear(silu(linear(n, w1)) * linear(n, w3), w2)


def angles(positions: Any, head: int) -> tuple[Any, Any]:
    """Return cosines and sines of rotary positions."""
    import torch

    rates = 500000.0 ** (-torch.arange(0, head, 2, device=positions.device) / head)
    turns = positions[:, None].float() * rates
    return turns.cos().to(torch.bfloat16), turns.sin().to(torch.bfloat16)


def passes(layer: Layer, way: str) -> Callable[[], object]:
    """Return a pass over a layer, with gradients of its input and weights where asked."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    hidden, _, _, head, _ = layer.sizes()
    how, backend = way.split()
    x, w = random(layer.tokens, hidden, grad=layer.backward), weights(layer)
    turn = angles(torch.arange(layer.tokens // layer.sequences, device="cuda"), head)
    kind = getattr(SDPBackend, f"{backend}_ATTENTION")

    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def run(x: Any, *w: Any) -> Any:
        return forward(x, w, layer, attend, turn)

    if how == "compiled":
        torch._dynamo.reset()
        run = torch.compile(run, dynamic=False)
    dy = random(layer.tokens, hidden)

    def call() -> object:
        with sdpa_kernel(kind):
            if not layer.backward:
                with torch.no_grad():
                    return run(x, *w)
            return torch.autograd.grad(run(x, *w), (x, *w), dy)

    return call


def decoded(layer: Layer, backend: str) -> Callable[[], object]:
    """Return a pass of one new token a sequence over keys and values that are there."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    hidden, _, kv, head, _ = layer.sizes()
    x, w = random(layer.tokens, hidden), weights(layer)
    keys, values = (random(layer.sequences, kv, layer.context, head) for _ in range(2))
    turn = angles(torch.full((1,), layer.context, device="cuda"), head)

    def attend(q: Any, k: Any, v: Any) -> Any:
        keys[:, :, -1:].copy_(k)
        values[:, :, -1:].copy_(v)
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)

    run = torch.compile(lambda x, *w: forward(x, w, layer, attend, turn), dynamic=False)

    def call() -> object:
        with torch.no_grad(), sdpa_kernel(getattr(SDPBackend, backend)):
            return run(x, *w)

    return call


def graph(call: Callable[[], object]) -> Callable[[], object]:
    """Return a CUDA graph of a pass."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    held = torch.cuda.CUDAGraph()
    with torch.cuda.graph(held):
        call()
    return cast(Callable[[], object], held.replay)


def measured(layer: Layer, call: Callable[[], object]) -> Layer:
    """Return a layer with the seconds of a pass and of its kernels by kind."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    flush = torch.empty(1 << 27, dtype=torch.uint8, device="cuda") if layer.context else None
    for _ in range(4):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(PASSES):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if flush is not None:
            flush.fill_(1)  # weights come from memory, as those of another layer do
        start.record()
        call()
        stop.record()
        times.append((start, stop))
    torch.cuda.synchronize()
    seconds = median(start.elapsed_time(stop) for start, stop in times) * 1e-3
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    parts = dict.fromkeys(PARTS, 0.0)
    for event in seen.profiler.kineto_results.events():
        if str(event.device_type()).endswith("CUDA"):
            parts[part_of(event.name())] += event.duration_ns() * 1e-9 / 5
    return replace(
        layer, seconds=seconds, multiply=parts["multiply"], attention=parts["attention"], rest=parts["else"]
    )


def part_of(kernel: str) -> str:
    """Return which part of a layer a kernel is of, by its name."""
    name = kernel.lower()
    if any(x in name for x in ("flash", "fmha", "sdpa", "cudnn", "mha")):
        return "attention"
    multiplies = ("nvjet", "gemm", "gemv", "splitk", "xmma", "cutlass")
    return "multiply" if any(x in name for x in multiplies) else "else"


if __name__ == "__main__":
    main()
