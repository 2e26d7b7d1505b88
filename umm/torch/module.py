"""An nn.Module as chains: torch.export's graph without elements, a chain for each kind of layer."""

import inspect
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from umm.errors import InputError, ProblemError
from umm.program.graph.attention import Scores
from umm.program.graph.folds import Value
from umm.program.graph.nodes import Constant
from umm.program.graph.traced import Traced
from umm.program.graph.writing import parts
from umm.torch.reading import FREE, Reader
from umm.torch.regions import inlined
from umm.torch.values import Buffer, Joined, Route, ancestors, arguments, shape_of, torch_for


def chain(module: Any, example_inputs: Any, *, name: str = "module") -> Traced:
    """Return a module's forward part as chains, without computing anything.

    Repeated layers, the items of a ModuleList or Sequential, are one chain and their number. What compilers
    of frameworks do counts as done: elementwise operations and norms are fused, biases are added as a
    multiply writes, and a softmax between two multiplies is fused attention. Rotary positions have the base
    of the module's tables; tables that are unknown, or have no single base, are named in ``left_out``.

    Args:
        module: An ``nn.Module``; on ``torch.device("meta")`` no weights are made.
        example_inputs: A tuple of its arguments, or a mapping of them by name; only shapes and types count.
        name: What the chains are called.

    Raises:
        InputError: in one line, if torch is missing, torch.export refuses the module, or it computes nothing
            that umm understands.
    """
    torch = torch_for(module)
    if any(isinstance(x, torch.nn.Conv1d) for x in module.modules()):  # before minutes of export
        raise _mostly_by(module, LOOPS)
    exported = _exported(module, example_inputs)
    graph = inlined(exported.graph_module)
    signature = exported.graph_signature
    lifted = signature.inputs_to_lifted_tensor_constants
    stored = {**exported.state_dict, **exported.constants}
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **lifted}
    known = {name: stored.get(x) for name, x in named.items()}
    reader = Reader(lambda node: _elements(node, known), _blocks(module), signature.user_inputs)
    dtypes = Counter[str]()
    for node in graph.nodes:
        if node.op == "placeholder":
            _leaf(reader, node, signature, dtypes)
        elif node.op == "call_function":
            reader.read(node)
        elif node.op == "get_attr":  # a part of a condition or a loop
            reader.values[node] = None
        elif node.op == "output":
            given = [reader.values.get(x) for x in torch.utils._pytree.tree_leaves(node.args)]
    outputs = [x.node for x in given if isinstance(x, Value)]
    for x in given:
        if isinstance(x, (Buffer, Joined, Route, Scores)):
            reader.graph.leave_out("a result that is not one matrix")
    if not outputs or not reader.flop:
        raise ProblemError(
            f"{type(module).__name__} has no multiply that gives its result; there is nothing to plan"
        )
    refused = [x for x, flop in reader.graph.unknown.items() if x in LOOPS or flop > reader.flop / 2]
    if refused:
        raise _mostly_by(module, refused)
    dtype = max(dtypes, key=lambda x: dtypes[x], default="float32")
    made = parts(reader.graph, outputs, name, dtype, reader.counted)
    return Traced.of(reader.graph, made, reader.flop)


LOOPS = ("conv1d",)  # what begins a scan over tokens, whose steps export writes out one by one


def _mostly_by(module: Any, operations: Sequence[str]) -> ProblemError:
    return ProblemError(
        f"{type(module).__name__} computes mostly by {', '.join(operations)}, which no statement is; "
        "umm plans multiplies and attention"
    )


def _exported(module: Any, example_inputs: Any) -> Any:
    """Export a module in evaluation by torch.export; InputError with the first line of torch's own words."""
    import torch

    args, kwargs = arguments(example_inputs)
    takes = inspect.signature(module.forward).parameters
    if "use_cache" in takes and "config" in vars(module) | module.__class__.__dict__:
        kwargs.setdefault("use_cache", False)
    device = next((x.device for x in module.parameters()), None)
    if device is not None:
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), (args, kwargs))
    training = module.training
    try:
        with suppress(NotImplementedError):  # of an exported program, which has one mode
            module.eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # With gradients the graph has the regions of no_grad, but autograd refuses some changes in place.
            for gradients in (True, False):
                try:
                    with torch.set_grad_enabled(gradients):
                        return torch.export.export(module, args, kwargs, strict=False)
                except RuntimeError as error:
                    if not gradients or "inplace" not in str(error).replace("in-place", "inplace"):
                        raise
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"torch.export refuses {type(module).__name__}: {first[:300]}") from None
    finally:
        with suppress(NotImplementedError):
            module.train(training)


def _leaf(reader: Reader, node: Any, signature: Any, dtypes: Counter[str]) -> None:
    """Add an input of the graph: a weight, an input, or a constant."""
    value = node.meta.get("val")
    reader.graph.block = reader.graph.label = ""
    if not hasattr(value, "shape"):
        reader.values[node] = value
        return
    parameter = signature.inputs_to_parameters.get(node.name)
    shape, floating = shape_of(node), value.dtype.is_floating_point
    if node.name in {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}:
        reader.values[node] = Constant(shape, node)
        return
    if parameter is None:
        # Whole numbers choose rows of a table; whatever else follows from them is computed once.
        made = reader.graph.leaf("input", shape if floating else (*shape, 1))
        made.node.label = node.name
        reader.values[node] = made if floating else Constant(shape, node)
        if not floating:
            reader.tokens[node] = made
        return
    # Presets store a weight with its rows added over, which torch stores as columns.
    users, stack = set[str](), [node]
    while stack:
        for user in (x for x in stack.pop().users if x.op == "call_function"):
            op = str(user.target).removeprefix("aten.").split(".")[0]
            users.add(op)
            stack += [user] if op in FREE else []
    flipped = len(shape) == 2 and "linear" in users and "embedding" not in users
    made = reader.graph.leaf("weight", shape, flipped=flipped)
    path = [x for x in parameter.split(".") if x != "weight"]
    made.node.label = ".".join(path[-2:] if path[-1:] == ["bias"] else path[-1:])
    dtypes[str(value.dtype).removeprefix("torch.")] += value.numel()
    reader.values[node] = made


def _blocks(module: Any) -> Any:
    """Return a function from a node to the repeated part of the module that it is in; empty outside."""
    # Parts are repeated if they have a number, a parent whose other children are of the same class, and
    # children of their own.
    repeated = set[str]()
    for path, parent in module.named_modules():
        kinds = Counter(
            type(x) for name, x in parent.named_children() if name.isdigit() and any(x.children())
        )
        for name, x in parent.named_children():
            inner = any(f"{path}.".startswith(f"{y}.") for y in repeated)
            if name.isdigit() and kinds[type(x)] > 1 and not inner:
                repeated.add(f"{path}.{name}".lstrip("."))

    def block(node: Any) -> str:
        stack = (node.meta.get("nn_module_stack") or {}).values()
        return next((path for path, _ in stack if path in repeated), "")

    return block


def _elements(node: Any, stored: Mapping[str, Any]) -> Any:
    """Return a constant's elements, whole numbers given as ones; None if they cannot be computed."""
    import torch

    known: dict[Any, Any] = {}

    def of(x: Any) -> Any:
        if isinstance(x, torch.device):
            return torch.device("cpu")
        return known[x] if isinstance(x, torch.fx.Node) else x

    needed = ancestors(node)
    try:
        with torch.no_grad():
            for x in (y for y in node.graph.nodes if y in needed):
                value = x.meta.get("val")
                if x.op == "placeholder" and x.name in stored:
                    known[x] = stored[x.name]
                    if known[x] is None or known[x].is_meta:
                        return None
                    known[x] = known[x].cpu()
                elif x.op == "placeholder":
                    known[x] = (
                        torch.ones(value.shape, dtype=value.dtype) if hasattr(value, "shape") else value
                    )
                elif "_assert" not in str(x.target):
                    args, named = torch.utils._pytree.tree_map(of, (x.args, x.kwargs))
                    known[x] = x.target(*args, **named)
            return known[node]
    except (KeyError, RuntimeError, TypeError, NotImplementedError):
        return None
