"""The command ``umm``, from its first moment on."""

import atexit
import gc
import os
import signal
from typing import Any

from umm.errors import INTERRUPTED
from umm.host.launcher import handled, launched_rank


def start() -> None:
    """Run the command line; a signal that comes while it is still imported ends it in a line.

    Ranks that mpiexec has started keep what they do with a signal until then.
    """
    # What is imported stays. Looking through it again and again, and at the end, took an eighth of a short
    # command's time.
    gc.disable()
    atexit.register(gc.freeze)
    ends = (signal.SIGINT, signal.SIGTERM) if launched_rank() is None else ()
    with handled(ends, _end):
        from umm.cli.main import main
    main()


def _end(*_: Any) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(INTERRUPTED)
