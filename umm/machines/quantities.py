"""The tables of a topology file that hold one number: value with unit, source, and what it is per."""

import math
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from umm.units import parse_bandwidth, parse_bytes, parse_rate, parse_seconds

MOST = 65_536
Source = Annotated[str, Field(min_length=1)]
Uncertainty = Annotated[float | None, Field(ge=0)]  # a share of the value, either way


class Table(BaseModel):
    """A table of the file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Number(Table):
    """A number from the world, where it comes from, what it is per, how sure it is, whether it is a guess."""

    source: Source
    per: str = ""
    uncertainty: Uncertainty = None
    assumed: bool = False


class Quantity(Number):
    """A number with its unit in the string."""

    value: str
    may_be_zero: ClassVar[bool] = False

    @staticmethod
    def parse(text: str) -> float:
        """Return the number in the program's unit."""
        raise NotImplementedError

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
