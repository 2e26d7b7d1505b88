"""The tables of a topology file about what GEMMs reach: a share of a peak, by shape or with tiles."""

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from umm.machines.quantities import MOST, Source, Table, Uncertainty

Rated = Literal["float64", "float32", "float16", "bfloat16", "tf32"]
"""What a peak is of: a type of matrices, or float32 matrices multiplied with fewer digits."""


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


class Efficiency(Table):
    """The share of a dtype's peak on a grid of GEMM shapes, value[m][n][k]; or one number for all shapes."""

    dtype: Rated
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
    tiles: Tiles | None = None

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
            raise ValueError(f"{self.value[0][0][0]} does not lie in its range, {low} to {high}")
        return self

    @model_validator(mode="after")
    def _tiles_fit(self) -> "Efficiency":
        if self.tiles is not None and len(self.m) * len(self.n) * len(self.k) > 1:
            raise ValueError("tiles is for one number; a table by shape holds what tiles make of a shape")
        return self
