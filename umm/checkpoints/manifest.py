"""A checkpoint's manifest: its matrices, their layouts, and a checksum of each rank's part.

docs/reference/checkpoints.md is the exact form.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from umm.errors import InputError
from umm.files import fields_of, parse_json, read_text, shown, whole_number
from umm.layouts.layout import Layout
from umm.program.tensors import LARGEST, MOST_RANKS

MANIFEST = "checkpoint.json"
SCHEMA = 1
LONGEST = 300  # characters of what is wrong with a manifest
MOST_BYTES = 2**26  # longest manifest that is read
# Elements as they lie in a part; bfloat16 as its bits.
STORED = {"bfloat16": np.dtype("<u2")} | {
    name: np.dtype(name).newbyteorder("<")
    for name in ("float64", "float32", "float16", "complex128", "complex64", "int64", "int32")
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{32}")
_KEYS = ("name", "shape", "dtype", "layout", "replica", "checksums")


@dataclass(frozen=True)
class Saved:
    """A matrix of a checkpoint."""

    name: str  # as of a `umm.program.tensors.Tensor`
    layout: Layout  # how it lay over the ranks that saved it
    dtype: str  # type of its elements
    replica: int = 0  # the replica that was saved
    checksums: tuple[str, ...] = ()  # of what each rank wrote of it, for all ranks

    def __post_init__(self) -> None:
        """Check the name, the type and the replica."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InputError(f"{shown(self.name)} cannot name a matrix of a checkpoint; write it like W1")
        if not isinstance(self.dtype, str) or self.dtype not in STORED:
            raise InputError(
                f"a checkpoint cannot hold {shown(self.dtype)}, the type of {self.name}; "
                f"choose from {', '.join(STORED)}"
            )
        whole_number(self.replica, f"replica of {self.name}", 0, self.layout.replicas)

    @property
    def elements(self) -> list[int]:
        """How many elements each rank wrote."""
        layout = self.layout
        wrote = layout.replica_of_rank == self.replica
        elements: list[int] = np.where(wrote, layout.elements_of_rank, 0).tolist()
        return elements

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(STORED[self.dtype].itemsize)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the manifest has it."""
        return {
            "name": self.name,
            "shape": list(self.layout.shape),
            "dtype": self.dtype,
            "layout": str(self.layout),
            "replica": self.replica,
            "checksums": list(self.checksums),
        }

    @classmethod
    def from_dict(cls, data: Any, ranks: int) -> "Saved":
        """Read a matrix's entry of a manifest; InputError in one line, if it is not a matrix."""
        given = fields_of(data, "a matrix of a checkpoint", _KEYS)
        shape, checksums, text = given["shape"], given["checksums"], given["layout"]
        if not isinstance(shape, list) or len(shape) != 2 or not isinstance(text, str):
            raise InputError(f"shape {shown(shape)} and layout {shown(text)} do not lay a matrix out")
        rows, cols = (whole_number(size, "a size of a matrix", 1, LARGEST) for size in shape)
        if rows * cols >= LARGEST:
            raise InputError(f"a matrix of {rows} x {cols} is too large")
        if not isinstance(checksums, list) or len(checksums) != ranks or not all(map(is_checksum, checksums)):
            raise InputError(f"{shown(checksums)} does not have a checksum for each of {ranks} ranks")
        layout = Layout.parse(text, (rows, cols), ranks)
        return cls(given["name"], layout, given["dtype"], given["replica"], tuple(checksums))


def is_checksum(value: Any) -> bool:
    """Whether a value of a file is the text of a checksum."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def part_name(rank: int, checksums: Sequence[str]) -> str:
    """Return the name of a rank's part: another content has another name, so that no save changes a part."""
    return f"rank-{rank}-{blake2b(''.join(checksums).encode(), digest_size=16).hexdigest()}.part"


def part_names(matrices: Sequence[Saved], ranks: int) -> list[str]:
    """Return the names of all ranks' parts."""
    return [part_name(rank, [x.checksums[rank] for x in matrices]) for rank in range(ranks)]


def read_manifest(folder: Path) -> tuple[int, tuple[Saved, ...]]:
    """Return the ranks that saved a checkpoint, and its matrices.

    InputError in one line, if there is none, or it does not say what one is.
    """
    path = folder / MANIFEST
    try:
        missing = not os.path.lexists(path)
    except ValueError:  # a NUL in the path
        missing = False
    if missing:
        raise InputError(f"{folder} has no {MANIFEST}, so it is not a checkpoint")
    text = read_text(path, MOST_BYTES)
    try:
        content = fields_of(parse_json(text, "checkpoint"), "a checkpoint", ("schema", "ranks", "matrices"))
        if content["schema"] != SCHEMA:
            raise InputError(
                f"schema {shown(content['schema'])} is not one that this umm reads; it reads {SCHEMA}"
            )
        ranks = whole_number(content["ranks"], "ranks of a checkpoint", 1, MOST_RANKS + 1)
        if not isinstance(content["matrices"], list):
            raise InputError(f"matrices = {shown(content['matrices'])} is not a list")
        matrices = tuple(Saved.from_dict(x, ranks) for x in content["matrices"])
        if len({x.name for x in matrices}) < len(matrices):
            raise InputError("two of its matrices have one name")
        return ranks, matrices
    except InputError as error:
        raise InputError(f"{path}: {str(error)[:LONGEST]}") from None
