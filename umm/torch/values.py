"""Values of a torch graph that are no arrays yet: routes, scores, parts; and their trees."""

from collections.abc import Mapping, Sequence
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

from umm.errors import InputError
from umm.program.graph.folds import Value, folded
from umm.program.graph.nodes import Constant, needs_input
from umm.program.routing import Routing

BIAS = "bias"  # the source of experts' biases, row by row


class Route(NamedTuple):
    """A choice of tokens' experts: indices, sorted or not, of top_k of so many experts."""

    routing: Routing  # which tokens go to which experts
    scores: Value  # the router's logits
    gates: bool = False  # whether these are the numbers of the chosen experts, and not their indices


class Joined(NamedTuple):
    """Arrays beside each other along the last dimension."""

    parts: tuple[Any, ...]
    shape: tuple[int, ...]


class Buffer(NamedTuple):
    """Memory that parts are copied into, beside each other."""

    shape: tuple[int, ...]
    parts: list[Any]

    def joined(self) -> Joined:
        """Return its parts."""
        return Joined(tuple(self.parts), self.shape)


def torch_for(module: Any) -> Any:
    """Return PyTorch; InputError without it, or if the module is not one of its modules."""
    try:
        import torch
    except ImportError:
        raise InputError("a module needs PyTorch; pip install 'umm-sim[torch]'") from None
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{type(module).__name__} is not an nn.Module; give one, and its example inputs")
    return torch


def arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call by place and by name: of a mapping, a tuple, or one argument."""
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    return tuple(example_inputs) if isinstance(example_inputs, (list, tuple)) else (example_inputs,), {}


def shape_of(node: Any) -> tuple[int, ...]:
    """Return the shape of a node's result; of several that of the first."""
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        value = next((x for x in value if hasattr(x, "shape")), None)
    return tuple(int(x) for x in value.shape) if hasattr(value, "shape") else ()


def flop_of(node: Any) -> int:
    """Return the flop of the products of a call, 2mnk each; of a condition those of its larger branch."""
    inner = (x.target for x in node.args if getattr(x, "op", "") == "get_attr")
    parts = [attrgetter(x)(node.graph.owning_module) for x in inner]
    bodies = [x.graph for x in parts if hasattr(x, "graph")]
    if bodies:
        return max(sum(flop_of(y) for y in x.nodes if y.op == "call_function") for x in bodies)
    name = str(node.target).removeprefix("aten.").split(".")[0]
    out = prod(shape_of(node))
    given = (y for x in node.args for y in (x if isinstance(x, list) else [x]))
    shapes = [shape_of(x) for x in given if hasattr(x, "meta")]
    if name in ("linear", "mm", "bmm", "matmul", "_grouped_mm", "grouped_mm") and len(shapes) > 1:
        return 2 * out * shapes[0][-1]
    if name in ("addmm", "baddbmm"):
        return 2 * out * shapes[1][-1]
    if name.startswith(("scaled_dot_product", "_scaled_dot_product")):
        return 2 * prod(shapes[0][:-1]) * shapes[1][-2] * (shapes[0][-1] + shapes[2][-1])
    if name in ("conv1d", "conv2d", "conv3d", "convolution"):
        return 2 * out * prod(shapes[1][1:])
    if name == "einsum":
        reads, _ = letters(node.args[0], shapes)
        return 2 * prod(dict(zip("".join(reads), [n for x in shapes for n in x], strict=True)).values())
    return 0


def letters(equation: str, shapes: Sequence[Sequence[int]]) -> tuple[list[str], str]:
    """Return an einsum's letters by operand and of its result, all explicit.

    >>> letters("...k, kn", [(2, 8, 16), (16, 4)])
    (['01k', 'kn'], '01n')
    """
    reads, arrow, out = equation.replace(" ", "").partition("->")
    terms = reads.split(",")
    counts = [len(shape) - len(x.replace("...", "")) for x, shape in zip(terms, shapes, strict=True)]
    spare = "0123456789"[: max(counts)]
    single = "".join(sorted(x for x in set(reads) - set(".,") if reads.count(x) == 1))
    out = out if arrow else ("..." if spare else "") + single
    terms = [x.replace("...", spare[len(spare) - n :]) for x, n in zip(terms, counts, strict=True)]
    return terms, out.replace("...", spare)


def constants(node: Any) -> Any:
    """Return a node's results as constants."""
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        return [Constant(tuple(x.shape), node) if hasattr(x, "shape") else x for x in value]
    return Constant(shape_of(node), node)


def is_number(node: Any) -> bool:
    """Whether a node's result has a type of numbers with fractions; a node without a result has it too."""
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return dtype is None or bool(dtype.is_floating_point)


def storage(node: Any) -> int | None:
    """Return the memory that a node's result is in, which views of it share; None of other results."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if hasattr(value, "untyped_storage") else None


def ancestors(node: Any) -> set[Any]:
    """Return the nodes that a node depends on, and itself."""
    needed, stack = set[Any](), [node]
    while stack:
        x = stack.pop()
        if x not in needed:
            needed.add(x)
            stack += x.all_input_nodes
    return needed


def router(x: Any) -> Value | None:
    """Return the logits that scores of experts follow from."""
    node = x.node if isinstance(x, Value) else None
    while node is not None and node.kind == "expr":
        node = next((y for y in node.reads if needs_input(y)), None)
    if node is None or node.kind != "multiply":
        return None
    return folded(node, (node.rows,), (node.cols,))
