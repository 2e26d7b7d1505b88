"""Programs: statements over named tensors, or one multiply, and their results in float64.

A chain says what is computed, on whole tensors; a schedule of it says how. :meth:`Chain.reference` is what
every executor's results are compared with.
"""

from umm.program.chain import Chain
from umm.program.files import load_chain, save_chain
from umm.program.outline import Outline, Shape
from umm.program.statements import Statement
from umm.program.statements.attention import Attention, AttentionGrad
from umm.program.statements.combine import Combine
from umm.program.statements.copies import Copy
from umm.program.statements.dispatch import Dispatch
from umm.program.statements.grouped import Grouped
from umm.program.statements.maps import Map
from umm.program.statements.multiply import Multiply
from umm.program.statements.sum_copies import SumCopies
from umm.program.statements.sums import Sum

__all__ = [
    "Attention",
    "AttentionGrad",
    "Chain",
    "Combine",
    "Copy",
    "Dispatch",
    "Grouped",
    "Map",
    "Multiply",
    "Outline",
    "Shape",
    "Statement",
    "Sum",
    "SumCopies",
    "load_chain",
    "save_chain",
]
