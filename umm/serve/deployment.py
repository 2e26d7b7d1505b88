"""How a model is served: ranks, their split, the mix of requests."""

from dataclasses import dataclass, fields

from umm.errors import ProblemError, did_you_mean

PRECISIONS = ("bf16", "fp8", "fp8-block", "nvfp4", "int4")


@dataclass(frozen=True)
class Deployment:
    """Ranks that serve requests of one length at a steady concurrency."""

    input: int  # tokens of a prompt
    output: int  # tokens of an answer
    concurrency: int  # requests at a time, of all ranks
    tp: int = 1  # ranks that share the heads of attention, and the rest of a dense layer
    attention_dp: int = 1  # groups of them, each with its own requests
    moe_tp: int = 1  # ranks that share each expert
    ep: int = 1  # groups of experts
    precision: str = "bf16"  # type of the weights' multiplies
    cache_bits: int = 16  # bits of an element of the cache
    chunk: int | None = None  # tokens of prompts in one batch with those decoded; None if prompts are apart

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be; ProblemError names the size and a remedy."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and value < 1:
                raise ProblemError(f"--{field.name.replace('_', '-')} {value} must be at least 1")
        if self.output == 1:  # the first token is the prompt's
            raise ProblemError("--output 1 has no further token to time; use --output 2 or more")
        if self.precision not in PRECISIONS:
            raise ProblemError(
                f"--precision {self.precision!r} is unknown; {did_you_mean(self.precision, PRECISIONS)}"
            )
        if self.moe_tp * self.ep not in (1, self.ranks):
            raise ProblemError(
                f"--moe-tp {self.moe_tp} x --ep {self.ep} must be the {self.ranks} ranks of "
                f"--tp {self.tp} x --attention-dp {self.attention_dp}"
            )

    @property
    def ranks(self) -> int:
        """Ranks of the deployment."""
        return self.tp * self.attention_dp

    @property
    def sequences(self) -> float:
        """Requests of one attention group."""
        return max(1.0, self.concurrency / self.attention_dp)

    @property
    def experts_split(self) -> tuple[int, int]:
        """Ranks that share each expert, and groups of experts; all share each where nothing else is asked."""
        return (self.moe_tp, self.ep) if self.moe_tp * self.ep > 1 else (self.ranks, 1)
