"""The machine file: its tables and keys."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from umm.arrays import PASS_KINDS
from umm.machines.cluster import ClusterFabric, Network, flat_kinds
from umm.machines.curves import Efficiency
from umm.machines.declaring import BeforeValidator, Field, model_validator
from umm.machines.decode import Decode
from umm.machines.engines import Chosen, Engine, VersionedLibrary
from umm.machines.exchange import Exchange
from umm.machines.experts import Experts
from umm.machines.fused import Attention, Grouped
from umm.machines.kernels import KernelNumbers
from umm.machines.kind import Kind
from umm.machines.library import Library
from umm.machines.load import LoadTable
from umm.machines.numbers import DeviceNumbers
from umm.machines.prefill import Prefill
from umm.machines.quantities import (
    Bandwidth,
    Count,
    Loss,
    Name,
    Number,
    Rate,
    Rated,
    Seconds,
    Share,
    Source,
    Table,
    Uncertainty,
    declared,
    increasing,
    noted,
    numbers_of,
    table_of,
    twice,
)
from umm.units import parse_bandwidth, parse_bytes


class Interference(Table):
    """The share of a rank's own GEMM rate lost while one of its transfers runs, by kind.

    That of a get is that of puts and broadcasts too; that of accumulates and reduces may follow from
    `accumulate_blocks` instead.
    """

    get: Loss
    accumulate: Loss | None = None
    reduce: Loss | None = None


class Blocks(Table):
    """The thread blocks of an accumulate kernel, and those of the device that multiplies run on."""

    count: Count
    units: Count
    rate: Bandwidth

    @model_validator(mode="after")
    def _some_are_left(self) -> "Blocks":
        if self.count.value >= self.units.value:
            raise ValueError(
                f"{self.count.value} blocks of {self.units.value} leave none to multiply; name fewer"
            )
        return self


class Apart(Number):
    """A number of one device, link or card: a factor, a quantity, or that a card is down."""

    value: str


class LocalWork(Number):
    """Whether local accumulates and copies run beside GEMMs, or on the same engine and so slow each other."""

    value: Literal["beside", "engine"]


class RulesOfDevices(Table):
    """Keys of devices beside the numbers of :class:`umm.machines.numbers.DeviceNumbers`, and their rules."""

    count: Count = noted("devices of all nodes together")
    names: list[Name] | None = noted("a short name for each", None)
    rank: Name | None = noted(
        "what a rank is: a core, a socket or a node, and with how many BLAS threads", None
    )
    default_ranks: Count | None = noted("ranks of a problem that does not say", None)
    interference: Interference = noted("share of a rank's own GEMM rate lost while its transfer runs")
    peak: Annotated[dict[Rated, Rate], Field(min_length=1)] = noted(
        "of one device, by type. Data sheet: dense, without sparsity"
    )
    kernels: KernelNumbers | None = noted(
        "a library's GEMM kernels, for all types: what they make of a shape", None
    )
    efficiency: list[Efficiency] = noted(
        "share of the peak that large GEMMs reach: measure one, 8K cubed", []
    )
    attention: list[Attention] = noted(
        "share of the peak that kernels of fused attention reach, by size of a head", []
    )
    grouped: list[Grouped] = noted("kernels that multiply rows of many experts with their weights", [])
    prefill: list[Prefill] = noted("an engine's attention of prompts", [])
    decode: list[Decode] = noted("an engine's attention of single tokens", [])
    experts: list[Experts] = noted("an engine's layers of experts", [])
    exchange: list[Exchange] = noted("an engine's kernels that send tokens to experts and back", [])
    passes: list["PassRates"] = noted("a CPU: what NumPy's passes over arrays reach, for maps", [])
    means: dict[Name, "Means"] = noted("ways to move bytes; collectives use the one named collective", {})
    accumulate_blocks: Blocks | None = noted(
        "an accumulate kernel: its blocks, the device's units (SMs), a block's rate", None
    )
    local_work: LocalWork | None = noted(
        '"engine" if local accumulates and copies share the GEMMs\' engine, else "beside"', None
    )

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of a device by the attributes of a Machine, defaults where the file states none."""
        return {x.name: x.default for x in declared(DeviceNumbers)} | numbers_of(self, DeviceNumbers)

    @model_validator(mode="after")
    def _accumulates_disturb(self) -> "RulesOfDevices":
        stated = self.interference.accumulate, self.interference.reduce
        if self.accumulate_blocks is None and None in stated:
            raise ValueError(
                "interference must say what an accumulate and a reduce take, unless accumulate_blocks does"
            )
        if self.accumulate_blocks is not None and stated != (None, None):
            raise ValueError(
                "interference.accumulate and .reduce follow from accumulate_blocks; keep one of the two"
            )
        if self.numbers["copy_share"] >= 1:
            raise ValueError("copy_share of 1 leaves multiplies no memory bandwidth; it must be less")
        return self

    @model_validator(mode="after")
    def _names_fit(self) -> "RulesOfDevices":
        if self.names is not None:
            name = twice(self.names)
            if name is not None:
                raise ValueError(f"names has {name!r} twice; give every device a name of its own")
            if len(self.names) != self.count.value:
                raise ValueError(f"names must hold {self.count.value} different names, one per device")
        most = self.count.value * self.numbers["ranks_per_device"]
        if self.default_ranks is not None and self.default_ranks.value > most:
            raise ValueError(f"default_ranks is {self.default_ranks.value}, but the devices hold {most}")
        dtype = twice(table.dtype for table in self.efficiency)
        if dtype is not None:
            raise ValueError(f"efficiency has {dtype} twice; keep one")
        if "tf32" in self.peak and "float32" not in self.peak:
            raise ValueError("peak has tf32, a way to multiply float32, but no float32; state both")
        return self


if TYPE_CHECKING:
    Devices = RulesOfDevices
else:
    Devices = table_of("Devices", RulesOfDevices, DeviceNumbers)


def sizes_in(texts: list[str]) -> list[int]:
    """Return the bytes of measured sizes; a ValueError if they do not increase, or one has no bytes."""
    sizes = increasing([parse_bytes(text) for text in texts])
    if sizes[0] < 1:
        raise ValueError(f"{texts[0]} has no bytes to move; leave it out")
    return sizes


class Sizes(Table):
    """The bandwidth one message reaches alone, by its size, on a link of bandwidth `link`."""

    source: Source
    link: Bandwidth
    sizes: Annotated[list[str], Field(min_length=1)]
    bandwidth: Annotated[list[str], Field(min_length=1)]
    cached: Bandwidth | None = None
    cached_by_size: list[str] | None = None
    uncertainty: Uncertainty = None
    measured: bool | None = None
    assumed: bool = False

    @model_validator(mode="after")
    def _rows_fit(self) -> "Sizes":
        sizes_in(self.sizes)
        if len(self.sizes) != len(self.bandwidth):
            raise ValueError("sizes and bandwidth must be equally long")
        again = self.cached_by_size or []
        if again and len(self.sizes) != len(again):
            raise ValueError("sizes and cached_by_size must be equally long")
        if again and self.cached:
            raise ValueError("cached and cached_by_size say the same; keep one of the two")
        rates = [*self.bandwidth, *again, *([self.cached.value] if self.cached else [])]
        if min(parse_bandwidth(text) for text in rates) <= 0:
            raise ValueError("every bandwidth must be more than zero")
        most = max(rates, key=parse_bandwidth)
        unsure = 1.0 + (self.uncertainty or 0.0) + (self.link.uncertainty or 0.0)
        if parse_bandwidth(most) > self.link.number * unsure:
            raise ValueError(
                f"{most} is more than the link's own {self.link.value}; no message beats its link"
            )
        return self


class PassRates(Table):
    """Bytes/s of arrays that NumPy goes over, all cores at once, by size and kind of pass."""

    dtype: Rated
    source: Source
    sizes: Annotated[list[str], Field(min_length=1)]
    add: list[str]
    exp: list[str]
    where: list[str]
    power: list[str]
    uncertainty: Uncertainty = None

    @model_validator(mode="after")
    def _rows_fit(self) -> "PassRates":
        sizes_in(self.sizes)
        for kind in PASS_KINDS:
            rates = getattr(self, kind)
            if len(rates) != len(self.sizes):
                raise ValueError(f"sizes and {kind} must be equally long")
            if min(map(parse_bandwidth, rates)) <= 0:
                raise ValueError(f"every bandwidth of {kind} must be more than zero")
        return self


class Means(Table):
    """A way to move bytes, such as by a copy engine or by a kernel that takes thread blocks."""

    interference: Loss
    efficiency: Share | None = None
    overhead: Seconds | None = None
    message_sizes: Sizes | None = None


def kinds() -> tuple[type[Kind], ...]:
    """Return all kinds of fabric, simplest first: those of one level, then nodes of such."""
    return (*flat_kinds(), ClusterFabric)


if TYPE_CHECKING:
    AnyFabric = Kind
else:
    AnyFabric = Annotated[Union[kinds()], Field(discriminator="kind")]  # noqa: UP007, kinds are found, not known


def _number(value: Any) -> Any:
    if isinstance(value, bool):  # which equals 1
        raise ValueError(f"input should be 1, not {value}")
    return value


class MachineFile(Table):
    """A complete machine file; ``network`` would join several nodes of a one-node machine.

    ``apart`` has the numbers of unequal devices, see :mod:`umm.machines.unequal`. ``engine`` names the engine
    of the kernels' numbers, ``engines`` and ``libraries`` have alternatives, see
    :mod:`umm.machines.engines`.
    """

    schema_version: Annotated[Literal[1], BeforeValidator(_number)] = noted(
        "umm machine check FILE lists all that is missing or wrong; docs/guides/your-machine.md",
        alias="schema",
    )
    description: Source
    devices: Devices
    fabric: AnyFabric = noted(
        "bandwidths are one direction; a data sheet that says 600 GB/s of NVLink counts both"
    )
    message_sizes: Sizes | None = noted("what one message alone reaches on a link, by its size", None)
    network: Network | None = noted(
        "what would join several nodes: their cards, and the leaf switches these hang on", None
    )
    library: Library | None = None
    load: LoadTable | None = noted("a device under the load of a training step, for umm step", None)
    apart: dict[str, Apart] = Field(default_factory=dict)
    engine: Chosen | None = None
    engines: dict[Name, Engine] = Field(default_factory=dict)
    libraries: dict[Name, VersionedLibrary] = Field(default_factory=dict)
