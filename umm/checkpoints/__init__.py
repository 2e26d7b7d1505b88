"""Checkpoints: matrices in a folder, a part for each rank that saved them, read back in any layout."""

from umm.checkpoints.reading import Checkpoint, load
from umm.checkpoints.writing import check_folder, commit, save, write_part

__all__ = ["Checkpoint", "check_folder", "commit", "load", "save", "write_part"]
