"""The tables of a topology file that hold one number: value with unit, source, and what it is per."""

import math
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from umm.units import parse_bandwidth, parse_bytes, parse_rate, parse_seconds

MOST = 65_536
Source = Annotated[str, Field(min_length=1)]
Uncertainty = Annotated[float | None, Field(ge=0)]  # a share of the value, either way
Ends = Annotated[list[Any] | None, Field(min_length=2, max_length=2)]


class Table(BaseModel):
    """A table of the file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
            raise ValueError(f"{value!r} does not lie in its range, {low!r} to {high!r}")
        return self


class Quantity(Number):
    """A number with its unit in the string."""

    value: str
    may_be_zero: ClassVar[bool] = False

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
        if not math.isfinite(number) or number < 0 or (number == 0 and not cls.may_be_zero):
            raise ValueError(f"{text!r} is not {'at least' if cls.may_be_zero else 'more than'} zero")
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

    @staticmethod
    def parse(text: str) -> float:
        """Return the number in the program's unit."""
        return parse_bytes(text)


class Rate(Quantity):
    """flop/s."""

    @staticmethod
    def parse(text: str) -> float:
        """Return the number in the program's unit."""
        return parse_rate(text)


class Seconds(Quantity):
    """A time."""

    may_be_zero = True

    @staticmethod
    def parse(text: str) -> float:
        """Return the number in the program's unit."""
        return parse_seconds(text)


class Count(Number):
    """How many; as many as the largest machines have, and no more than can be held here."""

    value: Annotated[int, Field(ge=1, le=MOST, strict=True)]


class Shape(Number):
    """Lengths of a grid's axes."""

    value: Annotated[list[Annotated[int, Field(ge=1, le=MOST, strict=True)]], Field(min_length=1)]


class Share(Number):
    """A part of one, more than zero."""

    value: Annotated[float, Field(gt=0, le=1)]


class Loss(Number):
    """A part of one that is lost; less than one, so that work never stops."""

    value: Annotated[float, Field(ge=0, lt=1)]
