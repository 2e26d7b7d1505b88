"""How runs differ from a prediction: draws of slow ranks and jitter, the same for whatever is predicted."""

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from umm.arrays import Floats
from umm.errors import InputError
from umm.files import read_text, shown
from umm.numbers import real_in, share_in, whole_in
from umm.units import counted

RESOURCES = ("gemm", "link", "launch")
LAWS = ("lognormal", "normal", "delay")
MAX_TIMES = 2**22  # bytes of a file of measured seconds
SLOWEST = 0.05  # least factor of a normal draw, which could otherwise be negative


@dataclass(frozen=True)
class Noise:
    """How runs differ from the prediction.

    A draw has one factor for each rank and resource. The factors depend on the seed and the number of ranks
    alone, so all candidates meet the same days: common random numbers, which cancel in a comparison.

    InputError for shares and counts that mean nothing.
    """

    gemm: float = 0.0  # standard deviation of a rank's local work, as a share
    link: float = 0.0  # that of the time in which a rank's outgoing bytes cross a link
    launch: float = 0.0  # that of what a transfer waits before its bytes move
    # `lognormal` with median 1, `normal` with mean 1, or `delay`, as far above 1 as a normal one is from it:
    # a rank is late or on time, never early, as in `delays`.
    law: str = "lognormal"
    slow: int = 0  # how many ranks are slow in every draw; which ones is drawn
    rate: float = 1.0  # the rate of their local work, as a share of the others'
    draws: int = 200  # how many draws
    seed: int = 0  # of the random numbers
    # By resource what it took in real runs, as shares of their median; draws of it are picked from these,
    # whatever its share and the law.
    measured: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def __post_init__(self) -> None:
        for name in RESOURCES:
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise InputError(f"a jitter of {100 * share:g} % is not possible; write 0% to 100%")
        if not 0 < self.rate <= 1:
            raise InputError(f"a straggler at rate {self.rate:g} is not possible; write one like 1:0.8")
        if self.slow < 0 or self.draws < 1:
            raise InputError("stragglers are counted from 0, draws from 1")

    @classmethod
    def of(cls, jitter: str | None, straggler: str | None, **more: Any) -> "Noise":
        """Return the noise of two texts: ``3%`` or ``gemm=2%,link=5%,normal``, and ``1:0.8``.

        InputError for another text.

        >>> noise = Noise.of("gemm=2%,link=5%,normal", "1:0.8")
        >>> noise.gemm, noise.link, noise.launch, noise.law, noise.slow, noise.rate
        (0.02, 0.05, 0.0, 'normal', 1, 0.8)
        """
        given: dict[str, Any] = dict(more)
        for part in (jitter or "").split(",") if jitter is not None else ():
            word = part.strip()
            if word in LAWS:
                given["law"] = word
                continue
            name, equals, amount = word.partition("=")
            share = share_in(amount if equals else name)
            names = [name] if equals else RESOURCES
            if share is None and name in RESOURCES and amount:
                given["measured"] = (*given.get("measured", ()), (name, _measured(Path(amount))))
            elif share is None or not set(names) <= set(RESOURCES):
                raise InputError(
                    f"jitter {word!r} is unknown; write 3%, or gemm=2%,link=5%,launch=10%, and normal, "
                    "lognormal or delay; or gemm=FILE, of measured seconds"
                )
            else:
                given |= dict.fromkeys(names, share)
        if straggler is not None:
            count, _, rate = (part.strip() for part in straggler.partition(":"))
            slow, share = whole_in(count, below=10**6), share_in(rate)
            if slow is None or share is None:
                raise InputError(f"straggler {straggler!r} is unknown; write 1:0.8, one rank at 80 %")
            given |= {"slow": slow, "rate": share}
        return cls(**given)

    @classmethod
    def delays(cls, text: str, **more: Any) -> "Noise":
        """Return delays that can be put into real runs: jitter of the law ``delay``, slow ranks, or both.

        InputError for another text, or a law by which a rank is sometimes early.

        >>> print(Noise.delays("gemm=30%,1:0.8", draws=20))
        30 % gemm jitter, 1 rank at 80 %, 20 draws
        """
        parts = [part.strip() for part in text.split(",")]
        # A colon marks a straggler (count:rate); everything else is jitter.
        slow = [part for part in parts if ":" in part]
        if len(slow) > 1 or set(parts) & {"lognormal", "normal"}:
            raise InputError(
                f"delay {text!r} cannot be put into a run; write 30%, gemm=30%,link=10%, 1:0.8 (one rank at "
                "80 %), or both: 5%,1:0.8; ranks are late or on time, never early"
            )
        jitter = [part for part in parts if ":" not in part]
        given = cls.of(",".join([*jitter, "delay"]), slow[0] if slow else None, **more)
        if given.measured:
            raise InputError("measured times are sometimes early, which a delay cannot be; write 30% instead")
        return given

    def by_run(self, ranks: int) -> Floats:
        """Return the factors of some ranks by draw, the same whatever is computed, shape (draws, 3, ranks).

        Of durations of local work, bytes and launches. InputError if more ranks are slow than there are.
        """
        return _drawn(self, ranks)

    def __str__(self) -> str:
        shares = {name: getattr(self, name) for name in RESOURCES}
        parts = []
        if len(set(shares.values())) == 1:
            parts += [f"{100 * self.gemm:g} % jitter"] if self.gemm else []
        else:
            parts += [f"{100 * x:g} % {name} jitter" for name, x in shares.items() if x]
        parts += [f"{name} as in {counted(len(values), 'run')}" for name, values in self.measured]
        if self.slow:
            parts.append(f"{counted(self.slow, 'rank')} at {100 * self.rate:g} %")
        return f"{', '.join(parts) or 'no noise'}, {counted(self.draws, 'draw')}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        given = {x.name: getattr(self, x.name) for x in fields(self) if x.name != "measured"}
        return given | ({"measured": dict(self.measured)} if self.measured else {})


@lru_cache(maxsize=16)
def _drawn(noise: Noise, ranks: int) -> Floats:
    if noise.slow > ranks:
        raise InputError(f"{noise.slow} stragglers are more than the {ranks} ranks; ask for at most {ranks}")
    shape = (noise.draws, ranks)
    drawn = []
    lists = dict(noise.measured)
    for number, name in enumerate(RESOURCES):  # a stream each: jitter of one leaves the others' draws alone
        stream = np.random.default_rng([noise.seed, number])
        if name in lists:
            drawn.append(stream.choice(np.array(lists[name]), shape))
            continue
        # Drawn whatever the share: the same normal numbers scale with it,
        # so that a sweep of shares is smooth.
        normal = stream.standard_normal(shape)
        share = getattr(noise, name)
        if noise.law == "delay":
            normal = np.abs(normal)
        linear = np.maximum(1 + share * normal, SLOWEST)
        drawn.append(np.exp(share * normal) if noise.law == "lognormal" else linear)
    if noise.slow:
        # Sorting random numbers draws without replacement in each row, and
        # more slow ranks keep those of fewer.
        order = np.random.default_rng([noise.seed, len(RESOURCES)]).random(shape).argsort(axis=1)
        slow = np.zeros(shape, dtype=bool)
        np.put_along_axis(slow, order[:, : noise.slow], True, axis=1)
        drawn[0] = np.where(slow, drawn[0] / noise.rate, drawn[0])
    return np.stack(drawn, axis=1)


def _measured(path: Path) -> tuple[float, ...]:
    """Return the numbers of a file, such as seconds of equal runs, as shares of their median."""
    try:
        words = read_text(path, MAX_TIMES).replace(",", " ").split()
    except InputError as error:
        raise InputError(f"jitter has no such file: {error}") from None
    values = np.array([real_in(word) or 0.0 for word in words])
    if len(values) < 2 or not values.min() > 0:
        raise InputError(f"{shown(str(path))} has no two times above 0; write one a line, of equal runs")
    return tuple((values / np.median(values)).tolist())
