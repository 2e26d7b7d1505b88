"""Programs: statements over named tensors, or one multiply, and their results in float64.

A chain says what is computed, on whole tensors; a schedule of it says how. :meth:`Chain.reference` is what
every executor's results are compared with.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umm.program.chain import Chain as Chain
    from umm.program.files import load_chain as load_chain
    from umm.program.files import save_chain as save_chain
    from umm.program.outline import Outline as Outline
    from umm.program.outline import Shape as Shape
    from umm.program.statements import Statement as Statement
    from umm.program.statements.attention import Attention as Attention
    from umm.program.statements.attention import AttentionGrad as AttentionGrad
    from umm.program.statements.combine import Combine as Combine
    from umm.program.statements.copies import Copy as Copy
    from umm.program.statements.dispatch import Dispatch as Dispatch
    from umm.program.statements.grouped import Grouped as Grouped
    from umm.program.statements.maps import Map as Map
    from umm.program.statements.multiply import Multiply as Multiply
    from umm.program.statements.sum_copies import SumCopies as SumCopies
    from umm.program.statements.sums import Sum as Sum

# Where each name lives; a module is imported when one of them is first used.
_HOMES = {
    "Attention": "umm.program.statements.attention",
    "AttentionGrad": "umm.program.statements.attention",
    "Chain": "umm.program.chain",
    "Combine": "umm.program.statements.combine",
    "Copy": "umm.program.statements.copies",
    "Dispatch": "umm.program.statements.dispatch",
    "Grouped": "umm.program.statements.grouped",
    "Map": "umm.program.statements.maps",
    "Multiply": "umm.program.statements.multiply",
    "Outline": "umm.program.outline",
    "Shape": "umm.program.outline",
    "Statement": "umm.program.statements",
    "Sum": "umm.program.statements.sums",
    "SumCopies": "umm.program.statements.sum_copies",
    "load_chain": "umm.program.files",
    "save_chain": "umm.program.files",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umm.program' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
