"""Numbers of a machine file: quantities with unit, range and source, and where each is declared."""

import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, field, fields
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from umm.files import shown
from umm.machines.declaring import AfterValidator, BeforeValidator, Field, model_validator
from umm.machines.declaring import Table as Table
from umm.numbers import real_in, whole_in
from umm.units import parse_bandwidth, parse_bytes, parse_rate, parse_seconds

MAX_COUNT = 65_536


def twice(names: Iterable[str]) -> str | None:
    """Return the first name that is listed a second time, None if each is listed once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


Source = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(min_length=1, max_length=80)]
Uncertainty = Annotated[float | None, Field(ge=0, le=1)]  # a share of the value, either way
Ends = Annotated[list[Any] | None, Field(min_length=2, max_length=2)]


class Sourced(Table):
    """Numbers from the world, their source, how sure they are, and whether they are a guess.

    ``measured`` means measured on such a machine; if neither is stated, numbers with an uncertainty are.
    """

    source: Source
    uncertainty: Uncertainty = None
    measured: bool | None = None
    assumed: bool = False


class Number(Sourced):
    """One number from the world, and its unit of counting.

    ``range`` holds the least and the most it may be, written like the value; the value lies between them.
    """

    per: str = ""
    range: Ends = None

    amount: ClassVar[Callable[..., Any]] = staticmethod(lambda value: value)  # a value in the program's unit

    @model_validator(mode="after")
    def _value_is_in_range(self) -> Self:
        if self.assumed and self.measured:
            raise ValueError("measured and assumed contradict each other; keep one")
        if self.range is None:
            return self
        if self.uncertainty is not None:
            raise ValueError("uncertainty and range say the same thing; keep one")
        from pydantic import ValidationError

        try:
            for end in self.range:
                type(self).model_validate({"value": end, "source": self.source})
        except ValidationError as error:
            message = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ValueError(f"range: {message}") from None
        low, high = self.range
        value: Any = getattr(self, "value", low)
        if not self.amount(low) <= self.amount(value) <= self.amount(high):
            raise ValueError(f"{value!r} is outside its range, {low!r} to {high!r}")
        return self


class Quantity(Number):
    """A number with its unit in the string."""

    value: str
    # The smallest that is taken, in the program's unit: where there is more, no time is endless.
    least: ClassVar[float] = 1.0
    most: ClassVar[float] = 1e30  # the largest

    def __init_subclass__(cls) -> None:
        def check(text: str) -> str:
            cls.checked(text)
            return text

        cls.__annotations__["value"] = Annotated[str, AfterValidator(check)]

    @classmethod
    def checked(cls, text: Any) -> float:
        """Return the number of a text in the program's unit.

        ValueError if it is no such quantity, or beyond what machines have.
        """
        if not isinstance(text, str):
            raise ValueError(f"input should be a valid string, not {shown(text)}")
        number: float = cls.amount(text)
        if number < 0 or (number == 0 and cls.least):
            raise ValueError(f"{shown(text)} is not {'more than' if cls.least else 'at least'} zero")
        if not cls.least <= number <= cls.most:
            raise ValueError(f"{shown(text)} is beyond what machines have; check its unit")
        return number

    @property
    def number(self) -> float:
        """The value in bytes, seconds, bytes/s or flop/s."""
        return float(self.amount(self.value))


class Bandwidth(Quantity):
    """Bytes/s, one direction."""

    amount = staticmethod(parse_bandwidth)


def _bytes(text: str) -> float:
    if whole_in(text.strip()) is not None:
        raise ValueError(f"{shown(text)} has no unit; write it like 16 GiB, or {text.strip()} B")
    return parse_bytes(text)


class Size(Quantity):
    """Bytes."""

    most: ClassVar[float] = 2.0**60
    amount = staticmethod(_bytes)


class Rate(Quantity):
    """flop/s."""

    amount = staticmethod(parse_rate)


class Seconds(Quantity):
    """A time."""

    least: ClassVar[float] = 0.0
    most: ClassVar[float] = 1e6

    amount = staticmethod(parse_seconds)


def _watts(text: str) -> float:
    watts = real_in(text.removesuffix("W").strip())
    if watts is None:
        raise ValueError(f"{shown(text)} is no power; write it like 700 W")
    return watts


class Power(Quantity):
    """Watts."""

    amount = staticmethod(_watts)


class Factor(Number):
    """A rate or a time over another one."""

    value: Annotated[float, Field(gt=0, le=100)]


class Count(Number):
    """How many; as many as the largest machines have, and no more than can be held here."""

    value: Annotated[int, Field(ge=1, le=MAX_COUNT)]


class Shape(Number):
    """Lengths of a grid's axes."""

    value: Annotated[list[Annotated[int, Field(ge=1, le=MAX_COUNT)]], Field(min_length=1, max_length=16)]


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


def _pair(mark: str, meaning: str, example: str) -> Callable[[Any], Any]:
    """Return a check that a text has two numbers with a mark between them."""

    def checked(text: Any) -> Any:
        if not isinstance(text, str) or not re.fullmatch(f"[1-9][0-9]{{0,6}}{mark}[1-9][0-9]{{0,6}}", text):
            raise ValueError(f"{shown(text)} is not {meaning}; write them like {example}")
        return text

    return checked


HeadCounts = Annotated[str, BeforeValidator(_pair("/", "query heads and heads of keys", "16/2"))]
Columns = Annotated[str, BeforeValidator(_pair("x", "hidden and inner columns of a model", "4096x14336"))]
ExpertShape = Annotated[str, BeforeValidator(_pair("x", "experts and inner columns of a rank", "8x4096"))]
Points = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1), AfterValidator(increasing)]
Positive = Annotated[int, Field(ge=1, le=MAX_COUNT)]
ShareOfPeak = Annotated[float, Field(gt=0, le=1.1)]
"""Above 1 where a device's clock goes above the one that its peak is stated at."""

BytesPerSecond = Annotated[float, BeforeValidator(Bandwidth.checked)]
Bytes = Annotated[int, BeforeValidator(lambda text: int(Size.checked(text)))]
Time = Annotated[float, BeforeValidator(Seconds.checked)]
"""Texts with a unit alone, beside a source that is of a whole table."""


def noted(note: str, default: Any = ..., alias: str | None = None) -> Any:
    """Return the field of a key with its meaning, which new files and the reference have."""
    return Field(default, description=note, alias=alias)


class Declared(NamedTuple):
    """One number of a machine file."""

    name: str  # attribute in the program; of a time with `_s`, which its key has not
    key: str  # in the file
    quantity: Any  # type in the file: its unit and the range of values
    kind: Any  # type in the program
    default: Any  # Value of a file that does not state it; MISSING if every file states it.
    note: str  # meaning, as files and the reference have it
    of_memory: bool  # whether it is in proportion to the memory bandwidth


def stated(quantity: Any, note: str, default: Any = MISSING, of_memory: bool = False) -> Any:
    """Return the dataclass field of a number that a machine file states; see :class:`Declared`."""
    return field(default=default, metadata={"quantity": quantity, "note": note, "of_memory": of_memory})


@lru_cache(maxsize=16)
def declared(numbers: type) -> tuple[Declared, ...]:
    """Return the numbers that a dataclass declares."""
    return tuple(
        Declared(x.name, x.name.removesuffix("_s"), kind=x.type, default=x.default, **x.metadata)
        for x in fields(numbers)
        if "quantity" in x.metadata
    )


def numbers_of(table: Any, numbers: type) -> dict[str, Any]:
    """Return the numbers that a table states of those of a dataclass, in the program's units."""
    stated_numbers = ((x, getattr(table, x.key)) for x in declared(numbers))
    return {
        x.name: x.kind(getattr(number, "number", number.value))
        for x, number in stated_numbers
        if number is not None
    }


def table_of(name: str, base: type[Table], numbers: type, partial: bool = False) -> Any:
    """Return a table of a machine file with the numbers that a dataclass declares.

    Args:
        partial: Whether the table need not have what has no default, for another one may state it.
    """
    hints: dict[str, Any] = {}
    keys: dict[str, Any] = {"__module__": base.__module__, "__annotations__": hints}
    for x in declared(numbers):
        needed = x.default is MISSING and not partial
        hints[x.key] = x.quantity if needed else x.quantity | None
        keys[x.key] = noted(x.note) if needed else noted(x.note, None)
    made: Any = type(base)
    return made(name, (base,), keys)
