"""``umm muon``: the ranks at which Muon orthogonalises each weight, and the cost of that."""

import click

from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import Answering, Configured, FromModel, Located
from umm.cli.flags.values import Finite

NAMES = {"muon": "Muon", "muon-gram": "Muon-gram", "shampoo": "Shampoo", "soap": "SOAP"}
"""Optimizers as papers write them."""


@command("umm.cli.answers.muon:muon", machine="h100-8")
class Muon(Located, Configured, FromModel, Answering):
    """Compare where Muon's momenta are orthogonalised, and plan the best mix.

    Each matrix of a layer takes five Newton-Schulz steps in bfloat16: on every rank, at an owner, by whole
    layers, split by its longer side with X·Xᵀ summed, split by columns alone, or in place by one-sided
    multiplies, simulated on up to 32 ranks. An integer linear program gives each weight a placement and each
    matrix an owner, proven best or with its gap.
    """

    layouts: str = flag(
        default="fsdp8", metavar="GRID",
        help="Ranks that split the weights: tp4-fsdp16, fsdp64-ep8.",
    )  # fmt: skip
    stack: str = flag(default="megatron", metavar="NAME", help="Software, as in umm step.")
    optimizer: str = flag(
        type=click.Choice(list(NAMES)), default="muon",
        help="Whose products; muon-gram works on X·Xᵀ alone. Shampoo's roots and SOAP's bases come apart.",
    )  # fmt: skip
    placement: str | None = flag(metavar="NAME", help="Emit this placement of all weights, not the best mix.")
    coefficients: str | None = flag(
        metavar="FILE", help="TOML with steps = [[a, b, c], …]; five of Jordan's if not given."
    )
    syrk: bool = flag(help="The library computes one triangle of X·Xᵀ and A²; else both are computed whole.")
    batch: int = flag(
        type=click.IntRange(1, 4096), default=1, metavar="N",
        help="Equal matrices that one kernel multiplies.",
    )  # fmt: skip
    overlap: bool = flag(help="Collectives run beside the compute of other buckets.")
    backward: float = flag(
        type=Finite(0, 1e6), default=0.0, metavar="SECONDS",
        help="Backward pass before, behind which momenta move; implies --overlap.",
    )  # fmt: skip
    resident: bool = flag(help="Weights live with their owners: nothing moves beside FSDP's collectives.")
    emit: str | None = flag(
        type=click.Choice(["megatron", "torchtitan"]),
        help="Print only Megatron-LM's mode of each weight, or torchtitan's owner of each matrix.",
    )  # fmt: skip
