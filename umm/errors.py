"""The errors umm raises on purpose, each with the exit code its command ends in."""

INTERRUPTED = 130
"""What a command ends with after Ctrl-C."""


class UmmError(Exception):
    """A failure with one clear line: what was asked, why it cannot be, what would work.

    Attributes:
        exit_code: What the command line ends with.
    """

    exit_code = 1


class InputError(UmmError, ValueError):
    """What was asked cannot be: a usage error, a bad value or a bad file."""

    exit_code = 2


class LayoutError(InputError):
    """A layout that does not exist, such as 3 equal replicas of 8 ranks."""


class ProblemError(InputError):
    """A problem whose sizes, layouts or ranks do not fit together."""


class MachineError(InputError):
    """A machine that is unknown, or a topology file that does not describe one."""


class ScheduleError(InputError):
    """A schedule that breaks its own rules, or a file that does not hold one."""


class InfeasibleError(UmmError):
    """Nothing fits the limits that were asked for."""

    exit_code = 3


class CheckError(UmmError):
    """A product, tolerance or comparison that did not hold."""

    exit_code = 4


class ExecutorUnavailableError(UmmError):
    """An executor that cannot run here; the message ends with the line that fixes it."""

    exit_code = 5
