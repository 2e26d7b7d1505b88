"""``umm demo``: search the paper's MLP-1 on two machines, execute the best layouts, write a page."""

from pathlib import Path

from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import WRITE, Printed


@command("umm.cli.answers.demo:demo")
class Demo(Printed):
    """Search the paper's MLP-1 on two machines, execute the best layouts on real matrices, write a page.

    The real multiplies have one sixteenth of m, n and k, and are done by NumPy in this process.
    """

    html: Path = flag(type=WRITE, default="umm-demo.html", help="The page to write.")
