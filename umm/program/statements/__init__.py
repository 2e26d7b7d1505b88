"""The kinds of statements of a chain: a kind is one file of this folder, found by being there.

Its class says all that others ask of it: fields, what it reads and writes, checks, flop, and its reference in
NumPy; see :class:`~umm.program.statements.base.Statement`. How it becomes actions is a file of
:mod:`umm.plans.statements`.
"""

from importlib import import_module
from pkgutil import iter_modules

from umm.program.statements.base import (
    KINDS,
    Statement,
    reading,
    renamed,
    statement_from_dict,
    statement_to_dict,
)

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")

__all__ = ["KINDS", "Statement", "reading", "renamed", "statement_from_dict", "statement_to_dict"]
