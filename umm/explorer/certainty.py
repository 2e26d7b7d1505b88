"""How sure a point's makespan is and which assumed number decides: dozens of simulations, behind the page."""

from collections.abc import Callable
from typing import Any

from umm.explorer.background import Question, Send


class Sure(Question):
    """What one function returns.

    Attributes:
        found: It, once there is an answer; None before.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__()
        self._function, self._arguments = function, arguments
        self.found: Any = None

    def asked(self) -> tuple[Any, ...]:
        """Return what the process does."""
        return look, self._function, *self._arguments

    def take(self, message: Any) -> None:
        """Take in the answer."""
        self.found = message


def look(send: Send, function: Callable[..., Any], *arguments: Any) -> None:
    """Tell what a function returns; it runs in a process of its own."""
    send(function(*arguments))
