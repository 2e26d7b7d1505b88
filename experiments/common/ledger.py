"""Rows of the ledger: a document's claim, the result here, and whether the two agree."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

REPRODUCED, NOT_REPRODUCED, REFUTED, INPUT = "reproduced", "not reproduced", "refuted", "input"


class Entry(NamedTuple):
    """A line of the ledger.

    Attributes:
        claim: What the document says.
        where: Where it says so.
        got: What came out here.
        verdict: Whether the two agree, and why not.
        hangs_on: The parameters that decide it.
    """

    claim: str
    where: str
    got: str
    verdict: str
    hangs_on: str = ""


Sections = Mapping[str, Sequence[Entry]]
"""The entries of a document under their headings."""


def reproduced(claim: str, where: str, got: str, holds: bool, hangs_on: str = "", why: str = "") -> Entry:
    """Return the entry of a claim that a check has been made of.

    Args:
        claim: What the document says.
        where: Where.
        got: What came out here.
        holds: Whether the check is fulfilled.
        hangs_on: The parameters that decide it.
        why: Why it is not reproduced, if it is not.
    """
    verdict = REPRODUCED if holds else f"{NOT_REPRODUCED}: {why or 'the check fails'}"
    return Entry(claim, where, got, verdict, hangs_on)


def refuted(claim: str, where: str, got: str, holds: bool, why: str, hangs_on: str = "") -> Entry:
    """Return the entry of a claim that is wrong.

    Args:
        claim: What the document says.
        where: Where.
        got: What came out here.
        holds: Whether what came out does contradict it.
        why: What is wrong with it.
        hangs_on: The parameters that decide it.
    """
    verdict = f"{REFUTED}: {why}" if holds else f"{NOT_REPRODUCED}: nothing here contradicts it"
    return Entry(claim, where, got, verdict, hangs_on)


def given(claim: str, where: str, got: str, holds: bool = True, hangs_on: str = "") -> Entry:
    """Return the entry of a number that a document gives and is used here as it is."""
    return Entry(claim, where, got, INPUT if holds else f"{NOT_REPRODUCED}: not what is used here", hangs_on)
