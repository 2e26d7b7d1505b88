"""DTensor's products by every way that umm chooses among, on four processes over gloo; prints how many."""

import itertools

import torch
from over_gloo import start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import umm
from umm_hw.dtensor.chooser import Chooser, Option
from umm_hw.dtensor.measuring import KINDS
from umm_hw.dtensor.ways import Costs, Curve

aten = torch.ops.aten
FLAT = Curve((1.0,), (1e-3,))
COSTS = Costs({(kind, ranks, 1): FLAT for kind in KINDS for ranks in (2, 4)}, FLAT, FLAT, FLAT)


def products(mesh):
    """Operations with their operands, and the products of one process."""
    x, y, bias = torch.randn(13, 10), torch.randn(10, 9), torch.randn(9)
    batch, other = torch.randn(6, 7, 10), torch.randn(6, 10, 5)
    cases = [
        (aten.mm.default, (x, y)),
        (aten.addmm.default, (bias, x, y)),
        (aten.bmm.default, (batch, other)),
    ]
    for op, operands in cases:
        dims = operands[-1].ndim
        uses = [*map(Shard, range(dims)), Replicate()]
        pairs = [*itertools.product(itertools.product(uses, repeat=mesh.ndim), repeat=2)]
        for pair in pairs[:: 1 if mesh.ndim == 1 else 23]:
            placed = [[Replicate()] * mesh.ndim] * (len(operands) - 2) + list(pair)
            tensors = [distribute_tensor(t, mesh, p) for t, p in zip(operands, placed, strict=True)]
            yield op, tensors, op(*operands)


def rank(number):
    meshes = [init_device_mesh("cpu", axes) for axes in ((4,), (2, 2))]
    chooser, done, completed = Chooser(COSTS), 0, 0
    for mesh in meshes:
        for op, tensors, right in products(mesh):
            torchs = op(*tensors)
            for option in chooser.options(op, tensors).values():
                product = option.perform(tensors)
                torch.testing.assert_close(product.full_tensor(), right)
                assert product.stride() == torchs.stride()
                if product.placements != torchs.placements:
                    assert any(x.is_partial() for x in torchs.placements)
                    completed += 1
                done += 1
    x, y = torch.randn(12, 12), torch.randn(12, 12)
    a, b = (distribute_tensor(t, meshes[0], [Shard(0)]).requires_grad_() for t in (x, y))
    turned = b.detach().t()
    for option in chooser.options(aten.mm.default, (a, turned)).values():
        torch.testing.assert_close(option.perform((a, turned)).full_tensor(), x @ y.T)
        done += 1
    (a @ b).sum().backward()
    expected = [t.grad.full_tensor() for t in (a, b)]
    options, chosen = Chooser.options, []

    def seen(self, op, args):
        chosen.append(op)
        return options(self, op, args)

    Chooser.options = seen
    umm.torch.install(COSTS)
    handler = DTensor._op_dispatcher._custom_op_handlers[aten.mm.default]
    a.grad = b.grad = None
    (a @ b).sum().backward()
    for t, grad in zip((a, b), expected, strict=True):
        torch.testing.assert_close(t.grad.full_tensor(), grad)
    first = len(chosen)
    (a @ b).sum().backward()
    assert len(chosen) == first > 2, chosen
    half = distribute_tensor(x.bfloat16(), meshes[0], [Shard(0)])
    torch.testing.assert_close((half @ half).full_tensor(), x.bfloat16() @ x.bfloat16(), rtol=0.1, atol=0.1)
    handler._decisions.clear()
    Chooser.options = lambda self, op, args: {"given": Option(0.0, lambda args: half)}
    assert torch.mm(a.detach(), b.detach()).dtype == torch.bfloat16
    umm.torch.uninstall()
    assert torch.mm(a.detach(), b.detach()).dtype == torch.float32
    return f"{done} right, {completed} complete where DTensor leaves a sum"


if __name__ == "__main__":
    start(rank)
