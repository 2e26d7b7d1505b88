"""The work of Python counted in calls: a test of speed that holds on every host."""

import sys
from contextlib import contextmanager


@contextmanager
def at_most(calls):
    """Fail where a block calls more functions than that, of Python or of C."""
    made = 0

    def count(frame, event, arg):
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert made <= calls, f"{made:,} calls"
