"""Several multiplies and maps over named tensors: the statements, and what they give in float64.

A chain says what is computed, on whole tensors; a schedule of it says how. :meth:`Chain.reference` is what
every executor's results are compared with.
"""

from umm.chains.chain import Chain
from umm.chains.files import load_chain, save_chain
from umm.chains.multiply import Multiply
from umm.chains.outline import Outline, Shape
from umm.chains.statements import Copy, Map, Statement, Sum

__all__ = [
    "Chain",
    "Copy",
    "Map",
    "Multiply",
    "Outline",
    "Shape",
    "Statement",
    "Sum",
    "load_chain",
    "save_chain",
]
