"""The command ``umm``, from its first moment on."""

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
    gc.disable()  # what is imported stays: looking through it again and again took a tenth of a short command
    ends = (signal.SIGINT, signal.SIGTERM) if launched_rank() is None else ()
    with handled(ends, _end):
        from umm.cli.main import main
    main()


def _end(*_: Any) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(INTERRUPTED)
