"""A predicted step as ``umm step --json`` wrote it, asked again."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from umm.errors import InputError
from umm.files import fields_of, read_json
from umm.machines import machine
from umm.machines.settings import split_settings
from umm.program.models import find_model
from umm.step.parallel import Parallel
from umm.step.step import Question, question, rates_of, with_prediction

MOST_RECORD = 2**22  # bytes of a record: a search's has a hundred configurations at most


def load_question(path: str | Path) -> Question:
    """Return the step that a record answers.

    InputError if the file is no such record, or what it asks cannot be.
    """
    data = read_json(path, "record of a step", MOST_RECORD)
    if not isinstance(data, dict) or data.get("command") != "step" or "asked" not in data:
        raise InputError(f"{path} is no record of a step; write one with umm step … --json -o step.json")
    try:
        asked = fields_of(data["asked"], "asked", ("model", "machine", "power_w"), ("ignore", "mtp"))
        sizes: Any = data.get("configuration")
        known = [x.name for x in fields(Parallel)]
        if not isinstance(sizes, dict) or not all(x in sizes for x in ("ranks", "batch", "length")):
            raise InputError("its configuration lacks ranks, batch or length")
        for x in fields(Parallel):
            kind = str if x.type in (str, "str") else int
            if type(sizes.get(x.name, kind())) is not kind:
                raise InputError(f"{x.name} of its configuration is no {'text' if kind is str else 'number'}")
        if not (isinstance(asked["model"], str) and isinstance(asked["machine"], str)):
            raise InputError("its model and machine must be texts")
        power, ignored = asked["power_w"], asked.get("ignore", [])
        if not (isinstance(ignored, list) and all(isinstance(x, str) for x in ignored)):
            raise InputError("its ignore is no list of keys")
        if isinstance(power, bool) or not isinstance(power, int | float):
            raise InputError("its power_w is no number")
        depths = asked.get("mtp")
        if type(depths) not in (int, type(None)):
            raise InputError("its mtp is no number")
        name, settings = split_settings(asked["machine"])
        parallel = Parallel(**{key: value for key, value in sizes.items() if key in known})
        rates = rates_of(machine(name, settings), parallel.precision, str(data.get("stack")), float(power))
        model = find_model(asked["model"], ignored)
        return question(model if depths is None else with_prediction(model, depths), parallel, rates)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
