"""The command ``umm``, from its first moment on."""

import os
import signal
from typing import Any

from umm.host.launcher import launched_rank


def start() -> None:
    """Run the command line; a signal that comes while it is still imported ends it in a line.

    Ranks that mpiexec has started keep what they do with a signal, as they do when the command runs.
    """
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    taken = [x for x in usual if signal.getsignal(x) is usual[x]] if launched_rank() is None else []
    for number in taken:
        signal.signal(number, _end)
    from umm.cli.main import main

    for number in taken:
        signal.signal(number, usual[number])
    main()


def _end(*_: Any) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(130)
