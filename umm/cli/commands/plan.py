"""``umm plan``: each rank's work, and the transfers between ranks."""

from umm.cli.flags.asked import ToSchedule
from umm.cli.flags.declared import command
from umm.cli.flags.framework import OfFramework
from umm.cli.flags.options import Answering, Paged


@command("umm.cli.answers.plan:plan", machine="h100-8")
class Plan(OfFramework, ToSchedule, Paged, Answering):
    """Show which ranks compute which pieces, and what moves from whom to whom, without times.

    Entries come in the order in which the first action of each is written. Ranks that do alike have one line.
    """
