"""The matrices that Muon orthogonalises, and the grid of ranks that they are split over."""

import re
from collections import Counter
from dataclasses import dataclass

from umm.errors import ProblemError
from umm.numbers import parse_whole
from umm.program.models.layers import Model


@dataclass(frozen=True)
class Matrix:
    """Equal matrices of a model."""

    name: str  # path below the layer
    rows: int  # rows of one: the outputs of a layer's weight, as torch.nn.Linear stores it
    cols: int  # columns of one: its inputs
    layers: int  # layers that have them
    each: int = 1  # how many a layer has: its experts, or 1
    where: tuple[int, ...] = ()  # numbers of these layers; the first ones if empty

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of the layer of each, in their order."""
        return tuple(x for x in self.where or range(self.layers) for _ in range(self.each))

    @property
    def count(self) -> int:
        """How many there are."""
        return self.layers * self.each

    @property
    def sides(self) -> tuple[int, int]:
        """The shorter and the longer side: a tall matrix is transposed first."""
        return min(self.rows, self.cols), max(self.rows, self.cols)


@dataclass(frozen=True)
class Grid:
    """The ranks that share a model's weights."""

    tp: int = 1  # tensor parallel ranks, neighbours, which split a matrix's columns or rows
    fsdp: int = 1  # ranks that split the rows of what these have
    ep: int = 1  # of all these, groups that have different experts

    @property
    def ranks(self) -> int:
        """Ranks of the grid."""
        return self.tp * self.fsdp

    @property
    def all_ranks(self) -> tuple[int, ...]:
        """All ranks, by number."""
        return tuple(range(self.ranks))

    @property
    def rows(self) -> tuple[int, ...]:
        """The first group of ranks that split rows."""
        return tuple(range(0, self.ranks, self.tp))

    @property
    def columns(self) -> tuple[int, ...]:
        """The first group of ranks that split columns."""
        return tuple(range(self.tp))

    @classmethod
    def parse(cls, text: str) -> "Grid":
        """Return the grid that a text such as ``tp4-fsdp16`` means.

        A ProblemError shows how one is written.

        >>> Grid.parse("tp4-fsdp16-ep8")
        Grid(tp=4, fsdp=16, ep=8)
        """
        sizes = {}
        for part in text.split("-"):
            match = re.fullmatch(r"(tp|fsdp|ep)([0-9]{1,6})", part)
            if match is None or match[1] in sizes:
                raise ProblemError(
                    f"--layouts {text[:40]!r} is unknown; write it like tp4-fsdp16 or fsdp8-ep8"
                )
            sizes[match[1]] = parse_whole(match[2], f"{match[1]} of --layouts", 1)
        grid = cls(**sizes)
        if grid.ranks % grid.ep:
            raise ProblemError(
                f"ep{grid.ep} does not divide the {grid.ranks} ranks of {text}, its tp times fsdp; experts "
                f"spread over {grid.ep} ranks are fsdp{grid.ep}-ep{grid.ep}"
            )
        return grid


EXPERT_PARTS = {3: ("gate_proj", "up_proj", "down_proj"), 2: ("up_proj", "down_proj")}
"""Names of an expert's matrices by their number, in the order in which a layer lists them."""


def matrices(model: Model) -> list[Matrix]:
    """Return the matrices of a model's layers; embedding, head and vectors take another optimizer.

    >>> from umm.program.models import find_model
    >>> [(x.name, x.rows, x.cols, x.count) for x in matrices(find_model("llama-3-8b"))][-1]
    ('mlp.down_proj', 4096, 14336, 32)
    """
    # Trainers shard dimension 0 of torch's shape, outputs by inputs, and scale updates by it. Source:
    # microsoft/dion, muon.py (fan_out, fan_in = shape); NVIDIA, emerging_optimizers (get_muon_scale_factor).
    places: dict[tuple[str, int, int, int], list[int]] = {}
    for layer in model.kinds:
        where = [number for number, other in enumerate(model.layers) if other == layer]
        weights = [x for x in layer.weights(model.hidden) if x.linear and x.rows]
        parts = Counter(x.module for x in weights)
        numbers: Counter[str] = Counter()
        for weight in weights:
            name, number = weight.module, numbers[weight.module]
            numbers[name] += 1
            if parts[name] > 1:
                name = f"{name}.{EXPERT_PARTS.get(parts[name], range(parts[name]))[number]}"
            each = layer.experts.experts if layer.experts and weight.module == "mlp.experts" else 1
            shape = name, weight.elements // each // weight.rows, weight.rows, each
            places.setdefault(shape, []).extend(where)
    shapes = Counter(name for name, *_ in places)
    return [
        Matrix(
            name if shapes[name] == 1 else f"{name}.{rows}x{cols}", rows, cols, len(where), each,
            tuple(sorted(where)),
        )
        for (name, rows, cols, each), where in places.items()
    ]  # fmt: skip
