"""Checkpoints: matrices in a folder, a part for each rank that saved them, read back in any layout."""

from umm.checkpoints.reading import Checkpoint, load
from umm.checkpoints.writing import commit, made, save, write_part

__all__ = ["Checkpoint", "commit", "load", "made", "save", "write_part"]
