"""The tables of a machine file that hold numbers: values with unit and source, and the rates GEMMs reach."""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from umm.files import shown
from umm.numbers import whole_in
from umm.units import parse_bandwidth, parse_bytes, parse_rate, parse_seconds

MOST = 65_536


def printable(name: str) -> str:
    """Return a name that can be shown and typed.

    Raises:
        ValueError: if it cannot.
    """
    if not name.isprintable():
        raise ValueError(f"{shown(name)} has characters that cannot be shown; choose another name")
    return name


def twice(names: Iterable[str]) -> str | None:
    """Return the first name that is listed a second time, None if each is listed once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


Source = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(min_length=1, max_length=80), AfterValidator(printable)]
Uncertainty = Annotated[float | None, Field(ge=0, le=1)]  # a share of the value, either way
Ends = Annotated[list[Any] | None, Field(min_length=2, max_length=2)]


class Table(BaseModel):
    """A table of the file: unknown keys are errors, and no value is taken for one of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


class Number(Table):
    """A number from the world, where it comes from, what it is per, how sure it is, whether it is a guess.

    ``measured`` says that it was found on such a machine; what says nothing was if it has an uncertainty.
    ``range`` holds the least and the most it may be, written like the value; the value lies between them.
    """

    source: Source
    per: str = ""
    uncertainty: Uncertainty = None
    range: Ends = None
    measured: bool | None = None
    assumed: bool = False

    @staticmethod
    def amount(value: Any) -> Any:
        """Return a value as it is written as something that can be compared."""
        return value

    @model_validator(mode="after")
    def _value_is_in_range(self) -> Self:
        if self.assumed and self.measured:
            raise ValueError("measured and assumed contradict each other; keep one")
        if self.range is None:
            return self
        if self.uncertainty is not None:
            raise ValueError("uncertainty and range say the same thing; keep one")
        try:
            for end in self.range:
                type(self).model_validate({"value": end, "source": self.source})
        except ValidationError as error:
            said = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ValueError(f"range: {said}") from None
        low, high = self.range
        value: Any = getattr(self, "value", low)
        if not self.amount(low) <= self.amount(value) <= self.amount(high):
            raise ValueError(f"{value!r} is outside its range, {low!r} to {high!r}")
        return self


class Quantity(Number):
    """A number with its unit in the string.

    Attributes:
        least: The smallest that is taken, in the program's unit: where there is more, no time is endless.
        most: The largest.
    """

    value: str
    least: ClassVar[float] = 1.0
    most: ClassVar[float] = 1e30

    @staticmethod
    def parse(text: str) -> float:
        """Return the number in the program's unit."""
        raise NotImplementedError

    @classmethod
    def amount(cls, value: str) -> float:
        """Return a value as it is written in the program's unit."""
        return cls.parse(value)

    @field_validator("value")
    @classmethod
    def _is_a_quantity(cls, text: str) -> str:
        number = cls.parse(text)
        if number < 0 or (number == 0 and cls.least):
            raise ValueError(f"{shown(text)} is not {'more than' if cls.least else 'at least'} zero")
        if not cls.least <= number <= cls.most:
            raise ValueError(f"{shown(text)} is beyond what machines have; check its unit")
        return text

    @property
    def number(self) -> float:
        """The value in bytes, seconds, bytes/s or flop/s."""
        return type(self).parse(self.value)


class Bandwidth(Quantity):
    """Bytes/s, one direction."""

    @staticmethod
    def parse(text: str) -> float:
        """Return the number in the program's unit."""
        return parse_bandwidth(text)


class Size(Quantity):
    """Bytes."""

    most: ClassVar[float] = 2.0**60

    @staticmethod
    def parse(text: str) -> float:
        """Return the number in the program's unit."""
        if whole_in(text.strip()) is not None:
            raise ValueError(f"{shown(text)} has no unit; write it like 16 GiB, or {text.strip()} B")
        return parse_bytes(text)


class Rate(Quantity):
    """flop/s."""

    @staticmethod
    def parse(text: str) -> float:
        """Return the number in the program's unit."""
        return parse_rate(text)


class Seconds(Quantity):
    """A time."""

    least: ClassVar[float] = 0.0
    most: ClassVar[float] = 1e6

    @staticmethod
    def parse(text: str) -> float:
        """Return the number in the program's unit."""
        return parse_seconds(text)


class Count(Number):
    """How many; as many as the largest machines have, and no more than can be held here."""

    value: Annotated[int, Field(ge=1, le=MOST)]


class Shape(Number):
    """Lengths of a grid's axes."""

    value: Annotated[list[Annotated[int, Field(ge=1, le=MOST)]], Field(min_length=1, max_length=16)]


class Share(Number):
    """A part of one, more than zero."""

    value: Annotated[float, Field(gt=0, le=1)]


class Loss(Number):
    """A part of one that is lost; less than one, so that work never stops."""

    value: Annotated[float, Field(ge=0, lt=1)]


Rated = Literal["float64", "float32", "float16", "bfloat16", "tf32", "float8", "float4"]
"""What a peak is of: a type of matrices, both of 8 bits, 4 bits, or float32 with fewer digits."""

Multiplied = Literal[Rated, "float8:128"]
"""What GEMMs have an efficiency of: such a type, or 8 bits with a scale for each block."""


def increasing(points: list[int]) -> list[int]:
    """Return points as they are; a ValueError if they do not increase."""
    if any(b <= a for a, b in pairwise(points)):
        raise ValueError("the measured points must increase")
    return points


Points = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
Positive = Annotated[int, Field(ge=1, le=MOST)]


class Tiles(Table):
    """How a GEMM kernel cuts its work: tiles of C, the units that compute them, a ramp over k, split k."""

    rows: Positive
    cols: Positive
    units: Positive
    ramp: Annotated[int, Field(ge=0, le=MOST)]
    most_splits: Positive = 1
    source: Source
    measured: bool | None = None
    assumed: bool = False


ShareOfPeak = Annotated[float, Field(gt=0, le=1.1)]
"""Above 1 where a device's clock goes above the one that its peak is stated at."""


class Issues(Table):
    """The least time in which an engine's host issues a multiply of some shapes."""

    time: str
    rows: Positive | None = None
    unless_rows: Positive | None = None
    unless: Annotated[list[Positive] | None, Field(min_length=2, max_length=2)] = None

    @field_validator("time")
    @classmethod
    def _is_a_time(cls, text: str) -> str:
        return Seconds(value=text, source="issues").value


class KernelNumbers(Table):
    """Numbers of GEMM kernels, each optional: a type states only what differs from the device's.

    Kernels of a type may differ again where C has elements of 4 bytes (``wide``) and where A and B are of
    unlike types (``unlike``); ``value`` is then their share of the peak. All have one start.
    """

    source: Source
    units: Positive | None = None
    tiles: Annotated[list[str] | None, Field(min_length=1)] = None
    splits: Annotated[list[Positive] | None, Field(min_length=1)] = None
    feed: str | None = None
    start: str | None = None
    ramp: str | None = None
    store: str | None = None
    memory: str | None = None
    tail: Annotated[float | None, Field(ge=0, le=1)] = None
    overlap: Annotated[float | None, Field(ge=0, le=1)] = None
    split: str | None = None
    reduce: str | None = None
    expected_feed: str | None = None
    split_k: Positive | None = None
    split_area: Annotated[float | None, Field(gt=0)] = None
    split_total: Annotated[float | None, Field(gt=0)] = None
    split_rate: Annotated[float | None, Field(gt=0)] = None
    parts: str | None = None
    caution: Annotated[float | None, Field(gt=0)] = None
    batched: Annotated[float | None, Field(gt=0, le=1)] = None
    transposes: str | None = None
    small: str | None = None
    small_volume: Annotated[int | None, Field(ge=1)] = None
    small_k: Positive | None = None
    cache: str | None = None
    cached: str | None = None
    norm: Annotated[float | None, Field(ge=1, le=64)] = None
    boost: str | None = None
    sustained: Annotated[float | None, Field(gt=0, le=1)] = None
    cast: str | None = None
    cast_unit: str | None = None
    cast_row: str | None = None
    issues: Annotated[list[Issues] | None, Field(min_length=1)] = None
    uncertainty: Uncertainty = None
    measured: bool | None = None
    assumed: bool = False
    value: ShareOfPeak | None = None
    wide: "KernelNumbers | None" = None
    unlike: "KernelNumbers | None" = None

    @field_validator("tiles")
    @classmethod
    def _are_shapes(cls, tiles: list[str] | None) -> list[str] | None:
        for tile in tiles or ():
            if not re.fullmatch(r"[1-9][0-9]{0,3}x[1-9][0-9]{0,3}", tile):
                raise ValueError(f"{shown(tile)} is not a tile; write rows and columns like 128x256")
        return tiles

    @field_validator(
        "feed", "store", "memory", "reduce", "expected_feed", "transposes", "cached", "parts",
        "cast", "cast_unit",
    )  # fmt: skip
    @classmethod
    def _are_bandwidths(cls, text: str | None) -> str | None:
        return text if text is None else Bandwidth(value=text, source="kernels").value

    @field_validator("cache")
    @classmethod
    def _is_a_size(cls, text: str | None) -> str | None:
        return text if text is None else Size(value=text, source="kernels").value

    @field_validator("start", "ramp", "split", "small", "cast_row", "boost")
    @classmethod
    def _are_times(cls, text: str | None) -> str | None:
        return text if text is None else Seconds(value=text, source="kernels").value

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        for other in (self.wide, self.unlike):
            if other is not None and other.start is not None:
                raise ValueError("all kernels of a type have one start; state it once")
        if self.wide is not None and self.wide.unlike is not None:
            raise ValueError("unlike may hold wide, not the other way round")
        return self

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        together = ("cache", "cached"), ("boost", "sustained"), ("small", "small_volume", "small_k")
        for names in together:
            if len({getattr(self, name) is None for name in names}) > 1:
                raise ValueError(f"{', '.join(names)} belong together; state all or none")
        if self.cast is None and (self.cast_unit or self.cast_row):
            raise ValueError("cast_unit and cast_row say more of a cast; state cast too")
        return self


class Efficiency(Table):
    """The share of a dtype's peak on a grid of GEMM shapes, value[m][n][k]; or one number for all shapes."""

    dtype: Multiplied
    source: Source
    m: Points = Field(default_factory=lambda: [1])
    n: Points = Field(default_factory=lambda: [1])
    k: Points = Field(default_factory=lambda: [1])
    value: list[list[list[ShareOfPeak]]]
    uncertainty: Uncertainty = None
    range: Annotated[list[ShareOfPeak] | None, Field(min_length=2, max_length=2)] = None
    measured: bool | None = None
    assumed: bool = False
    tiles: Tiles | None = None
    kernels: KernelNumbers | None = None

    @field_validator("value", mode="before")
    @classmethod
    def _one_for_all(cls, value: Any) -> Any:
        return [[[value]]] if isinstance(value, int | float) else value

    _axes = field_validator("m", "n", "k")(increasing)

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
            raise ValueError(f"{self.value[0][0][0]} is outside its range, {low} to {high}")
        return self

    @model_validator(mode="after")
    def _tiles_fit(self) -> "Efficiency":
        shaped = len(self.m) * len(self.n) * len(self.k) > 1
        for name in ("tiles", "kernels"):
            if shaped and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is for one number; a table by shape holds what tiles make of a shape"
                )
        if self.tiles is not None and self.kernels is not None:
            raise ValueError("tiles and kernels both say what tiles make of a shape; keep one")
        return self
