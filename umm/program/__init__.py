"""Programs: statements over named tensors, or one multiply, and their results in float64.

A chain says what is computed, on whole tensors; a schedule of it says how. :meth:`Chain.reference` is what
every executor's results are compared with.
"""

from umm.program.attention import Attention, AttentionGrad
from umm.program.chain import Chain
from umm.program.experts import Combine, Dispatch, Grouped, SumCopies
from umm.program.files import load_chain, save_chain
from umm.program.multiply import Multiply
from umm.program.outline import Outline, Shape
from umm.program.statements import Copy, Map, Statement, Sum

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
