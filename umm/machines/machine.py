"""The Machine: the speed of a device, the links, and the route between two devices."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from umm.arrays import Floats, Ints
from umm.dtypes import BLOCK, COMPLEX, expanded, factors, has_blocks, rated, weight_bytes
from umm.errors import MachineError, expect
from umm.machines.curves import EfficiencyTable, Means, MessageSizes, Passes, effective_bytes
from umm.machines.declaring import Table
from umm.machines.decode import Decode
from umm.machines.exchange import Exchange
from umm.machines.experts import Experts
from umm.machines.fabric import Fabric, listed, narrowest
from umm.machines.fused import Attention, Grouped
from umm.machines.kernels import Kernels
from umm.machines.load import Load
from umm.machines.numbers import DeviceNumbers, Fact, facts_of
from umm.machines.parts import Parts
from umm.machines.prefill import Prefill
from umm.machines.unequal import Paces
from umm.numbers import as_int
from umm.units import counted

if TYPE_CHECKING:
    from umm.machines.engines import Chosen
    from umm.machines.library import Library
    from umm.machines.serving_tables import ServingTables
    from umm.machines.tables import Tables


class Link(NamedTuple):
    """One direction of a connection: bandwidth in bytes/s, latency in seconds."""

    name: str
    bandwidth: float
    latency: float


class GemmLimits(NamedTuple):
    """The roofline of a device for one type and length of sums."""

    # Seconds of every GEMM beside its work: the launch, or the start of a kernel that is queued.
    start_s: float
    rate: float  # flop/s
    bandwidth: float  # Bytes/s of memory
    passes: int  # how often C crosses memory: written once by a library's kernel, else read and written


TF32 = ":tf32"  # behind the name of a machine that multiplies float32 so


MATRIX_TYPES = {"float8": "float8_e4m3", "float4": "float4_e2m1"}
"""Types of matrices whose numbers files and tables state by a shorter name."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Machine(DeviceNumbers):
    """A set of devices and the links between them; the same name and content is the same machine.

    Devices are equal except those that ``paces`` sets apart.

    The numbers of one device are those of :class:`DeviceNumbers`.
    """

    name: str  #: the file's name without `.toml`
    source_path: Path  #: the file
    sha: str  #: SHA-256 of the file's content, comments and order of keys aside
    description: str  #: one sentence from the file
    device_count: int
    device_names: tuple[str, ...]  #: one short name for each
    default_ranks: int  #: ranks of a problem that does not say
    #: Share of a rank's own GEMM rate lost while its transfer runs, by kind; 0 of one that is not there.
    interference: Mapping[str, float]
    peaks: Mapping[str, float]  #: flop/s per device, by dtype
    #: Measured tables by dtype; a dtype without one is assumed to reach its peak.
    efficiency: Mapping[str, EfficiencyTable]
    message_sizes: MessageSizes | None  #: measured bandwidth by message size, if the file has it
    fabric: Fabric  #: the links between devices and the routes over them
    link_names: tuple[str, ...]  #: names of all links: the fabric's, then each device's own memory
    link_bandwidth: Floats  #: bytes/s, one per link
    link_latency: Floats  #: seconds, one per link
    document: Mapping[str, Any]  #: the file as read, for `facts` and for building it with other devices
    attention: Mapping[tuple[str, bool], Attention] = field(default_factory=dict)
    grouped: Mapping[str, Grouped] = field(default_factory=dict)
    prefill: tuple[Prefill, ...] = ()  #: an engine's attention of prompts
    decode: tuple[Decode, ...] = ()  #: an engine's attention of single tokens
    experts: tuple[Experts, ...] = ()  #: an engine's layers of experts
    exchange: tuple[Exchange, ...] = ()  #: an engine's kernels that send tokens to experts and back
    #: What NumPy's passes over arrays of a type take, where the file says it.
    passes: Mapping[str, Passes] = field(default_factory=dict)
    #: Ways to move bytes that an algorithm may ask for, by name.
    means: Mapping[str, Means] = field(default_factory=dict)
    library: "Library | None" = None  #: its vendor's library of collectives, if the file says what that takes
    load: Load = field(default_factory=Load)  #: a device under the load of a training step
    #: What each device has of the peak and the memory bandwidth, where not all are alike.
    paces: Paces | None = None
    #: Whether local accumulates and copies run on the engine of GEMMs, which shares its rate among all that
    #: runs on it; else they run beside it.
    local_on_engine: bool = False
    #: What a rank is, in words: a socket, a core, with how many BLAS threads; empty if not stated.
    rank: str = ""
    #: flop/s of float32 multiplies that keep 10 bits of each factor's fraction; 0 without them.
    tf32_peak: float = 0.0
    tf32_efficiency: EfficiencyTable | None = None  #: what they reach of it
    #: The engines and libraries of the file that can be chosen instead of its own kernels.
    choices: Mapping[str, Any] = field(default_factory=dict)
    #: Engine whose kernels the numbers are of, if the file states it or one was chosen.
    engine: "Chosen | None" = None
    tables: "Tables | None" = None  #: measured multiplies that are beside the file, if there are
    serving: "ServingTables | None" = None  #: measured attention and experts that are, if there are
    #: Factor of times of shapes inside such tables: what answers change by it is the tables' share.
    inside: float = 1.0
    _routes: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, init=False)
    _numbers: str = ""

    def __post_init__(self) -> None:
        numbers = self._digest()
        if self._numbers and numbers != self._numbers:  # dataclasses.replace put in others than the file's
            sha = hashlib.sha256(f"{self.sha} {numbers}".encode()).hexdigest()
            object.__setattr__(self, "sha", sha)
        object.__setattr__(self, "_numbers", numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and (self.name, self.sha) == (other.name, other.sha)

    def __repr__(self) -> str:
        return f"Machine({self.name}: {counted(self.device_count, 'device')}, {len(self.link_names)} links)"

    def __hash__(self) -> int:
        return hash((self.name, self.sha))

    def _digest(self) -> str:
        """Return a hash of all numbers, so that a copy with another one is another machine."""
        values = [getattr(self, name) for name in _parts(Machine) if name not in _NO_NUMBERS]
        digest = hashlib.sha256()
        _plain(values, digest.update)
        return digest.hexdigest()

    @property
    def links(self) -> list[Link]:
        """All links, in the order routes count them."""
        return [
            Link(*row)
            for row in zip(
                self.link_names, self.link_bandwidth.tolist(), self.link_latency.tolist(), strict=True
            )
        ]

    @property
    def facts(self) -> list[Fact]:
        """Every number of the file with its source."""
        return facts_of(self.document)

    def multiplied(self, dtype: str) -> str:
        """Return the type that kernels multiply in: of weights that they expand the other operand's.

        Floats of 4 bits multiply as they are where the device has a rate for them.
        """
        stored = expanded(dtype)
        if not stored:
            return dtype
        return stored if stored in self.peaks else factors(dtype)[0]

    def peak(self, dtype: str) -> float:
        """Return flop/s of one device; of complex numbers multiply-adds, two flop each, with four real ones.

        MachineError if the file states no peak for this dtype.
        """
        if dtype in COMPLEX:
            return self.peak(COMPLEX[dtype]) / 4
        try:
            return self.peaks[rated(self.multiplied(dtype))]
        except KeyError:
            known = ", ".join(self.peaks)
            message = f"{self.name} states no peak for {dtype}; choose a dtype from {known}"
            raise MachineError(message) from None

    def total_peak(self, dtype: str, devices: int) -> float:
        """Return flop/s of the first so many devices together."""
        if self.paces is None:
            return self.peak(dtype) * devices
        return self.peak(dtype) * float(self.paces.peak[:devices].sum())

    def pace(self, number: str, ranks: Ints, total: int) -> Floats | float:
        """Return the share of ``peak`` or ``memory_bandwidth`` that some ranks' devices have; 1 if alike."""
        if self.paces is None:
            return 1.0
        devices = ranks if total <= self.device_count else ranks // -(-total // self.device_count)
        shares: Floats = getattr(self.paces, number)[devices]
        return shares

    @property
    def work_bandwidth(self) -> float:
        """Bytes/s of memory that GEMMs and local work have, beside the transfers of ranks on one device."""
        return self.memory_bandwidth * (1.0 - self.copy_share)

    @property
    def pass_bandwidth(self) -> float:
        """Bytes/s of memory that maps reach, and attention of few queries, which only read and write."""
        return self.work_bandwidth * self.pass_share

    def gemm_table(self, dtype: str) -> EfficiencyTable | None:
        """Return the efficiency of GEMMs of a type; scales of blocks default to that of one scale."""
        dtype = self.multiplied(dtype)
        of_blocks = self.efficiency.get(f"{rated(dtype)}:{BLOCK}") if has_blocks(dtype) else None
        return of_blocks or self.efficiency.get(rated(dtype))

    def gemm_efficiency(
        self, dtype: str, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, batch: npt.ArrayLike = 1
    ) -> Floats:
        """Return the share of peak that m×n×k GEMMs reach; 1.0, assumed, without a measured table."""
        table = self.gemm_table(dtype)
        if table is None:
            return np.ones(np.broadcast_shapes(np.shape(m), np.shape(n), np.shape(k)))
        return table.at(m, n, k, batch)

    def attention_rate(self, dtype: str, backward: bool) -> Attention:
        """Return the rate of fused attention as a share of a dtype's peak; by its GEMMs if not stated."""
        known = self.attention.get((dtype, backward))
        if known is not None:
            return known
        kernels = self.kernels(dtype)
        units = 1 if kernels is None else kernels.units
        return Attention.beside_gemms(float(self.gemm_efficiency(dtype, 4096, 4096, 4096)), backward, units)

    def most_efficiency(self, dtype: str, k: npt.ArrayLike) -> Floats:
        """Return the share of peak that no GEMM of this k, nor one cut out of it, goes above."""
        table, kernels = self.gemm_table(dtype), self.kernels(dtype)
        if table is None:
            return np.ones(np.shape(k))
        if kernels is not None and kernels.weights != 1:  # which a tile's feed holds up less
            return np.asarray(table.values.max() * kernels.most(k))
        return table.most(k)

    def kernels(self, dtype: str) -> Kernels | None:
        """Return the GEMM kernels of a type, None where the file does not describe them."""
        table = self.gemm_table(dtype)
        kernels = None if table is None else table.kernels
        if kernels is not None and expanded(dtype) and self.multiplied(dtype) != expanded(dtype):
            return kernels.expanding(weight_bytes(dtype) / kernels.itemsize)
        if kernels is None or kernels.unlike is None:
            return kernels
        a, b = factors(dtype)
        return kernels if a == b else kernels.unlike

    def law_of(self, rate: str) -> Kernels | None:
        """Return the kernels of a type as files call it, from memory with scales of blocks; None if none."""
        name, colon, block = rate.partition(":")
        name = MATRIX_TYPES.get(name, name) + colon + block
        kernels = self.kernels(name)
        return kernels if kernels is None or not block else kernels.from_memory

    def gemm_start(self, dtype: str) -> float:
        """Return the seconds of every GEMM beside its work."""
        kernels = self.kernels(dtype)
        return self.launch_s if kernels is None else kernels.start_s

    @lru_cache(maxsize=64)  # noqa: B019, machines are few
    def gemm_limits(self, dtype: str, k: float) -> GemmLimits:
        """Return bounds on any GEMM of this k, or one cut out of it, by law: its start and rates.

        MachineError if the file states no peak for this dtype.
        """
        kernels = self.kernels(dtype)
        rate = self.peak(dtype) * float(self.most_efficiency(dtype, k))
        if kernels is None:
            return GemmLimits(self.launch_s, rate, self.work_bandwidth, 2)
        return GemmLimits(kernels.start_s, rate, kernels.moves, 1)

    @property
    def in_tf32(self) -> bool:
        """Whether it is one of :meth:`with_tf32`."""
        return not self.tf32_peak and "tf32" in self.document["devices"]["peak"]

    def with_tf32(self) -> "Machine":
        """Return this machine as it multiplies float32 in TF32: faster, and with 10 bits of fraction.

        MachineError if the file states no peak for it.
        """
        if not self.tf32_peak:
            raise MachineError(f"{self.name} states no peak for tf32; choose a machine whose devices have it")
        plain, space, rest = self.name.partition(" ")
        settings = space + rest
        known = {} if self.tf32_efficiency is None else {"float32": self.tf32_efficiency}
        others = {dtype: table for dtype, table in self.efficiency.items() if dtype != "float32"}
        return replace(
            self,
            name=f"{plain}{TF32}{settings}",
            peaks={**self.peaks, "float32": self.tf32_peak},
            efficiency={**others, **known},
            tf32_peak=0.0,
        )

    def effective_bytes(
        self, payload: npt.ArrayLike, efficiency: Floats | float = 1.0, cached: npt.ArrayLike = False
    ) -> npt.NDArray[np.int64]:
        """Return the bytes to charge on the links; see :func:`umm.machines.curves.effective_bytes`.

        Args:
            efficiency: Bandwidth of this kind of transfer over that of a get.
        """
        return effective_bytes(payload, efficiency, self.message_sizes, cached)

    def route(self, src_device: int, dst_device: int) -> tuple[int, ...]:
        """Return the links from one device to another, in the order they are crossed.

        From a device to itself it is the device's own memory (half its bandwidth: read and write),
        which two ranks on one device use.

        MachineError without a path, or for two equally short ones of which the file lists neither.
        """
        if src_device == dst_device:
            return (len(self.link_names) - self.device_count + src_device,)
        if not self.fabric.searches:
            return self.fabric.route(src_device, dst_device)
        key = (src_device, dst_device)
        links = self._routes.get(key)
        if links is None:
            links = self._routes[key] = self.fabric.route(src_device, dst_device)
        return links

    def hears(self, devices: Sequence[int]) -> tuple[float, float]:
        """Return the bytes/s of the links by which a device hears from others, and their longest latency.

        Args:
            devices: The device, and the others.
        """
        first, *others = devices
        routes = [self.route(other, first) for other in others]
        width = sum(float(self.link_bandwidth[link]) for link in {route[-1] for route in routes})
        return width, max((float(self.link_latency[list(x)].sum()) for x in routes), default=0.0)

    def device_of(self, rank: int, ranks: int) -> int:
        """Return the device of a rank: its own while they last, else neighbours share.

        Source: the blocked order of MPI launchers.
        """
        return rank if ranks <= self.device_count else rank // -(-ranks // self.device_count)

    def check_alike(self, ranks: int = 0) -> None:
        """Refuse devices that differ, or fewer than some ranks, where one rank a device stands for all.

        MachineError says what predicts such machines, or how many devices are missing.
        """
        if ranks > self.device_count:
            raise MachineError(
                f"{ranks} ranks need as many devices; {self.name} has {self.device_count}: give --nodes"
            )
        if self.paces is not None:
            raise MachineError(
                f"{self.name} has devices that differ, which this does not predict; leave out --set device, "
                "or use umm simulate"
            )

    def check_ranks(self, ranks: int) -> None:
        """Refuse more ranks than the devices can share.

        MachineError for more than `device_count * ranks_per_device` ranks, or less than one.
        """
        most = self.device_count * self.ranks_per_device
        expect(as_int(ranks), int, "ranks", "a whole number")
        if not 1 <= ranks <= most:
            devices = counted(self.device_count, "device")
            each = counted(self.ranks_per_device, "rank")
            raise MachineError(
                f"{self.name} cannot hold {ranks} ranks: it has {devices} for {each} each; "
                f"choose from 1 to {most}"
            )

    def routes(self, src_devices: Ints, dst_devices: Ints) -> tuple[Ints, Ints]:
        """Return how many links each of some routes crosses, and the links of all; see :meth:`route`."""
        if self.fabric.searches or (src_devices == dst_devices).any():
            return listed(map(self.route, src_devices.tolist(), dst_devices.tolist()))
        return self.fabric.routes(src_devices, dst_devices)

    def bandwidth_matrix(self, devices: Sequence[int] | None = None) -> Floats:
        """Return the bandwidth of the narrowest link from each device (row) to each (column), in bytes/s.

        Args:
            devices: Those asked about; all if None.
        """
        asked, bandwidth = range(self.device_count) if devices is None else devices, self.link_bandwidth
        links = [narrowest(self.route(i, j), bandwidth) for i in asked for j in asked]
        return bandwidth[links].reshape(len(asked), len(asked))


def content_sha(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a file's content, comments and order of keys aside."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


_NO_NUMBERS = frozenset(
    ("name", "source_path", "sha", "document", "link_names", "choices", "engine", "_routes", "_numbers")
)
"""Fields of a Machine that follow from others, or of which no time depends."""


@cache
def _parts(kind: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(part.name for part in fields(kind))


def _plain(value: Any, add: Callable[[bytes], None]) -> None:
    """Add the bytes of a value made of numbers, text, arrays, mappings, sequences, tables and dataclasses."""
    if isinstance(value, (float, str, int)) or value is None:  # a tuple, sooner than a union
        add(repr(value).encode())
    elif isinstance(value, (list, tuple)):
        for item in value:
            _plain(item, add)
    elif isinstance(value, np.ndarray):
        add(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Fabric):
        add(f"{type(value).__name__} {value.shape} {value.near} {len(value.names)}".encode())
    elif isinstance(value, Parts):
        add(value.digest.encode())
    elif isinstance(value, Machine):
        add(value.sha.encode())
    elif isinstance(value, Table):
        add(value.model_dump_json().encode())
    elif isinstance(value, Mapping):
        for key, item in value.items():
            add(repr(key).encode())
            _plain(item, add)
    elif is_dataclass(value):
        kind: Any = type(value)
        for name in _parts(kind):
            _plain(getattr(value, name), add)
    else:
        add(repr(value).encode())
