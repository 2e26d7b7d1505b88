"""Times of layers of transformers on one GPU, by torch, beside umm's of one rank.

``python -m experiments.hardware.layers -o FOLDER`` writes ``layers.csv``: a row for each layer and way of
running it, with seconds of one pass, and of its multiplies, attention and all else as CUPTI clocks their
kernels. ``--held`` measures layers from which no number of ``h100-8`` comes, and weights of 8 bits.
``--again FOLDER`` predicts anew what was measured, without a GPU. Measuring needs torch.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import umm
from umm.program.models import find_model
from umm.program.models.priced import kinds_priced
from umm.schedules.table.details import KINDS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
        weights: ``tensor`` or ``block`` where weights have 8 bits, with a scale each or for each 128 × 128.
        way: eager, compiled or graph, and the attention; joined: Q, K, V by one multiply, gate and up too.
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
    weights: str = ""
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
        (kind,) = kinds_priced(find_model(self.model))
        hidden, heads, kv, ffn = (kind.sizes[x] for x in ("hidden", "heads", "kv_heads", "ffn"))
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
HELD = (
    Layer("llama-3-405b", 8, 8192, 1, 0, True),
    Layer("qwen-2.5-72b", 8, 16384, 4, 0, True),
    Layer("mistral-large", 8, 32768, 1, 0, True),
    Layer("llama-3-8b", 8, 8192, 1, 0, True),
    Layer("llama-3-8b", 2, 16384, 2, 0, True),
    Layer("llama-3-405b", 8, 4096, 1, 0, False),
    Layer("llama-3-70b", 4, 8192, 1, 0, False),
    Layer("llama-3-70b", 8, 2048, 1, 0, False),
    Layer("llama-3-8b", 1, 65536, 1, 0, False),
    *(Layer("llama-3-405b", 8, batch, batch, 4096, False) for batch in (1, 16, 128)),
    *(Layer("qwen-2.5-72b", 8, batch, batch, 32768, False) for batch in (1, 32)),
    *(Layer("llama-3-8b", 1, batch, batch, 2048, False) for batch in (1, 16, 256)),
)
SHORT = (
    *(Layer("llama-3-8b", 1, batch, batch, 8192, False) for batch in (1, 64)),
    *(Layer("llama-3-70b", 8, batch, batch, 8192, False) for batch in (1, 64)),
    Layer("llama-3-8b", 1, 8192, 1, 0, False),
    Layer("llama-3-70b", 8, 8192, 1, 0, False),
    Layer("llama-3-405b", 8, 4096, 1, 0, False),
)


def main() -> None:
    """Measure until all is done or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--held", action="store_true", help="layers that nothing was fitted to")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="predict what is measured there; no GPU")
    parser.add_argument("--machine", default="h100-8", help="what predicts")
    options = parser.parse_args()
    if options.again is not None:
        file = options.again / "layers.csv"
        with file.open(encoding="utf-8", newline="") as lines:
            rows = [_row(row) for row in csv.DictReader(lines)]
        write(file, Layer, [predicted(row, options.machine) for row in rows])
        return
    end, result = time.monotonic() + options.seconds, []
    for layer, way, call in held() if options.held else calls():
        if time.monotonic() > end:
            print("time is up before", layer, way)
            break
        try:
            result.append(measured(replace(layer, way=way), call()))
        except Exception as error:
            print("not measured:", layer, way, str(error).splitlines()[0][:200], flush=True)
            continue
        print(result[-1], flush=True)
        write(options.output / "layers.csv", Layer, result)


def write(file: Path, kind: "type[DataclassInstance]", rows: Sequence["DataclassInstance"]) -> None:
    """Write a row for each layer, or for whatever dataclass was measured."""
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow([field.name for field in fields(kind)])
        for row in rows:
            writer.writerow(f"{x:.4g}" if isinstance(x, float) else x for x in asdict(row).values())


def _row(row: dict[str, str]) -> Layer:
    kinds = {"model": str, "weights": str, "way": str, "backward": lambda x: x == "True"}
    counts = ("share", "tokens", "sequences", "context")
    return Layer(**{x: kinds.get(x, int if x in counts else float)(y) for x, y in row.items()})  # type: ignore[operator]


def predicted(layer: Layer, machine: str) -> Layer:
    """Return a layer with umm's time: of one rank where a layer is split, its work without the sums."""
    sizes = {"batch": layer.tokens, "context": layer.context} if layer.context else {"tokens": layer.tokens}
    if not layer.context:
        sizes["sequences"] = layer.sequences
    chain = umm.chain(
        "transformer-layer",
        model=layer.model,
        backward=layer.backward,
        dtype="bfloat16",
        decode=bool(layer.context),
        weights="fp8" if layer.weights else "",
        **sizes,
    )
    target = umm.machine(machine)
    schedule = umm.schedule(chain.laid_out("megatron", layer.share), target)
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
    """Yield each layer, the way, and a function that prepares a pass: the quickly prepared first."""
    full = [layer for layer in LAYERS if not layer.context]
    for layer in full:
        yield layer, "eager cudnn", lambda x=layer: passes(x, "eager CUDNN")  # type: ignore[misc]
    yield LAYERS[0], "eager flash", lambda: passes(LAYERS[0], "eager FLASH")
    decoding = [layer for layer in LAYERS if layer.context]
    for one, other in zip_longest(full, decoding):
        if one is not None:
            yield one, "compiled cudnn", lambda x=one: passes(x, "compiled CUDNN")  # type: ignore[misc]
        if other is not None:
            yield other, "graph flash", lambda x=other: graph(decoded(x, "FLASH_ATTENTION"))  # type: ignore[misc]


def held() -> Iterator[tuple[Layer, str, Callable[[], Callable[[], object]]]]:
    """Yield layers that nothing was fitted to, then layers forward by weights of 16 and of 8 bits."""
    short = [replace(x, weights=weights) for weights in ("block", "tensor") for x in SHORT]
    for layer in (*HELD, *short, *(x for x in SHORT if x.context)):
        if layer.context:
            yield layer, "graph joined flash", lambda x=layer: graph(decoded(x, "FLASH_ATTENTION", True))  # type: ignore[misc]
        elif layer.weights:
            yield layer, "compiled joined cudnn", lambda x=layer: passes(x, "compiled CUDNN", True)  # type: ignore[misc]
        else:
            yield layer, "compiled cudnn", lambda x=layer: passes(x, "compiled CUDNN")  # type: ignore[misc]


def random(*shape: int, scale: float = 1.0, grad: bool = False) -> Any:
    """Return normal numbers in bfloat16 on the GPU."""
    import torch

    x = (torch.randn(shape, device="cuda") * scale).to(torch.bfloat16)
    return x.requires_grad_(grad)


def weights(layer: Layer, joined: bool = False) -> tuple[Any, ...]:
    """Return norms' gains and weights as torch's linear layers keep them, of 8 bits with their scales."""
    hidden, heads, kv, head, ffn = layer.sizes()
    first = [(heads * head, hidden), (kv * head, hidden), (kv * head, hidden)]
    second = [(ffn, hidden), (ffn, hidden)]
    if joined:
        first, second = ([(sum(rows for rows, _ in x), hidden)] for x in (first, second))
    shapes = [(hidden,), *first, (hidden, heads * head), (hidden,), *second, (hidden, ffn)]
    made = (random(*shape, scale=0.02, grad=layer.backward) for shape in shapes)
    return tuple(x if x.ndim == 1 else short_weight(x, layer.weights) for x in made)


def short_weight(w: Any, scaled: str) -> Any:
    """Return a weight in 8 bits and its scales: one, or one for each 128 × 128, as cuBLAS takes them."""
    import torch

    if not scaled:
        return w
    rows, cols = w.shape
    if scaled == "tensor":
        scale = w.abs().amax().float() / 448
        return (w / scale).to(torch.float8_e4m3fn), scale
    tiles = w.view(rows // 128, 128, cols // 128, 128).float()
    scale = tiles.abs().amax((1, 3), keepdim=True) / 448
    short = (tiles / scale).to(torch.float8_e4m3fn).view(rows, cols)
    scale = scale.view(rows // 128, cols // 128)
    return short, torch.nn.functional.pad(scale, (0, -scale.shape[1] % 4)).t()


def multiplied(x: Any, w: Any, scaled: str) -> Any:
    """Return x · wᵀ; in 8 bits x is scaled as w is, a row's 128 elements where w has blocks."""
    import torch
    from torch.nn import functional

    if not scaled:
        return functional.linear(x, w)
    short, scale = w
    if scaled == "tensor":
        fixed = torch.full((), 0.02, device=x.device)  # of activations, found before serving
        return torch._scaled_mm(
            (x.float() / fixed).clamp(-448, 448).to(short.dtype), short.t(), fixed, scale,
            out_dtype=torch.bfloat16, use_fast_accum=True,
        )  # fmt: skip
    tokens, cols = x.shape
    x = functional.pad(x, (0, 0, 0, -tokens % 4)).view(-1, cols // 128, 128).float()
    amax = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    kind = functional.ScalingType
    y = functional.scaled_mm(
        (x / amax).to(short.dtype).view(-1, cols), short.t(), amax.view(-1, cols // 128).t().contiguous().t(),
        kind.BlockWise1x128, scale, kind.BlockWise128x128, output_dtype=torch.bfloat16,
    )  # fmt: skip
    return y[:tokens]


def forward(x: Any, w: tuple[Any, ...], layer: Layer, attend: Callable[..., Any], turn: Any) -> Any:
    """Return a layer's output: norms, rotary positions, attention, gated FFN, two residuals."""
    import torch
    from torch.nn.functional import rms_norm, silu

    hidden, heads, kv, head, ffn = layer.sizes()
    g1, *first, wo, g2 = w[: (len(w) + 1) // 2 + 1]
    *second, w2 = w[(len(w) + 1) // 2 + 1 :]
    batch = layer.sequences

    def products(n: Any, by: list[Any], widths: list[int]) -> Any:
        if len(by) == 1:
            return multiplied(n, by[0], layer.weights).split(widths, dim=-1)
        return [multiplied(n, one, layer.weights) for one in by]

    def heads_of(y: Any, count: int) -> Any:
        return y.view(batch, -1, count, head).transpose(1, 2)

    def rotated(y: Any) -> Any:
        cos, sin = turn
        one, two = y.chunk(2, dim=-1)
        return torch.cat((one * cos - two * sin, two * cos + one * sin), dim=-1)

    n = rms_norm(x, (hidden,), g1, 1e-5)
    counts = (heads, kv, kv)
    q, k, v = map(heads_of, products(n, first, [head * x for x in counts]), counts)
    o = attend(rotated(q), rotated(k), v).transpose(1, 2).reshape(-1, heads * head)
    r = x + multiplied(o, wo, layer.weights)
    gate, up = products(rms_norm(r, (hidden,), g2, 1e-5), second, [ffn, ffn])
    return r + multiplied(silu(gate) * up, w2, layer.weights)


def angles(positions: Any, head: int) -> tuple[Any, Any]:
    """Return cosines and sines of rotary positions."""
    import torch

    rates = 500000.0 ** (-torch.arange(0, head, 2, device=positions.device) / head)
    turns = positions[:, None].float() * rates
    return turns.cos().to(torch.bfloat16), turns.sin().to(torch.bfloat16)


def passes(layer: Layer, way: str, joined: bool = False) -> Callable[[], object]:
    """Return a pass over a layer, with gradients of its input and weights where asked."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    hidden, _, _, head, _ = layer.sizes()
    how, backend = way.split()
    x, w = random(layer.tokens, hidden, grad=layer.backward), weights(layer, joined)
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


def decoded(layer: Layer, backend: str, joined: bool = False) -> Callable[[], object]:
    """Return a pass of one new token a sequence over keys and values that are there."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    hidden, _, kv, head, _ = layer.sizes()
    x, w = random(layer.tokens, hidden), weights(layer, joined)
    keys, values = (random(layer.sequences, kv, layer.context, head) for _ in range(2))
    turn = angles(torch.full((1,), layer.context, device="cuda"), head)

    def attend(q: Any, k: Any, v: Any) -> Any:
        keys[:, :, -1:].copy_(k)
        values[:, :, -1:].copy_(v)
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)

    torch._dynamo.reset()
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
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        call()
    return cast(Callable[[], object], recorded.replay)


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
