"""How many examples laws have: fewer in ``make test``, all in ``make test-all`` (``UMM_TESTS=all``)."""

import os
from math import ceil

WHOLE = os.environ.get("UMM_TESTS") == "all"
SHARE = 0.2


def examples(count: int) -> int:
    """How many of so many examples are run."""
    return count if WHOLE else ceil(SHARE * count)
