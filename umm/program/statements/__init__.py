"""The kinds of statements of a chain: a kind is one file of this folder, found by being there.

Its class says all that others ask of it: fields, what it reads and writes, checks, flop, and its reference in
NumPy; see :class:`~umm.program.statements.base.Statement`. How it becomes actions is a file of
:mod:`umm.plans.statements`.
"""

from collections.abc import Iterable
from typing import TypeVar

from umm.program.statements.base import Statement, reading, renamed, statement_from_dict, statement_to_dict

Kind = TypeVar("Kind", bound=Statement)


def of_kind(kind: type[Kind], statements: Iterable[Statement]) -> list[Kind]:
    """Return the statements of one kind, in order."""
    return [x for x in statements if isinstance(x, kind)]


__all__ = ["Statement", "of_kind", "reading", "renamed", "statement_from_dict", "statement_to_dict"]
