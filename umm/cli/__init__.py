"""The command ``umm``, from its first moment on."""

import os
import signal
from typing import Any


def start() -> None:
    """Run the command line; a signal that comes while it is still imported ends it in a line."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    taken = [number for number in usual if signal.getsignal(number) is usual[number]]
    for number in taken:
        signal.signal(number, _end)
    from umm.cli.main import main

    for number in taken:
        signal.signal(number, usual[number])
    main()


def _end(*_: Any) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(130)
