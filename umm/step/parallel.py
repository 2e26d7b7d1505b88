"""How a training step is spread: sizes of each parallelism, micro-batches, and the ranks of each group."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from umm.errors import ProblemError, did_you_mean
from umm.numbers import whole_in
from umm.step.pipeline import FIXED_CHUNKS, SCHEDULES
from umm.step.stacks import Stack

PRECISIONS = ("bf16", "fp8", "fp8-block", "mxfp8", "nvfp4")
OPTIMIZERS = ("adam", "muon", "sgd")
RECOMPUTE = ("none", "attention", "selective", "full")
MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe", "shared_experts")
"""Megatron-LM's names of what ``--recompute-modules`` computes again."""
FROM_START = {"mlp", "moe", "shared_experts"}  # modules whose every part is computed again
OFFLOAD = ("none", "activations", "optimizer")
"""What may wait in the host's memory; ``activations:N`` are those of the first N layers."""
IN_BF16 = ("attention", "latent", "mtp")  # modules that may stay in bfloat16, beside the last N layers


@dataclass(frozen=True)
class Parallel:
    """Sizes of a step's parallelism.

    Ranks are numbered as Megatron-LM does: tensor parallel ranks are neighbours, then context parallel,
    then data parallel, then pipeline stages. Experts are spread over the tensor, context and data parallel
    ranks of a stage together, each whole on its rank.
    """

    ranks: int  # devices, one rank each
    batch: int  # sequences of a step, of all ranks
    length: int  # tokens of a sequence
    micro_batch: int = 1  # sequences of a micro-batch
    tp: int = 1  # tensor parallel size, with sequence parallel norms
    pp: int = 1  # pipeline stages
    vp: int = 1  # chunks of layers a stage (virtual stages)
    cp: int = 1  # context parallel size
    ep: int = 1  # expert parallel size
    fsdp: int = 0  # ranks that share weights, gathered for each layer; 0 or 1 for none
    zero: int = 1  # 0: optimizer states whole on each rank; 1: split; 2: gradients too; 3: weights too
    schedule: str = "1f1b"  # order of a pipeline's forward and backward passes
    precision: str = "bf16"  # type of the layers' multiplies
    # Activations computed again: none, attention, selective, full, every:N, or modules of `MODULES` with
    # commas between them.
    recompute: str = "none"
    optimizer: str = "adam"  # adam, muon or sgd
    offload: str = "none"  # what waits in the host's memory: none, activations, or the optimizer's states
    keep_bf16: str = ""  # modules of `IN_BF16`, and `last:N` layers, that stay in bfloat16, with commas
    chunk_layers: int = 0  # layers of each chunk but the last, which has the rest; 0 for an even split

    def __post_init__(self) -> None:
        """Refuse sizes that do not divide; ProblemError names the sizes, and those that would work."""
        check_sizes({x.name: getattr(self, x.name) for x in fields(self)})
        for name, values in (
            ("schedule", SCHEDULES),
            ("precision", PRECISIONS),
            ("optimizer", OPTIMIZERS),
            ("offload", (*OFFLOAD, *((self.offload,) if self.offloaded_layers else ()))),
        ):
            if (value := getattr(self, name)) not in values:
                raise ProblemError(f"--{name} {value!r} is unknown; {did_you_mean(value, values)}")
        if self.recompute not in RECOMPUTE and not self.every and not self.again <= set(MODULES):
            raise ProblemError(
                f"--recompute {self.recompute!r} is unknown; choose from {', '.join(RECOMPUTE)}, every:N, "
                f"or modules: {', '.join(MODULES)}"
            )
        unknown = self.kept_bf16 - set(IN_BF16)
        if unknown and (len(unknown) > 1 or not self.last_bf16):
            raise ProblemError(
                f"--keep-bf16 {self.keep_bf16!r} is unknown; choose from {', '.join(IN_BF16)}, last:N"
            )
        if self.zero > 3:
            raise ProblemError(f"--zero {self.zero} is unknown; choose from 0, 1, 2, 3")
        each = self.tp * self.cp * self.pp
        if self.ranks % each:
            raise ProblemError(
                f"{self.ranks} ranks cannot be split into TP {self.tp} x CP {self.cp} x PP {self.pp}; "
                f"take a multiple of {each}"
            )
        if self.stage_ranks % self.ep:
            raise ProblemError(
                f"--ep {self.ep} does not divide the {self.stage_ranks} ranks of a pipeline stage; "
                f"choose from {', '.join(map(str, divisors(self.stage_ranks, self.stage_ranks)))}"
            )
        if self.batch % (self.micro_batch * self.dp):
            raise ProblemError(
                f"a batch of {self.batch} sequences cannot be split over {self.dp} data parallel ranks in "
                f"micro-batches of {self.micro_batch}; take a multiple of {self.micro_batch * self.dp}"
            )
        if self.length % self.cp:
            raise ProblemError(f"sequences of {self.length} tokens cannot be split over CP {self.cp}")
        if self.fsdp == 1 and self.zero == 3:
            raise ProblemError(
                "--zero 3 splits weights over all data parallel ranks, and --fsdp 1 over none; leave one out"
            )
        if self.fsdp > 1 and (self.dp * self.cp) % self.fsdp:
            raise ProblemError(
                f"--fsdp {self.fsdp} does not divide the {self.dp * self.cp} ranks with the same weights; "
                f"choose from {', '.join(map(str, divisors(self.dp * self.cp, self.dp * self.cp)))}"
            )
        if self.vp > 1 and self.pp == 1:
            raise ProblemError(f"--vp {self.vp} splits pipeline stages; give --pp of at least 2")
        if self.schedule == "interleaved" and self.pp > 1 and self.micro_batches % self.pp:
            raise ProblemError(
                f"interleaved stages take micro-batches by {self.pp}, the pipeline's stages; "
                f"{self.micro_batches} are no multiple: change --batch or --micro-batch"
            )

    @property
    def dp(self) -> int:
        """Data parallel size."""
        return self.ranks // (self.tp * self.cp * self.pp)

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.cp * self.dp

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a data parallel rank in a step."""
        return self.batch // (self.dp * self.micro_batch)

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch at a rank, before tensor parallel norms split them."""
        return self.micro_batch * self.length // self.cp

    @property
    def chunks(self) -> int:
        """Chunks of layers of the whole pipeline."""
        return self.pp * FIXED_CHUNKS.get(self.schedule, self.vp)

    @property
    def every(self) -> int:
        """N of ``every:N``: each N-th layer is computed again in full; 0 if that is not asked."""
        return _number(self.recompute, "every")

    @property
    def again(self) -> frozenset[str]:
        """Modules that are computed again, where these were named."""
        return frozenset(() if self.recompute in RECOMPUTE or self.every else self.recompute.split(","))

    @cached_property
    def kept_bf16(self) -> frozenset[str]:
        """Modules and last layers that stay in bfloat16."""
        return frozenset(self.keep_bf16.split(",")) - {""}

    @property
    def offloaded_layers(self) -> int:
        """Layers, from the first, whose activations wait in the host's memory."""
        return 2**31 if self.offload == "activations" else _number(self.offload, "activations")

    @cached_property
    def last_bf16(self) -> int:
        """N of ``last:N``: as many layers at the end stay in bfloat16."""
        return max((_number(x, "last") for x in self.kept_bf16), default=0)

    @property
    def shards(self) -> int:
        """Ranks over which a layer's weights are split and gathered; 1 for none."""
        if self.fsdp > 1:
            return self.fsdp
        return self.dp * self.cp if self.zero == 3 else 1

    @cached_property
    def context_group(self) -> tuple[int, ...]:
        """The first group of context parallel ranks."""
        return tuple(self.tp * i for i in range(self.cp))

    @cached_property
    def data_group(self) -> tuple[int, ...]:
        """The first group of ranks that hold the same weights outside experts."""
        return tuple(self.tp * i for i in range(self.cp * self.dp))

    @cached_property
    def expert_data_group(self) -> tuple[int, ...]:
        """The first group of ranks that hold the same experts."""
        return tuple(range(0, self.stage_ranks, self.ep))

    @property
    def is_fsdp(self) -> bool:
        """Whether data parallel ranks split gradients or weights, as Megatron-FSDP does."""
        return self.shards > 1 or self.zero > 1

    def keeps_stored(self, stack: Stack) -> bool:
        """Whether ranks keep and gather weights in few bits alone, without a copy in bfloat16."""
        # --fp8-param-gather needs a distributed optimizer on the device, which casts its float32 weights.
        # Source: megatron/training/arguments.py (validate_args).
        splits = self.zero > 0 or self.shards > 1
        return self.precision in stack.stored_weights and splits and self.offload != "optimizer"

    def words(self) -> str:
        """Name of the configuration: ``tp4 pp8 vp5 dp2, 128 micro-batches of 1``."""
        sizes = ("tp", "pp", "vp", "cp", "ep", "fsdp", "dp")
        named = [f"{x}{getattr(self, x)}" for x in sizes if getattr(self, x) > 1]
        count = self.micro_batches
        return (
            f"{' '.join(named) or 'one rank'}, {count} micro-batch{'es' * (count > 1)} of {self.micro_batch}"
        )


def check_sizes(sizes: Mapping[str, Any]) -> None:
    """Refuse sizes wrong by themselves: below the least, or chunks that a schedule does not have.

    Args:
        sizes: Fields of :class:`Parallel`, not all of them.
    """
    for name, value in sizes.items():
        low = 0 if name in ("fsdp", "zero", "chunk_layers") else 1
        if isinstance(value, int) and value < low:
            raise ProblemError(f"--{name.replace('_', '-')} {value} must be at least {low}")
    schedule, virtual = sizes.get("schedule", ""), sizes.get("vp", 1)
    count = FIXED_CHUNKS.get(schedule, virtual)
    if virtual not in (1, count) and sizes.get("pp") != 1:
        raise ProblemError(
            f"--schedule {schedule} has {count} chunk{'s' * (count > 1)} of layers a stage, not {virtual}; "
            "leave out --vp, or take interleaved"
        )


def _number(text: str, name: str) -> int:
    """Return N of ``name:N``, 0 for any other text."""
    head, _, number = text.partition(":")
    return whole_in(number, 1, 2**31) or 0 if head == name else 0


def divisors(number: int, largest: int) -> Iterator[int]:
    """Yield the divisors of a number up to a largest one."""
    return (x for x in range(1, min(number, largest) + 1) if number % x == 0)
