"""A function of JAX as chains, from its jaxpr: nothing is computed, and no weights are made."""

import inspect
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from umm.errors import InputError, ProblemError
from umm.jax.reading import Reader
from umm.program.graph.folds import Value
from umm.program.graph.traced import Traced
from umm.program.graph.writing import parts

DTYPES = ("float64", "float32", "float16", "bfloat16")


def chain(f: Callable[..., Any], *shapes: Any, inputs: int = 1, name: str = "") -> Traced:
    """Return a function as chains; the steps of a scan are layers, one chain and their number.

    Elementwise operations are fused as XLA fuses them, and a softmax between two multiplies is fused
    attention.

    InputError in one line, if JAX is missing or refuses the function, or it has no multiply.

    Args:
        f: A function of arrays, as ``jax.jit`` takes it.
        shapes: Its arguments, or their ``jax.ShapeDtypeStruct``; trees of them too.
        inputs: How many of the arguments are inputs; the others are weights.
        name: Of the chains; the function's own if not given.
    """
    try:
        import jax
    except ImportError:
        raise InputError("a function of JAX needs JAX; pip install 'umm-sim[jax]'") from None
    if not callable(f):
        raise InputError(f"{type(f).__name__} is no function; give one, and the shapes of its arguments")
    try:
        closed = jax.make_jaxpr(f)(*shapes)
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"JAX refuses {getattr(f, '__name__', 'the function')}: {first[:300]}") from None
    counts = [len(jax.tree.leaves(x)) for x in shapes]
    names = [*inspect.signature(f).parameters, *map(str, range(len(shapes)))]
    labels = [
        f"{of_argument}.{'.'.join(re.findall(r'[A-Za-z0-9_]+', jax.tree_util.keystr(path)))}".rstrip(".")
        for of_argument, tree in zip(names, shapes, strict=False)
        for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]
    reader, dtypes = Reader(), Counter[str]()
    for number, variable in enumerate(closed.jaxpr.invars):
        is_input = number < sum(counts[:inputs])
        reader.leaf(variable, "input" if is_input else "weight", labels[number])
        dtype = str(variable.aval.dtype)
        if dtype in DTYPES:
            dtypes[dtype] += variable.aval.size
    for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        reader.constant(variable, value)
    reader.read(closed.jaxpr)
    outputs = [x.node for y in closed.jaxpr.outvars if isinstance(x := reader.value(y), Value)]
    words = name or getattr(f, "__name__", "") or "function"
    words = words if words.isidentifier() else "function"
    if not outputs or not reader.flop:
        raise ProblemError(f"{words} has no multiply on the way to its result, so no plan")
    dtype = max(dtypes, key=lambda x: dtypes[x], default="float32")
    made = parts(reader.graph, outputs, words.replace("_", "-"), dtype, reader.counted)
    return Traced.of(reader.graph, made, reader.flop)
