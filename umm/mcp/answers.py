"""Types of the tools' answers: a command's JSON, and each of its numbers that has a range."""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

Range = tuple[float, float] | None
"""The least and the most that a number can be by the uncertainties of the machine's numbers."""


class Record(BaseModel):
    """An object of a command's JSON: the keys that its schema names, and others.

    Keys may be missing: a search, several sizes or --peers have other ones.
    """

    model_config = ConfigDict(extra="allow")


R = TypeVar("R", bound=Record)


class Quantity(Record):
    """A number with its range and source."""

    path: str  # where it stands in the result
    value: float
    unit: str  # s for seconds
    low: float  # the least that it can be
    high: float  # the most
    source: str  # the machine, and the software that is assumed


class Prediction(Record):
    """A prediction of ``simulate``, times in seconds."""

    makespan_s: float | None = None
    makespan_range_s: Range = None
    fraction_of_peak: float | None = None
    breakdown: dict[str, float | None] | None = None
    memory_bytes: int | None = None
    bound_by: str | None = None
    verdict: str | None = None
    advice: Any = Field(default=None, description="A better choice, if one was found.")
    fits_memory: bool | None = None


class Simulated(Record):
    """Answer of ``simulate``."""

    machine: str | None = None
    predicted: Prediction | None = None
    problem: dict[str, Any] | None = None
    scaling: dict[str, Any] | None = Field(default=None, description="Of several nodes or ranks.")


class Choice(Record):
    """A choice of layouts, priced."""

    layouts: dict[str, str] | None = Field(default=None, description="Of a chain; of a multiply a, b and c.")
    a: str | None = None
    b: str | None = None
    c: str | None = None
    makespan_s: float | None = None
    makespan_range_s: Range = None
    fraction_of_peak: float | None = None
    memory_bytes: int | None = None


class Searched(Record):
    """Answer of ``search``."""

    machine: str | None = None
    proven: bool | None = Field(default=None, description="Whether nothing in the space can be faster.")
    top: list[Choice] = Field(default=[], description="The fastest first.")
    frontier: list[Choice] = Field(default=[], description="Time against memory, of one multiply.")


class Contender(Record):
    """A row of ``peers``."""

    algorithm: str | None = None
    makespan_s: float | None = None
    makespan_range_s: Range = None
    memory_bytes: int | None = None
    fits: bool | None = None
    command: str | None = Field(default=None, description="Simulates the row.")


class Compared(Record):
    """Answer of ``peers``."""

    machine: str | None = None
    rows: list[Contender] = []
    verdict: str | None = None


class Step(Record):
    """A training step; of a search the fastest, with others in ``top``."""

    step_s: float | None = None
    range_s: Range = None
    tokens_per_s_per_gpu: float | None = None
    mfu: float | None = None
    memory_bytes: float | None = None
    breakdown: dict[str, float | None] | None = None
    configuration: dict[str, Any] | None = None
    assumptions: dict[str, str] | None = Field(default=None, description="Sources of what is assumed.")


class Served(Record):
    """Answer of ``serve``: seconds to the first token, and for each further one."""

    ttft_s: float | None = None
    ttft_range_s: Range = None
    tpot_s: float | None = None
    range_s: Range = Field(default=None, description="Of tpot_s.")
    tokens_per_s_per_gpu: float | None = None
    memory_bytes: float | None = None


class Fact(Record):
    """A number of a machine's file."""

    key: str
    value: str
    source: str = Field(description="A document, a measurement, or why it is assumed.")
    range: Any = Field(description="As the file gives it; null if its source gives none.")
    assumed: bool
    basis: str = Field(description="published, measured, fitted or assumed.")


class Machine(Record):
    """A machine: bytes, bytes/s, flop/s."""

    name: str
    description: str
    devices: int
    memory_bytes: float
    memory_bandwidth: float
    peaks: dict[str, float]
    facts: list[Fact] = Field(default=[], description="Each number with its source.")


class Shown(Record):
    """Answer of ``machine_show``."""

    machine: Machine


class Listed(Record):
    """Answer of ``machine_list``."""

    machines: list[Machine]


class Buffer(Record):
    """A collective of one size: bytes, seconds, bytes/s."""

    nbytes: int
    algorithm: str
    seconds: float
    algbw: float
    busbw: float
    closed_form_s: float | None = None


class Collective(Record):
    """Answer of ``collective``."""

    machine: str
    ranks: int
    rows: list[Buffer]


class Way(Record):
    """A way to multiply beside a collective."""

    name: str
    seconds: float
    exposed_s: float
    note: str


class Fused(Record):
    """Answer of ``fuse``."""

    rows: list[Way]
    verdict: str


class Placement(Record):
    """Costs of a placement of Muon's weights."""

    placement: str
    seconds: float
    memory_bytes: int
    collectives: int


class Placed(Record):
    """Answer of ``muon``."""

    rows: list[Placement]
    best: dict[str, str] = Field(description="Placement of each weight.")
    loads_s: list[float] = Field(description="Compute of each rank, in seconds.")
    proven: bool
    gap: float


class Model(Record):
    """Answer of ``model``."""

    model: str
    parameters: int
    active_parameters: int
    layers: list[dict[str, Any]]
    bytes: int
    cache_bytes_per_token: float


class Models(Record):
    """Answer of ``models``."""

    models: list[Model]


class WhatIf(Record):
    """Answer of ``what_if``."""

    moves: list[dict[str, Any]] | None = Field(
        default=None, description="Seconds with each number of the machine halved, and raised."
    )
    flips: list[dict[str, Any]] | None = Field(default=None, description="Where another choice is better.")
    explanations: list[dict[str, Any]] | None = Field(
        default=None, description="With measured: the value of each number that explains it."
    )


RECORDS: dict[str, type[Record]] = {
    "simulate": Simulated, "search": Searched, "peers": Compared, "step": Step, "serve": Served,
    "machine_show": Shown, "machine_list": Listed, "collective": Collective, "fuse": Fused, "muon": Placed,
    "model": Model, "models": Models, "what_if": WhatIf,
}  # fmt: skip
"""What --json has, by tool; of one that is not listed any object."""


class Answer(BaseModel, Generic[R]):
    """Answer of a tool."""

    command: str  # what gives the same in a terminal
    result: R | None  # The command's JSON; None where text was asked for.
    text: str | None  # a program, flags, a file or help, where asked for
    numbers: list[Quantity]  # the result's numbers that have a range
    notes: list[str]  # remarks on the result, such as what is not modelled


def schema(tool: str) -> dict[str, Any]:
    """Return the JSON schema of a tool's answer."""
    made = cast(type[BaseModel], Answer[RECORDS.get(tool, Record)])  # type: ignore[misc]
    return made.model_json_schema()


def numbers(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of a command's JSON that have a range, each as a :class:`Quantity`."""
    assumed = ", ".join(f"{key}: {text}" for key, text in (record.get("assumptions") or {}).items())
    source = f"predicted from the numbers of machine {record.get('machine')}"
    source += f" ({assumed})" if assumed else ""
    return [x | {"source": source} for x in _ranged(record, "")]


def _ranged(value: Any, path: str) -> Iterator[dict[str, Any]]:
    """Yield the seconds that stand beside their range, as ``makespan_s`` beside ``makespan_range_s``."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _ranged(item, f"{path}[{i}]")
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if key.endswith("range_s") and item:
            stem = key.removesuffix("range_s")
            # A step's or a deployment's range stands alone.
            for name in (f"{stem}s",) if stem else ("step_s", "tpot_s"):
                if isinstance(value.get(name), int | float):
                    where, ends = f"{path}.{name}".lstrip("."), {"low": item[0], "high": item[1]}
                    yield {"path": where, "value": value[name], "unit": "s", **ends}
        yield from _ranged(item, f"{path}.{key}")
