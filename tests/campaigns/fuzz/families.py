"""All families of cases by name, and how often each is drawn."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from fuzz import commands, files, outside, page, schedules, stores, texts


class Family(NamedTuple):
    """Cases of one kind.

    Attributes:
        case: Takes a source of chance and a folder of its own; raises what it finds.
        share: How often it is drawn, of the sum of all shares.
    """

    case: Callable[[Random, Path], str]
    share: int


FAMILIES = {
    "quantity": Family(texts.quantity, 12),
    "layout": Family(texts.layout, 14),
    "setting": Family(texts.setting, 4),
    "given": Family(texts.given, 4),
    "topology": Family(files.topology, 10),
    "schedule": Family(schedules.schedule, 10),
    "trace": Family(schedules.trace, 8),
    "chain": Family(files.chain_file, 5),
    "checkpoint": Family(files.checkpoint, 4),
    "described": Family(files.described, 3),
    "log": Family(outside.log, 6),
    "model": Family(outside.model, 4),
    "numbers": Family(outside.numbers, 2),
    "no file": Family(outside.no_file, 2),
    "odd file": Family(files.odd_file, 1),
    "saved again": Family(schedules.saved_again, 2),
    "store": Family(stores.store, 3),
    "resumed": Family(stores.resumed, 1),
    "config": Family(commands.config, 6),
    "command": Family(commands.command_line, 6),
    "address": Family(page.address, 6),
    "upload": Family(page.upload, 4),
    "request": Family(page.request, 3),
    "keys": Family(files.keys, 2),
}


def chance(family: str, seed: int, number: int) -> Random:
    """Return the source of a case's draws: the same for the same family, seed and number."""
    return Random(f"{family}/{seed}/{number}")


def drawn(seed: int, number: int) -> str:
    """Return the family of a case of the whole run."""
    names, shares = list(FAMILIES), [x.share for x in FAMILIES.values()]
    return Random(f"family/{seed}/{number}").choices(names, shares)[0]
