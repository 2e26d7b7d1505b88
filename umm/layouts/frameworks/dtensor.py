"""PyTorch DTensor: a device mesh, and for each of its axes Shard, Replicate or _StridedShard.

Placements apply from the left: each ``Shard`` cuts what those before it left, as torch.chunk does, so sizes
that do not divide are cut otherwise by two axes of 2 than by one of 4. ``_StridedShard(dim, split_factor)``
cuts each of so many chunks for itself; with it an axis can cut after one to its right, and tiles can be
dealt out in turn.

Source: PyTorch 2.13, torch/distributed/tensor/placement_types.py and _utils.py
(``_compute_local_shape_and_global_offset``).
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from umm.errors import LayoutError
from umm.layouts.frameworks.mesh import Cut, Laid, Meshed, Parts, Use, cuts_of, meshed, on_mesh, parts_of
from umm.layouts.frameworks.words import edges_text, mesh_text, ranks_of, read_mesh
from umm.numbers import parse_whole

HOW = "dtensor:mesh=2x4;Shard(0),Replicate"
_PLACEMENT = re.compile(
    r"(?P<strided>_?StridedShard|_S)\((dim=)?(?P<of>[0-9]{1,9}),((split_factor|sf)=)?(?P<split>[0-9]{1,9})\)"
    r"|(Shard|S)\((dim=)?(?P<dim>-?[0-9]{1,9})\)|(?P<copy>Replicate|R)(\(\))?|(?P<sum>(Partial|P|_MaskPartial)(\(.*?\))?)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class DTensorLayout:
    """A layout as DTensor says it; ``str`` is the text that ``--a`` takes."""

    mesh: Any  # the rank at each place of the device mesh, as `DeviceMesh` takes it: nested lists
    shape: tuple[int, ...]  # lengths of the axes of the mesh
    placements: tuple[str, ...]  # what each axis is used for, as in `Shard(0)`

    def __str__(self) -> str:
        return (
            f"dtensor:mesh={mesh_text(np.array(self.mesh).reshape(self.shape))};{','.join(self.placements)}"
        )


def parts(mesh: Any, placements: Any, shape: tuple[int, int]) -> Parts:
    """Return how a matrix lies with placements on a mesh.

    LayoutError for what is no layout of a matrix: Partial, a third dimension, ranks that are not 0 to p − 1.

    Args:
        mesh: A ``DeviceMesh``, the lengths of its axes as a tuple, or its ranks as nested lists or an array.
        placements: Real ones, or their texts.
    """
    ranks = ranks_of(getattr(mesh, "mesh", mesh))
    uses = [_use(placement) for placement in placements]
    if len(uses) != ranks.ndim:
        raise LayoutError(
            f"{len(uses)} placements do not fit a mesh of {ranks.ndim} axes "
            f"({'x'.join(map(str, ranks.shape))}); give one for each axis"
        )
    return parts_of(shape, Meshed(ranks, tuple(uses)))


def read(text: str, shape: tuple[int, int], ranks: int) -> Parts:
    """Parse the text after ``dtensor:``, or placements without a mesh, which are over all ranks.

    LayoutError if it means nothing, or not on so many ranks.

    >>> read("mesh=2x2;Shard(0),Replicate", (8, 4), 4).places.tolist()
    [[[0], [2]], [[1], [3]]]
    """
    mesh_words, semicolon, rest = text.partition(";")
    if not semicolon:
        mesh_words, rest = f"mesh={ranks}", text
    if not mesh_words.startswith("mesh="):
        raise LayoutError(f"{text!r} has no mesh; write {HOW}")
    mesh = read_mesh(mesh_words.removeprefix("mesh="), ranks, text)
    return parts(mesh, read_placements(rest, text), shape)


def read_placements(text: str, all_of: str) -> list[str]:
    """Return placements one by one: of ``Shard(0),Replicate``, ``[Shard(dim=0), Replicate()]``, ``S(0)R``."""
    bare = re.sub(r"\s", "", text)
    if bare[:1] in ("(", "[") and bare[-1:] in (")", "]"):
        bare = bare[1:-1]
    placements, place = [], 0
    while place < len(bare):
        match = _PLACEMENT.match(bare, place)
        if match is None or not match[0]:
            raise LayoutError(f"{all_of!r}: {bare[place:]!r} is no placement; write {HOW}")
        placements.append(match[0])
        place = match.end() + (bare[match.end() : match.end() + 1] == ",")
    return placements


def written(layout: Laid, text: str) -> DTensorLayout:
    """Return a layout in DTensor's words, on a mesh along which ranks are counted if there is one.

    LayoutError naming what DTensor cannot say.
    """
    meshed_layout = meshed(layout)
    if meshed_layout is None:
        dim = next((dim for dim in (0, 1) if cuts_of(layout, dim) is None), 0)
        raise LayoutError(
            f"{text}: DTensor cannot have {edges_text(layout, dim)}: each axis of its mesh cuts as "
            "torch.chunk does, into parts of one size and a smaller last one"
        )
    texts = tuple(_text(use) for use in meshed_layout.uses)
    return DTensorLayout(meshed_layout.ranks.tolist(), meshed_layout.ranks.shape, texts)


def written_on(layout: Laid, text: str, mesh: Any) -> list[Any]:
    """Return the placements of a layout on a ``DeviceMesh``.

    LayoutError if the layout cannot be had on this mesh.
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    ranks = ranks_of(mesh.mesh)
    meshed_layout = next(on_mesh(layout, ranks), None)
    if meshed_layout is None:
        raise LayoutError(
            f"{text} cannot be had on a mesh of {mesh_text(ranks)}; to_dtensor() without a mesh says on which"
        )

    def real(use: Use) -> Any:
        if use is None:
            return Replicate()
        return Shard(use.dim) if use.split == 1 else _StridedShard(use.dim, split_factor=use.split)

    return [real(use) for use in meshed_layout.uses]


def _use(placement: Any) -> Use:
    """Return an axis's use by a placement: a text, or an object of DTensor known by its class."""
    words = placement if isinstance(placement, str) else _said(placement)
    match = _PLACEMENT.fullmatch(re.sub(r"\s", "", words))
    if match is None:
        raise LayoutError(
            f"{words} is no placement; choose from Shard(0), Shard(1), Replicate, _StridedShard"
        )
    if match["sum"]:
        raise LayoutError(f"{words} is a sum that is not done, not a layout; redistribute it first")
    if match["copy"]:
        return None
    dim, split = parse_whole(match["dim"] or match["of"], least=-9), parse_whole(match["split"] or "1")
    if dim not in (-2, -1, 0, 1) or split < 1:
        raise LayoutError(f"{words} does not fit a matrix; its dimensions are 0, rows, and 1, columns")
    return Cut(dim % 2, split)


def _said(placement: Any) -> str:
    """Return the text of a real placement."""
    name = type(placement).__name__
    if name == "_StridedShard":
        return f"_StridedShard({placement.dim},{placement.split_factor})"
    return f"Shard({placement.dim})" if name == "Shard" else name


def _text(use: Use) -> str:
    if use is None:
        return "Replicate"
    return f"Shard({use.dim})" if use.split == 1 else f"_StridedShard({use.dim},{use.split})"


def of_object(x: Any) -> tuple[Any, Any, Any]:
    """Return the mesh, the placements and the shape of a DTensor or of a DTensorSpec.

    LayoutError if it is neither, or no matrix.
    """
    mesh = getattr(x, "device_mesh", None) or getattr(x, "mesh", None)
    placements, shape = getattr(x, "placements", None), getattr(x, "shape", None)
    if mesh is None or placements is None or shape is None:
        raise LayoutError(f"{type(x).__name__} is no DTensor; give one, or a mesh, placements and a shape")
    return mesh, placements, shape
