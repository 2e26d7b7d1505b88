"""Schedules in files: JSON for exchange, .npz for large ones."""

from pathlib import Path

import numpy as np

from umm.arrays import Archive
from umm.errors import InputError, ScheduleError
from umm.files import read_text, whole_file
from umm.schedules.file.arrays import from_arrays, to_arrays
from umm.schedules.file.codec import as_schedule_error, to_json
from umm.schedules.schedule import Schedule


def save(schedule: Schedule, path: str | Path) -> None:
    """Write a schedule to a file, as .npz if the name ends so, else as JSON; nothing is half-written."""
    with whole_file(path) as partial:
        if Path(path).suffix == ".npz":
            with partial.open("wb") as file:
                np.savez_compressed(file, **to_arrays(schedule))
        else:
            partial.write_text(to_json(schedule), encoding="utf-8")


def load(path: str | Path) -> Schedule:
    """Read a schedule from a file that :func:`save` wrote.

    ScheduleError if the file cannot be read or does not hold a schedule.
    """
    path = Path(path)
    packed = path.suffix == ".npz"
    with as_schedule_error():
        text = "" if packed else read_text(path)
    try:
        return from_arrays(Archive(path), Schedule) if packed else Schedule.from_json(text)
    except OSError as error:
        raise ScheduleError(f"cannot read {path}: {error.strerror or 'not a file of this form'}") from None
    except InputError as error:
        raise ScheduleError(f"{path}: {error}") from None
