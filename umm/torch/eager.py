"""Kernels that eager PyTorch launches for a module, one for each operation, with their predicted seconds.

The module runs on torch's meta device: each operation is dispatched as it is in eager mode, with sizes, types
and strides and without elements. A number that Python reads of a tensor is one, or true: masks hide nothing.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from umm.cost import attention_seconds, gemm_seconds
from umm.dtypes import itemsize
from umm.errors import InputError
from umm.interval import Interval
from umm.machines import Machine
from umm.profiles.kernel import ATTENTION, MAP, MULTIPLY, Kernel
from umm.program.functions.attention import Heads
from umm.step.stacks import find_stack
from umm.torch.values import arguments, torch_for

SHORTEST_PASS = 1.5e-6
"""Seconds of a map beside its bytes: additions, gelu and rsqrt of small tensors take 1.6 to 2 us on an H100.

Source: AMD-AGI/TraceLens, tests/traces/h100: BERT-small and a vision transformer."""
ELEMENTS = 2.3e9
"""Elements a second that an SM indexes one by one, where operands differ in strides, sizes or types.

Source: AMD-AGI/TraceLens, evals, Llama 3.2 Vision: 0.27 to 0.33 T/s on the 132 SMs of an H100."""
UNITS = 132  # SMs of a machine whose file does not describe its GEMM kernels
FREE = ("empty", "new_empty", "empty_like", "empty_strided", "_unsafe_view", "lift_fresh", "set_")
"""Operations beside views that launch nothing."""
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm")
ROWS = ("embedding", "index_select")  # operations that read some rows of a table
WRITES = ("copy_", "fill_", "zero_")  # operations in place that do not read their output
ATTEND = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def kernels(module: Any, example_inputs: Any, machine: Machine, backward: bool = False) -> list[Kernel]:
    """Return the kernels of a module in the order of their launch.

    InputError in one line, if torch is missing, or the module needs elements of a tensor.

    Args:
        module: An ``nn.Module``; its weights are not used.
        example_inputs: A tuple of its arguments, or a mapping of them by name; only shapes and types count.
        backward: Whether gradients of its first result follow.
    """
    torch, (args, named) = torch_for(module), arguments(example_inputs)
    weights = dict(module.named_parameters()) | dict(module.named_buffers())
    tree = torch.utils._pytree
    args, named, weights = tree.tree_map_only(
        torch.Tensor,
        lambda x: x.detach().to("meta").requires_grad_(backward and x.requires_grad),
        (args, named, weights),
    )
    launched: list[Kernel] = []
    dispatched, attending = _recorders(launched, machine)
    training = module.training
    try:
        with torch.set_grad_enabled(backward), attending, dispatched, torch.device("meta"):
            result = torch.func.functional_call(module.train(backward), weights, args, named)
            if backward:
                first = next(x for x in tree.tree_leaves(result) if isinstance(x, torch.Tensor))
                first.backward(torch.empty_like(first))
    except (NotImplementedError, RuntimeError) as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{type(module).__name__} does not run without elements: {line[:300]}") from None
    finally:
        module.train(training)
    if not launched:
        raise InputError(f"{type(module).__name__} launches no kernel")
    return launched


def _recorders(launched: list[Kernel], machine: Machine) -> tuple[Any, Any]:
    """Return contexts in which the kernels of operations, and of fused attention, are added to a list."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatched(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten._local_scalar_dense.default:
                return torch.ones((), dtype=args[0].dtype, device="cpu").item()
            result = func(*args, **(kwargs or {}))
            launched.extend(_launched(func, [*args, *(kwargs or {}).values()], result, machine))
            return result

    class Fused(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
            ctx.save_for_backward(q, k, v)
            ctx.causal = causal
            launched.append(_attention(q, k, v, causal, False, machine))
            # The result has the strides of queries: tokens first, if heads were split by a view.
            return torch.empty_like(q) if q.shape == v.shape else q.new_empty((*q.shape[:-1], v.shape[-1]))

        @staticmethod
        def backward(ctx: Any, *_: Any) -> Any:
            q, k, v = ctx.saved_tensors
            launched.append(_attention(q, k, v, ctx.causal, True, machine))
            return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None

    class Attending(TorchFunctionMode):  # type: ignore[misc]  # torch has no types here
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = kwargs or {}
            if func is not scaled_dot_product_attention:
                return func(*args, **given)
            given = dict(zip(ATTEND, args, strict=False)) | given
            return Fused.apply(*(given[x] for x in ATTEND[:3]), bool(given.get("is_causal")))

    return Dispatched(), Attending()


def _launched(func: Any, args: Sequence[Any], result: Any, machine: Machine) -> list[Kernel]:
    """Return the kernels of an operation: one, or none for a view."""
    name = func._schema.name.removeprefix("aten::")
    aliases = [x.alias_info for x in func._schema.returns]
    if name in FREE or any(x is not None and not x.is_write for x in aliases):
        return []
    writes, reads = _tensors([result]), _tensors(args)
    if not sum(x.numel() for x in writes):
        return []
    if name in PRODUCTS:
        return [_product(name, reads, writes[0], machine)]
    if name.startswith("convolution"):
        shapes = _patches(args, result)
        return [_multiply(name, _dtype(writes[0]), x, machine) for x in shapes]
    return [Kernel(MAP, f"aten::{name}", _pass_seconds(name, reads, writes, machine))]


def _tensors(args: Sequence[Any]) -> list[Any]:
    flat = [y for x in args for y in (x if isinstance(x, (list, tuple)) else [x])]
    return [x for x in flat if hasattr(x, "element_size")]


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _product(name: str, reads: Sequence[Any], out: Any, machine: Machine) -> Kernel:
    a, b = [x for x in reads if x.dim() > 1][-2:]
    members = prod(a.shape[:-2])
    shape = ((members,) if members > 1 else ()) + (a.shape[-2], b.shape[-1], a.shape[-1])
    made = _multiply(name, _dtype(out), shape, machine)
    if name != "_grouped_mm":
        return made
    of_weights = b.numel() * b.element_size() / machine.pass_bandwidth  # of all experts
    return made._replace(seconds=max(made.seconds, of_weights))


def _multiply(name: str, dtype: str, shape: tuple[int, ...], machine: Machine) -> Kernel:
    m, n, k = shape[-3:]
    seconds = float(gemm_seconds(machine, dtype, m, n, k, itemsize(dtype), prod(shape[:-3]), warm=False))
    return Kernel(MULTIPLY, f"aten::{name}", seconds, shape)


def _patches(args: Sequence[Any], result: Any) -> list[tuple[int, ...]]:
    """Return the multiplies that a convolution is, or those of its gradients by input and by weight."""
    grad, x, weight, *_ = args if isinstance(result, (list, tuple)) else (None, *args)
    transposed = args[6 if grad is None else 7]
    patched = x if transposed else result if grad is None else grad
    places, channels, patch = patched.numel() // patched.shape[1], len(weight), weight.numel() // len(weight)
    up, down = (places, channels, patch), (places, patch, channels)
    if grad is None:
        return [down if transposed else up]
    by = (up if transposed else down, (channels, patch, places))
    return [shape for shape, made in zip(by, result, strict=False) if made is not None]


def _attention(q: Any, k: Any, v: Any, causal: bool, backward: bool, machine: Machine) -> Kernel:
    """Return fused attention, at the share of a machine's rate that eager PyTorch reaches."""
    (queries, size), tokens = q.shape[-2:], k.shape[-2]
    count = q.shape[1] if q.dim() > 3 else 1
    sequences = prod(q.shape[:-2]) // count
    share = count // k.shape[1] if q.dim() > 3 else 1
    heads = Heads(size, share, queries, tokens, causal, value=v.shape[-1])
    rows, keys = Interval(0, sequences * queries), Interval(0, sequences * tokens)
    seconds = attention_seconds(machine, _dtype(q), heads, rows, count, keys, backward)
    work = (seconds - machine.launch_s) / find_stack("eager").attention
    return Kernel(ATTENTION, "aten::scaled_dot_product_attention", machine.launch_s + work)


def _pass_seconds(name: str, reads: Sequence[Any], writes: Sequence[Any], machine: Machine) -> float:
    """Return the seconds of a map: of its bytes, or of its elements where operands do not lie alike."""
    out = max(writes, key=lambda x: x.numel())
    if name in ROWS:
        nbytes = 2 * out.numel() * out.element_size()
    else:
        nbytes = sum(_stored(x) * x.element_size() for x in (*reads, *writes))
        nbytes -= _stored(out) * out.element_size() if name in WRITES else 0
    seconds = float(nbytes / machine.pass_bandwidth)
    narrows = name == "_to_copy" and reads[0].element_size() > out.element_size()
    sums = any(x.numel() > out.numel() for x in reads) and name not in ROWS
    if not (narrows or sums or all(_alike(x, out) for x in reads)):
        known = machine.kernels("bfloat16") if "bfloat16" in machine.peaks else None
        seconds = max(seconds, out.numel() / (ELEMENTS * (known.units if known else UNITS)))
    return SHORTEST_PASS + seconds


def _alike(x: Any, out: Any) -> bool:
    """Whether a kernel of vectors reads a tensor where it writes another."""
    return not x.dim() or (x.shape == out.shape and x.stride() == out.stride() and x.dtype == out.dtype)


def _stored(x: Any) -> int:
    """Return the elements of a tensor in memory: those that an expansion repeats count once."""
    return prod(n for n, stride in zip(x.shape, x.stride(), strict=True) if stride)
