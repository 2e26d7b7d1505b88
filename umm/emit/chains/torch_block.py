"""A chain in torch: a module, the plan of parallelize_module for it, and fully_shard.

Between multiplies the module works on each rank's own tensors, as torch's tensor parallelism has it.
"""

from collections.abc import Callable
from textwrap import indent, wrap
from typing import Any

from umm.emit.chains.forward import form_of
from umm.emit.chains.spread import DP, FSDP, TP, Spread
from umm.emit.described import JOINED, STARTED, WIDTH, listed
from umm.errors import InputError
from umm.layouts.frameworks.mesh import Meshed
from umm.program import Map, Multiply
from umm.program.statements import of_kind
from umm.program.statements.attention import Attention
from umm.quoting import python

PROGRAM = '''"""<what>

torchrun --nproc-per-node <ranks> FILE runs it; python FILE starts <ranks> processes on this host's CPUs
itself. With --check the result is compared with the whole block on one device.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh<imports>

RANKS, DTYPE = <ranks>, torch.<dtype>
<mesh>
AXES = <axes>
SHAPES = <shapes>
<helpers>

class Block(torch.nn.Module):
    """<body>"""

    def __init__(self) -> None:
        super().__init__()
<modules>

    def forward(self, <arguments>, first: int = 0):
        """Return <results>; the first row of the tokens here is row `first` of all."""
<statements>
        return <results>


def parallel(block: Block, mesh: DeviceMesh) -> Block:
    """Spread a block over a mesh, as planned."""
<spread>    return block


def main(rank: int, store: str | None) -> None:
    device = joined(rank, store)
    mesh = DeviceMesh(device.type, MESH, mesh_dim_names=AXES)
    torch.manual_seed(0)  # the same weights and tokens on every rank
    whole = Block().to(device, DTYPE)
    block = Block().to(device, DTYPE)
    block.load_state_dict(whole.state_dict())
    block = parallel(block, mesh)
    tokens = [torch.rand(shape, device=device).to(DTYPE) - 0.5 for shape in SHAPES]
    place, parts = 0, 1
    for axis in <token_axes>:
        place, parts = place * mesh[axis].size() + mesh[axis].get_local_rank(), parts * mesh[axis].size()
    gathered_parts = 1
    for axis in <batch_axes>:
        gathered_parts *= mesh[axis].size()
    rows = SHAPES[0][0]
    mine = [x.chunk(parts)[place] for x in tokens]
    first = place * (rows // parts) // (rows // gathered_parts) * (rows // gathered_parts)
    results = block(*mine, first=first)
    results = results if isinstance(results, tuple) else (results,)
    if "--check" in sys.argv:
        true = whole(*tokens)
        for x, y in zip(results, true if isinstance(true, tuple) else (true,)):
            blocks = y.shape[0] // x.shape[0]
            y = y.chunk(blocks)[place * blocks // parts]
            y = y.chunk(<columns>, dim=1)[mesh["tp"].get_local_rank()] if x.shape != y.shape else y
            error = ((x - y).abs().max() / y.abs().max()).item()
            if not error <= 64 * torch.finfo(DTYPE).eps:
                raise SystemExit(f"rank {rank} is wrong: largest error {error:.1e} of its largest element")
        if rank == 0:
            print(f"right: largest error {error:.1e} of its largest element")
    dist.barrier()
    dist.destroy_process_group()
    # Collectives of DTensor keep threads alive; one that drops a tensor while Python ends would abort it.
    sys.stdout.flush()
    os._exit(0)

'''
ROPE = '''

def rope(x, head: int, base: float, positions: int, start: int, first: int):
    """Turn each pair of columns of a head by its position; row i is row first + i of all."""
    rows = torch.arange(first, first + x.shape[0], device=x.device)[:, None]
    position = start + (rows % positions if positions else rows)
    pair = torch.arange(0, x.shape[1], 2, device=x.device) % head
    angle = position * base ** (-pair / head)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[:, ::2], x[:, 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=2).reshape(x.shape)
'''
ROPE_HALVES = '''

def rope_halves(x, head: int, base: float, positions: int, start: int, turned: int, first: int):
    """Turn columns of a head's first half with those of its second; row i is row first + i of all."""
    rows = torch.arange(first, first + x.shape[0], device=x.device)[:, None]
    position = start + (rows % positions if positions else rows)
    angle = position * base ** (-torch.arange(0, turned, 2, device=x.device) / turned)
    cos, sin = (y[:, None].to(x.dtype) for y in (angle.cos(), angle.sin()))
    one, other, rest = x.reshape(x.shape[0], -1, head).split([turned // 2, turned // 2, head - turned], dim=2)
    return torch.cat([one * cos - other * sin, one * sin + other * cos, rest], dim=2).reshape(x.shape)
'''
ATTENTION = '''

def attention(q, k, v, head: int, length: int, causal: bool, window: int):
    """Return attention within sequences of so many rows; heads lie in columns."""
    def heads(x):
        return x.reshape(-1, length, x.shape[1] // head, head).transpose(1, 2)

    mask = None
    if window:
        at = torch.arange(length, device=q.device)
        mask = (at[:, None] >= at) & (at[:, None] - at < window)
    result = F.scaled_dot_product_attention(
        heads(q), heads(k), heads(v), mask, is_causal=causal and mask is None, enable_gqa=True
    )
    return result.transpose(1, 2).reshape(q.shape[0], -1)
'''
MAPS = {
    "add": "{0} + {1}", "mul": "{0} * {1}", "gelu": "F.gelu({0})", "silu": "F.silu({0})",
    "relu": "F.relu({0})", "silu_mul": "F.silu({0}) * {1}",
}  # fmt: skip


class _Block:
    """The lines of a module: its parts, the plan of parallelize_module by part, and its forward pass."""

    def __init__(self, spread: Spread) -> None:
        self.spread, self.forward, self.name = spread, spread.forward, spread.forward.names
        self.modules: list[str] = []
        self.plan: dict[str, str] = {}
        self.lines: list[str] = []

    def norm(self, scale: str) -> None:
        """Add the norm that has this scale."""
        norms = of_kind(Map, self.forward.statements)
        norm = next(x for x in norms if x.fn == "rms_norm" and x.reads[1] == scale)
        columns, epsilon = self.forward.tensors[scale].shape[1], norm.parameters.get("epsilon", 1e-5)
        self.modules.append(f"self.{self.name[scale]} = torch.nn.RMSNorm({columns}, eps={epsilon!r})")
        if self.spread.sequence_parallel:
            self.plan[self.name[scale]] = "SequenceParallel(sequence_dim=0, use_local_output=True)"

    def gathered(self, a: str) -> str:
        """Return the name of an operand with the tokens of all tensor parallel ranks."""
        gather = f"gather_{a}"
        if gather not in self.plan:
            self.modules.append(f"self.{gather} = torch.nn.Identity()  # all tokens of tensor parallel ranks")
            self.plan[gather] = (
                "PrepareModuleInput(\n        input_layouts=(Shard(0),), "
                "desired_input_layouts=(Replicate(),), use_local_output=False\n    )"
            )
            self.lines.append(f"{a}_gathered = self.{gather}({a})")
        return f"{a}_gathered"

    def multiply(self, statement: Multiply) -> None:
        """Add a linear layer's call, and how its weight is cut."""
        a, use = self.name[statement.a], self.spread.use
        if use(statement.a, TP) == 0:
            a = self.gathered(a)
        self.lines.append(f"{self.name[statement.out]} = self.{self.name[statement.b]}({a})")
        if TP in self.spread.roles:
            to = "Shard(0)" if use(statement.out, TP) == 0 else "Replicate()"
            columns = use(statement.b, TP) == 1
            style = "ColwiseParallel()" if columns else f"RowwiseParallel(output_layouts={to})"
            self.plan[self.name[statement.b]] = style

    def attention(self, statement: Attention) -> None:
        """Add a call of attention."""
        length = self.forward.length(statement)
        q, k, v, out = (self.name[x] for x in (statement.q, statement.k, statement.v, statement.out))
        self.lines.append(
            f"{out} = attention({q}, {k}, {v}, head={statement.head}, length={length}, "
            f"causal={statement.causal}, window={statement.window})"
        )

    def map(self, statement: Map) -> None:
        """Add a function of elements."""
        reads, p = [self.name[x] for x in statement.reads], statement.parameters
        if statement.fn == "rms_norm":
            value = f"self.{reads[1]}({reads[0]})"
        elif statement.fn == "scale":
            value = f"{float(next(iter(p.values())))!r} * {reads[0]}"
        elif statement.fn == "rope":
            value = (
                f"rope({reads[0]}, head={p['head']}, base={p['base']}, "
                f"positions={p.get('positions', 0)}, start={p.get('first', 0)}, first=first)"
            )
        elif statement.fn == "rope_halves":
            value = (
                f"rope_halves({reads[0]}, head={p['head']}, base={p['base']}, "
                f"positions={p.get('positions', 0)}, start={p.get('first', 0)}, "
                f"turned={p.get('turned') or p['head']}, first=first)"
            )
        else:
            value = form_of(statement, MAPS).format(*reads)
        self.lines.append(f"{self.name[statement.out]} = {value}")


WRITES: dict[type, Callable[[_Block, Any], None]] = {
    Multiply: _Block.multiply, Attention: _Block.attention, Map: _Block.map,
}  # fmt: skip
"""How a statement is added, by its kind."""


def program(spread: Spread, note: str) -> str:
    """Return the program; InputError where ranks share a sequence, or sizes do not divide.

    Args:
        spread: A chain's forward part and its axes.
        note: What is known of it, in a line or several.
    """
    forward = spread.forward
    if not Meshed(spread.ranks, ()).is_sorted:
        raise InputError(
            f"ranks of {forward.chain.name}'s mesh fall along an axis, and torch sorts the ranks of a group; "
            "--emit jax takes them in any order"
        )
    _check(spread)
    name = forward.names
    block = _Block(spread)
    for scale in forward.scales:
        block.norm(scale)
    for weight in forward.weights:
        k, n = forward.tensors[weight].shape
        block.modules.append(f"self.{name[weight]} = torch.nn.Linear({k}, {n}, bias=False)")
    for statement in forward.statements:
        WRITES[type(statement)](block, statement)
    split = spread.sequence_parallel
    results = ", ".join(name[x] for x in forward.outputs)
    text = "\n".join(block.lines)
    used = {"rope": ROPE, "rope_halves": ROPE_HALVES, "attention": ATTENTION}
    helpers = "".join(code for function, code in used.items() if f" {function}(" in text)
    token_axes = [role for role in spread.roles if role != TP or split]
    words = wrap(f"{forward.chain.name} on {forward.chain.ranks} ranks: {spread.words}. {note}", WIDTH)
    shapes = [forward.tensors[x].shape for x in forward.inputs]
    roles = spread.roles or (FSDP,)
    return python.filled(
        PROGRAM + JOINED + STARTED,
        {
            "what": python.docstring("\n".join([*words, *wrap(_left_out(spread), WIDTH)])),
            "ranks": spread.ranks.size,
            "dtype": forward.dtype,
            "mesh": listed(spread.ranks.reshape(*_sizes(spread)).tolist(), "MESH"),
            "axes": repr((*roles, *(("one",) if DP in roles and FSDP not in roles else ()))),
            "imports": _imports(spread, block.plan),
            "shapes": repr(shapes),
            "helpers": helpers,
            "body": python.docstring("; ".join(str(x) for x in forward.statements)[:200]),
            "modules": indent("\n".join(block.modules), "        "),
            "arguments": ", ".join(name[x] for x in forward.inputs),
            "results": results,
            "statements": indent(text, "        "),
            "spread": _spreading(spread, block.plan),
            "token_axes": repr(token_axes),
            "batch_axes": repr([role for role in spread.roles if role != TP]),
            "columns": spread.size(TP),
        },
    )


def _sizes(spread: Spread) -> list[int]:
    """Return the mesh's sizes; data parallel ranks without split weights have an axis of one rank."""
    sizes = list(spread.ranks.shape)
    return [*sizes, 1] if DP in spread.roles and FSDP not in spread.roles else sizes


def _imports(spread: Spread, plan: dict[str, str]) -> str:
    lines = []
    if DP in spread.roles or FSDP in spread.roles:
        lines.append("from torch.distributed.fsdp import fully_shard")
    text = " ".join(plan.values())
    if placements := [x for x in ("Replicate", "Shard") if f"{x}(" in text]:
        lines.append(f"from torch.distributed.tensor import {', '.join(placements)}")
    styles = ("ColwiseParallel", "PrepareModuleInput", "RowwiseParallel", "SequenceParallel")
    if used := [x for x in styles if f"{x}(" in text]:
        lines.append(f"from torch.distributed.tensor.parallel import {', '.join(used)}, parallelize_module")
    return "".join(f"\n{x}" for x in lines)


def _spreading(spread: Spread, plan: dict[str, str]) -> str:
    """Return the calls that spread a block."""
    text = ""
    if plan:
        listed_plan = "".join(
            f"        {module!r}: {style.replace(chr(10), chr(10) + '    ')},\n"
            for module, style in plan.items()
        )
        text += f'    plan = {{\n{listed_plan}    }}\n    parallelize_module(block, mesh["tp"], plan)\n'
    if FSDP in spread.roles:
        axes = '"dp", "fsdp"' if DP in spread.roles else '"fsdp"'
        text += f"    fully_shard(block, mesh=mesh[{axes}])\n"
    elif DP in spread.roles:
        text += '    fully_shard(block, mesh=mesh["dp", "one"])  # whole weights; gradients are summed\n'
    return text


def _left_out(spread: Spread) -> str:
    """Return the parts of the plan that torch does not express."""
    parts = ["umm moves tensors one-sided, in slices beside multiplies; torch's collectives end before them"]
    if FSDP in spread.roles:
        parts.append("fully_shard cuts each weight by its first dimension and gathers the block's at once")
    return f"Not expressed: {'; '.join([*parts, *spread.forward.left_out])}."


def _check(spread: Spread) -> None:
    """Refuse shared sequences, and heads and sizes that do not divide."""
    forward = spread.forward
    batch = spread.size(DP) * spread.size(FSDP)
    for attention in of_kind(Attention, forward.statements):
        if attention.sequences % batch:
            raise InputError(
                f"{batch} ranks share {attention.sequences} sequences, which takes context parallelism; "
                f"parallelize_module has none: take a multiple of {batch} --sequences, or --emit jax"
            )
        heads = [forward.tensors[x].shape[1] // attention.head for x in (attention.q, attention.k)]
        if any(x % spread.size(TP) for x in heads):
            raise InputError(
                f"{heads[0]} and {heads[1]} heads cannot be split over {spread.size(TP)} tensor parallel "
                "ranks; choose a divisor of both"
            )
    parameters = {*forward.weights, *forward.scales}
    for statement in forward.statements:
        activations = (*statement.reads[:1], *(x for x in statement.reads[1:] if x not in parameters))
        if isinstance(statement, Map) and statement.fn != "rms_norm":
            activations = tuple(statement.reads)
        if not parameters.isdisjoint(activations):
            raise InputError(
                f"{statement} reads a weight as an activation, which no layer of torch does; "
                "--emit jax takes it"
            )
    for multiply in of_kind(Multiply, forward.statements):
        if multiply.b not in parameters:
            raise InputError(
                f"{multiply} multiplies two activations, which no layer of torch does; --emit jax takes it"
            )
        if multiply.trans:
            raise InputError(
                f"{multiply} multiplies transposed, which no layer of torch does; --emit jax takes it"
            )
    for map_ in of_kind(Map, forward.statements):
        cuts = {spread.use(x, TP) for x in (*map_.reads, map_.out)}
        if map_.fn != "rms_norm" and len(cuts) > 1:
            raise InputError(f"{map_} joins tensors cut otherwise over tensor parallel ranks; --emit jax")
    for tensor in forward.used():
        for dim, size in zip(spread.uses[tensor.name], spread.ranks.shape, strict=False):
            if dim is not None and tensor.shape[dim] % size:
                raise InputError(
                    f"{tensor.shape[dim]} {('rows', 'columns')[dim]} of {tensor.name} cannot be split evenly "
                    f"over {size} ranks, as torch's programs need; --emit jax pads them"
                )
