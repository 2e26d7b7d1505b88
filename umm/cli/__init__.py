"""The command ``umm``, from its first moment on."""

import os  # and hardly anything else: before start, a signal ends Python in a traceback

from umm.host.ending import end


def start() -> None:
    """Run the command line; a signal ends it in a line, from here to its last moment.

    Ranks that mpiexec has started keep what they do with a signal.
    """
    import signal

    if not any(name in os.environ for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")):
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, end)
    import atexit
    import gc

    # What is imported stays. Looking through it again and again, and at the end, took an eighth of a short
    # command's time.
    gc.disable()
    # No model here has a plug-in of pydantic's, which looks for them in a file of each installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    atexit.register(gc.freeze)
    from umm import kept
    from umm.cli.main import main

    kept.allow()
    main()
