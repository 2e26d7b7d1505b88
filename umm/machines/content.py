"""The topology file: its tables and keys."""

import pkgutil
from collections import Counter
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Field, field_validator, model_validator

from umm.dtypes import Dtype
from umm.machines import fabrics
from umm.machines.kind import Kind
from umm.machines.quantities import (
    Bandwidth,
    Count,
    Loss,
    Rate,
    Seconds,
    Share,
    Size,
    Source,
    Table,
    Uncertainty,
)
from umm.units import parse_bandwidth, parse_bytes

_SIMPLEST_FIRST = ("none", "pairs", "switch", "grid", "fat_tree", "tiers", "links")


class Interference(Table):
    """The share of a rank's own GEMM rate lost while one of its transfers runs, by kind."""

    get: Loss
    accumulate: Loss
    reduce: Loss


def _increasing(points: list[int]) -> list[int]:
    if any(b <= a for a, b in pairwise(points)):
        raise ValueError("the measured points must increase")
    return points


Points = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]


class Efficiency(Table):
    """The share of a dtype's peak on a grid of GEMM shapes, value[m][n][k]; or one number for all shapes."""

    dtype: Dtype
    source: Source
    m: Points = Field(default_factory=lambda: [1])
    n: Points = Field(default_factory=lambda: [1])
    k: Points = Field(default_factory=lambda: [1])
    value: list[list[list[Annotated[float, Field(gt=0, le=1)]]]]
    uncertainty: Uncertainty = None
    range: Annotated[list[Annotated[float, Field(gt=0, le=1)]] | None, Field(min_length=2, max_length=2)] = (
        None
    )
    measured: bool | None = None
    assumed: bool = False

    @field_validator("value", mode="before")
    @classmethod
    def _one_for_all(cls, value: Any) -> Any:
        return [[[value]]] if isinstance(value, int | float) else value

    _axes = field_validator("m", "n", "k")(_increasing)

    @model_validator(mode="after")
    def _value_fits(self) -> "Efficiency":
        shape = f"{len(self.m)} x {len(self.n)} x {len(self.k)}"
        fits = len(self.value) == len(self.m) and all(
            len(plane) == len(self.n) and all(len(row) == len(self.k) for row in plane)
            for plane in self.value
        )
        if not fits:
            raise ValueError(f"value must hold {shape} numbers, one for each m, n and k")
        return self

    @model_validator(mode="after")
    def _range_fits(self) -> "Efficiency":
        if self.range is None:
            return self
        if self.uncertainty is not None:
            raise ValueError("uncertainty and range say the same thing; keep one")
        if len(self.m) * len(self.n) * len(self.k) > 1:
            raise ValueError("range is for one number; say how sure a table is with uncertainty")
        low, high = self.range
        if not low <= self.value[0][0][0] <= high:
            raise ValueError(f"{self.value[0][0][0]} does not lie in its range, {low} to {high}")
        return self


class Devices(Table):
    """What every device of the machine is."""

    count: Count
    names: list[Annotated[str, Field(min_length=1)]] | None = None
    ranks_per_device: Count | None = None
    default_ranks: Count | None = None
    memory: Size
    memory_bandwidth: Bandwidth
    copy_engines: Count
    launch: Seconds
    transfer_overhead: Seconds
    accumulate_efficiency: Share
    interference: Interference
    peak: Annotated[dict[Dtype, Rate], Field(min_length=1)]
    efficiency: tuple[Efficiency, ...] = ()
    means: dict[Annotated[str, Field(min_length=1)], "Means"] = Field(default_factory=dict)
    signal: Seconds | None = None

    @model_validator(mode="after")
    def _names_fit(self) -> "Devices":
        if self.names is not None:
            name, times = Counter(self.names).most_common(1)[0] if self.names else ("", 0)
            if times > 1:
                raise ValueError(f"names has {name!r} twice; give every device a name of its own")
            if len(self.names) != self.count.value:
                raise ValueError(f"names must hold {self.count.value} different names, one per device")
        for dtype, times in Counter(table.dtype for table in self.efficiency).items():
            if times > 1:
                raise ValueError(f"efficiency has {dtype} twice; keep one")
        return self


class Sizes(Table):
    """The bandwidth one message reaches alone, by its size, on a link of bandwidth `link`."""

    source: Source
    link: Bandwidth
    sizes: Annotated[list[str], Field(min_length=1)]
    bandwidth: Annotated[list[str], Field(min_length=1)]
    uncertainty: Uncertainty = None
    measured: bool | None = None
    assumed: bool = False

    @model_validator(mode="after")
    def _rows_fit(self) -> "Sizes":
        _increasing([parse_bytes(size) for size in self.sizes])
        if len(self.sizes) != len(self.bandwidth):
            raise ValueError("sizes and bandwidth must be equally long")
        if min(parse_bandwidth(text) for text in self.bandwidth) <= 0:
            raise ValueError("every bandwidth must be more than zero")
        unsure = 1.0 + (self.uncertainty or 0.0) + (self.link.uncertainty or 0.0)
        most = max(self.bandwidth, key=parse_bandwidth)
        if parse_bandwidth(most) > self.link.number * unsure:
            raise ValueError(
                f"{most} is more than the link's own {self.link.value}; no message beats its link"
            )
        return self


class Means(Table):
    """A way to move bytes, such as by a copy engine or by a kernel that takes thread blocks."""

    interference: Loss
    efficiency: Share | None = None
    overhead: Seconds | None = None
    message_sizes: Sizes | None = None


@cache
def kinds() -> tuple[type[Kind], ...]:
    """Return the kinds of all modules of ``umm.machines.fabrics``, simplest first, others after them."""
    names = sorted(module.name for module in pkgutil.iter_modules(fabrics.__path__))
    names.sort(key=lambda name: [*_SIMPLEST_FIRST, name].index(name))
    modules = [import_module(f"{fabrics.__name__}.{name}") for name in names]
    return tuple(
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, Kind) and found.__module__ == module.__name__
    )


if TYPE_CHECKING:
    AnyFabric = Kind
else:
    AnyFabric = Annotated[Union[kinds()], Field(discriminator="kind")]  # noqa: UP007, kinds are found, not known


class MachineFile(Table):
    """A whole topology file."""

    schema_version: Literal[1] = Field(alias="schema")
    description: Source
    devices: Devices
    fabric: AnyFabric
    message_sizes: Sizes | None = None
