"""DTensor's mm, addmm and bmm by the cheapest way, as its dispatcher's handler, and its redistribution cost.

Below autograd, so gradients are chosen too. A decision is kept for each pair of specs: shapes, types,
placements, mesh.

Source: PyTorch 2.13, torch/distributed/tensor/_dispatch.py (``_custom_op_handlers``), _redistribute.py
(``_gen_transform_infos``). The hook of pytorch#182379 (``OpAlgorithm``) is in no release.
"""

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any, NamedTuple

from umm.errors import InputError
from umm.torch.cost import replace_cost
from umm_hw.arrays.dtensor import multiply, work
from umm_hw.dtensor.measuring import measure
from umm_hw.dtensor.ways import Costs, Step, Uses, Way, cheapest, priced, target, ways

IN_PLACE = "in place"
Perform = Callable[[Sequence[Any]], Any]  # Multiply DTensors: A and B, or for addmm a bias, A and B.


class Option(NamedTuple):
    """A way to perform one product, and the seconds it is predicted to take."""

    seconds: float
    perform: Perform


class Chooser:
    """Chooses ways to multiply by costs, and keeps its decisions.

    Args:
        costs: Of the process group; the same on every rank, so that all choose alike.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.torchs_cost: Callable[[Any, Any], float] = lambda now, then: inf
        self._decisions: dict[tuple[Any, ...], Perform | None] = {}
        self._asks_torch = False
        self._is_torchs = _torchs_turn()

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Perform an operation as DTensor's dispatcher asks for it."""
        perform = None if kwargs or self._is_torchs() else self.decision(op, args)
        return perform(args) if perform else self._torchs(op, args, kwargs)

    def decision(self, op: Any, args: Sequence[Any]) -> Perform | None:
        """Return a call that performs an operation on such DTensors; None leaves it to DTensor."""
        try:
            key = (op, *[x._spec for x in args])
        except AttributeError:  # a plain tensor among them
            return None
        try:
            return self._decisions[key]
        except KeyError:
            options = self.options(op, args)
            chosen = cheapest({name: x.seconds for name, x in options.items()}) if options else ""
            return self._decisions.setdefault(key, options[chosen].perform if options else None)

    def options(self, op: Any, args: Sequence[Any]) -> dict[str, Option]:
        """Return all ways to perform an operation, by name; none where it is left to DTensor. Collective."""
        a, b = args[-2:]
        alike = all(x.device_mesh == a.device_mesh and x.dtype == a.dtype for x in args)
        if self._is_torchs() or not alike or not all(map(_is_plain, args)):
            return {}
        mesh, uses = a.device_mesh, (uses_of(a.placements), uses_of(b.placements))
        spec = self._torchs_info(op, tuple(args), {}).output_sharding.output_spec
        wanted = target(uses[0], uses[1], uses_of(spec.placements), a.ndim)
        if len(args) == 3 and "P" in wanted:  # the bias would be added once on every rank
            return {}
        axes, shapes = tuple(mesh.shape), (tuple(a.shape), tuple(b.shape))
        specs = {"A": a._spec, "B": b._spec, "C": _placed(spec, wanted)}

        def steps(name: str, placements: Uses) -> list[Step]:
            other = _placed(specs[name], placements)
            return steps_of(*((specs[name], other) if name != "C" else (other, specs[name])))

        some = list(ways(axes, *shapes, wanted))
        seconds = priced(self.costs, axes, *shapes, a.dtype.itemsize, some, steps)
        options = {x.name: Option(seconds[x.name], _performed(op, args, x, specs)) for x in some}
        in_place = a.ndim == 2 and not any("P" in x for x in (*uses, wanted))
        if in_place and mesh.size() == _world() and min(*shapes[0], *shapes[1]) > 0:
            placements = specs["C"].placements
            taken = self.costs.in_place.at(work(a, b, placements) * a.dtype.itemsize / 4)
            options[IN_PLACE] = Option(taken, _performed_in_place(args, specs["C"]))
        return options

    def redistribute_cost(self, now: Any, then: Any) -> float:
        """Return the measured microseconds of a redistribution, infinite where torch's own is."""
        cost = self.torchs_cost(now, then)
        plain = all(_is_plain_placement(x) for x in (*now.placements, *then.placements))
        if self._asks_torch or cost in (0.0, inf) or not plain:
            return cost
        return 1e6 * sum(map(self.costs.move, steps_of(now, then)))

    def _torchs_info(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return an operation with the layouts that DTensor itself gives it, by its own costs."""
        dispatcher = _dispatcher()
        info = dispatcher.unwrap_to_op_info(op, args, kwargs)
        self._asks_torch = True
        try:
            dispatcher.sharding_propagator.propagate(info)
        finally:
            self._asks_torch = False
        return info

    def _torchs(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Perform an operation as DTensor does without a handler."""
        dispatcher, info = _dispatcher(), self._torchs_info(op, args, kwargs)
        local = dispatcher._dispatch_get_local_results_slow_path(op, args, info)
        return dispatcher.wrap(local, info.output_sharding.output_spec)


def _performed(op: Any, args: Sequence[Any], way: Way, specs: dict[str, Any]) -> Perform:
    """Return a call that redistributes, multiplies locally, and redistributes the product."""
    import torch
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._redistribute import redistribute_local_tensor as move

    wanted = specs["C"]
    made = _placed(wanted, way.c)
    moves = [
        None if now.placements == then.placements else (now, then)
        for now, then in ((specs["A"], _placed(specs["A"], way.a)), (specs["B"], _placed(specs["B"], way.b)))
    ]
    bias = _bias_specs(args[0]._spec, wanted) if len(args) == 3 else None
    closing = None if made.placements == wanted.placements else (made, wanted)
    plain = torch.ops.aten.mm.default if bias else op

    def perform(args: Sequence[Any]) -> Any:
        operands = [
            move(x._local_tensor, *specs) if specs else x._local_tensor
            for x, specs in zip(args[-2:], moves, strict=True)
        ]
        if bias is None:
            result = op(*operands)
            return DTensor(move(result, *closing) if closing else result, wanted, requires_grad=False)
        added = move(args[0]._local_tensor, *bias)
        result = plain(*operands) if closing else op(added, *operands)
        return DTensor(move(result, *closing) + added if closing else result, wanted, requires_grad=False)

    return perform


def _performed_in_place(args: Sequence[Any], wanted: Any) -> Perform:
    """Return a call of ``umm.torch.multiply``, which adds a bias where there is one."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._redistribute import redistribute_local_tensor as move

    bias = _bias_specs(args[0]._spec, wanted) if len(args) == 3 else None

    def perform(args: Sequence[Any]) -> Any:
        result = multiply(args[-2], args[-1], wanted.placements)._local_tensor
        if bias is not None:
            result += move(args[0]._local_tensor, *bias)
        return DTensor(result, wanted, requires_grad=False)

    return perform


def _bias_specs(bias: Any, wanted: Any) -> tuple[Any, Any]:
    """Return the specs of a bias as it is, and as it is added to a product: cut where that is cut."""
    missing = 2 - len(bias.shape)
    uses: list[int | str] = []
    for use in uses_of(wanted.placements):
        is_cut = isinstance(use, int) and use >= missing and bias.shape[use - missing] > 1
        uses.append(int(use) - missing if is_cut else "R")
    return bias, _placed(bias, tuple(uses))


def steps_of(now: Any, then: Any) -> list[Step]:
    """Return the steps by which torch itself redistributes from one spec to another."""
    from torch.distributed.tensor._redistribute import _gen_transform_infos

    if now.placements == then.placements:
        return []
    mesh, itemsize = now.mesh, now.tensor_meta.dtype.itemsize
    steps = []
    for info in _gen_transform_infos(now, then, None):
        (before, after), axis = uses_of(info.src_dst_placements), info.mesh_dim
        if before != after:
            ids = mesh.mesh.movedim(axis, -1).reshape(-1, mesh.size(axis))[0].tolist()
            kind = ">".join(x if isinstance(x, str) else f"S{min(x, 1)}" for x in (before, after))
            if kind == "S1>S1":  # of the second and third dimension
                kind = "S1>S0"
            distance = ids[1] - ids[0] if len(ids) > 1 else 1
            steps.append(Step(kind, len(ids), distance, itemsize * prod(info.logical_shape)))
    return steps


def uses_of(placements: Sequence[Any]) -> Uses:
    """Return the use of each placement."""
    return tuple(
        x.dim if x.is_shard() else "P" if x.is_partial() else "R"  # as umm.torch.cost's states
        for x in placements
    )


def _placed(spec: Any, uses: Uses) -> Any:
    """Return the spec of the same tensor with other placements."""
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor.placement_types import Partial, Replicate, Shard

    placements = [Shard(x) if isinstance(x, int) else Partial() if x == "P" else Replicate() for x in uses]
    return DTensorSpec(spec.mesh, tuple(placements), spec.tensor_meta)


def _is_plain_placement(x: Any) -> bool:
    """Whether a placement is Shard, Replicate, or the Partial of a sum: no subclass of them."""
    return type(x).__name__ in ("Shard", "Replicate") or (x.is_partial() and x.reduce_op == "sum")


def _is_plain(x: Any) -> bool:
    """Whether a DTensor is float32 or float64 on CPUs, with placements that all ways know."""
    import torch

    return (
        x.device_mesh.device_type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and all(map(_is_plain_placement, x.placements))
        and x._spec.is_default_device_order(x._spec.shard_order)
        and x.device_mesh._is_current_rank_part_of_mesh()
    )


def _torchs_turn() -> Callable[[], bool]:
    """Return whether torch traces operations, or refuses implicit redistributions, as a function."""
    from torch.distributed._functional_collectives import _are_we_tracing
    from torch.distributed.tensor._utils import ExplicitRedistributionContext

    context = ExplicitRedistributionContext._local
    return lambda: getattr(context, "_active", None) is not None or _are_we_tracing()


def _world() -> int:
    import torch.distributed as dist

    size: int = dist.get_world_size()
    return size


def _dispatcher() -> Any:
    from torch.distributed.tensor import DTensor

    return DTensor._op_dispatcher


_UNINSTALL: list[Callable[[], None]] = []


def install(costs: Costs | None = None) -> None:
    """Have DTensor multiply by the cheapest way from now on; collective.

    mm, addmm and bmm of CPU DTensors in float32 and float64 redistribute and multiply, or multiply in place
    by :func:`umm.torch.multiply`: whatever is predicted to take least. Products have the placements that
    DTensor gives them. But where it would move operands to leave a sum open they come out complete, cut as
    A's rows and B's columns are. Other strategies are chosen by the measured cost of redistributions.
    InputError without torch, a process group, several ranks, or a torch that has handlers.

    Args:
        costs: Of this process group; None measures it, which takes some seconds.
    """
    try:
        import torch
    except ImportError:
        raise InputError("umm.torch.install needs PyTorch; pip install 'umm-sim[torch]'") from None
    dispatcher, aten = _dispatcher(), torch.ops.aten
    needs = ("_custom_op_handlers", "_dispatch_get_local_results_slow_path")
    if not all(hasattr(dispatcher, name) for name in needs):
        raise InputError(f"torch {torch.__version__} has no handlers of DTensor's operations; 2.13 has")
    uninstall()
    chooser = Chooser(costs or measure())
    chooser.torchs_cost, restore = replace_cost(chooser.redistribute_cost)
    handlers = dispatcher._custom_op_handlers
    ops = [aten.mm.default, aten.addmm.default, aten.bmm.default]
    handlers.update(dict.fromkeys(ops, chooser))

    def remove() -> None:
        for op in ops:
            handlers.pop(op, None)
        restore()

    _UNINSTALL.append(remove)


def uninstall() -> None:
    """Leave DTensor as it was before :func:`install`; nothing if it is not installed."""
    while _UNINSTALL:
        _UNINSTALL.pop()()
