"""Files changed at random: each is refused in one line, or holds just its text's values."""

import json
from random import Random

import numpy as np
import pytest
from examples import examples
from mutated import DEEP, changed, other_array, paths, said
from programs import program
from readable import made
from same_schedules import assert_same

from umm.errors import ScheduleError
from umm.schedules.file.arrays import from_arrays, to_arrays
from umm.schedules.schedule import Schedule

MUTANTS = examples(1200)  # of each file
FILES = {
    "gets-2": lambda: made("gets-2"),
    "remote-c-2": lambda: made("remote-c-2"),
    "a chain": lambda: program(8, 6),
    "a problem": lambda: program(1, 6, signals=True),
}


def loaded(load):
    """A schedule, or why it is refused; no other error is one."""
    try:
        return load(), None
    except ScheduleError as error:
        return None, str(error)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused_or_taken_as_it_says(name):
    full = FILES[name]().to_json()
    places, random = list(paths(json.loads(full))), Random(name)
    taken = 0
    for number in range(MUTANTS):
        mutant = changed(full, places, random)
        text = json.dumps(mutant).replace('"deep"', DEEP)
        schedule, refusal = loaded(lambda text=text: Schedule.from_json(text))
        if schedule is None:
            assert refusal.isprintable(), (number, refusal)
            assert len(refusal) < 400, (number, refusal)
            continue
        taken += 1
        assert said(json.loads(schedule.to_json())) == said(json.loads(text)), number
    assert MUTANTS / 24 < taken < MUTANTS / 2


# The .npz form -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_changed_arrays_are_refused_or_taken_as_they_are(name):
    full, random = to_arrays(FILES[name]()), Random(name)
    taken = 0
    for number in range(MUTANTS // 2):
        arrays = dict(full)
        for key in random.sample(list(arrays), random.choice((1, 1, 2))):
            arrays[key] = other_array(arrays[key], random)
        if not random.randrange(20):
            del arrays[random.choice(list(arrays))]
        schedule, refusal = loaded(lambda arrays=arrays: from_arrays(arrays, Schedule))
        if schedule is None:
            assert refusal.isprintable(), (number, refusal)
            continue
        taken += 1
        again = to_arrays(schedule)
        for key in again:
            if key != "header":
                assert np.array_equal(again[key], arrays[key]), (number, key)
        assert_same(schedule, Schedule.from_json(schedule.to_json()))
    assert taken > MUTANTS / 120
