"""``umm doctor``: installed packages, executors that can run here, and remedies for those that cannot."""

from umm.cli.flags.declared import command
from umm.cli.flags.options import Answering


@command("umm.cli.answers.doctor:doctor")
class Doctor(Answering):
    """Show what is installed and what can run here, and the command that installs what is missing."""
