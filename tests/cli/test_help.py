"""Help shows of many flags those that most need, in groups; a command is a class of flags and a function."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command import umm

from umm.cli.flags.declared import MAX_UNGROUPED_FLAGS, argument, command, flag
from umm.cli.flags.options import Answering
from umm.cli.main import COMMANDS, main
from umm.units import parse_dimension


def test_help_of_simulate_shows_twenty_flags_in_groups_on_a_screen_and_a_half():
    """41 lines of 80 columns where it had 184; each flag is a line."""
    text = umm("simulate", "--help").stdout
    flags = [line for line in text.splitlines() if line.startswith("  -")]
    assert len(flags) == 20 + 2  # and --help-all, --help
    assert len(text.splitlines()) <= 42
    assert max(map(len, text.splitlines())) <= 80
    heads = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert heads == ["Problem:", "Machine:", "Chain:", "Schedule:", "Output:"]


def test_help_says_of_sizes_what_they_are_read_as():
    """K and M both are powers of 1024: it once said "48K means 49152, 10M 10000000"."""
    text = " ".join(umm("simulate", "--help-all").stdout.split())
    sizes = re.search(r"; (\d+K) means (\d+), (\d+M) (\d+), (1e6) a million", text)
    assert sizes
    assert [parse_dimension(sizes[x]) for x in (1, 3, 5)] == [int(sizes[2]), int(sizes[4]), 10**6]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_all_shows_every_flag_of_a_command(name):
    made = main.get_command(click.Context(main), name)
    many = len([x for x in made.params if x.name != "help_all"]) > MAX_UNGROUPED_FLAGS
    text = umm(name, "--help-all" if many else "--help").stdout
    for param in made.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert f"{param.opts[0]} " in text.replace(",", " ").replace("/", " ").replace("\n", " ")


class Greeting(Answering):
    """Greet somebody."""

    name: str = argument()
    times: int = flag(type=click.IntRange(1), default=1, help="How often.")
    html: Path | None = flag(type=click.Path(path_type=Path), help="Write a page.")


def greet(asked: Greeting) -> None:
    words = " ".join([f"Hello {asked.name}!"] * asked.times)
    asked.answer(lambda: {"words": words}, lambda console: console.print(words))


GREET = command(greet)(Greeting).command


@pytest.mark.parametrize(
    ("args", "printed"),
    [
        (["you"], "Hello you!\n"),
        (["you", "--times", "2"], "Hello you! Hello you!\n"),
    ],
)
def test_a_command_is_a_class_of_flags_and_a_function(args, printed):
    assert GREET.help == "Greet somebody."
    assert CliRunner().invoke(GREET, args).stdout == printed


def test_a_flag_is_also_a_variable_and_a_default_may_differ_by_command(monkeypatch):
    monkeypatch.setenv("UMM_TIMES", "2")
    assert CliRunner().invoke(GREET, ["you"]).stdout == "Hello you! Hello you!\n"
    monkeypatch.delenv("UMM_TIMES")
    thrice = command(lambda asked: print(asked.times), times=3)(Greeting).command
    assert CliRunner().invoke(thrice, ["you"]).stdout == "3\n"


def test_of_two_classes_the_one_that_declares_a_flag_itself_decides():
    """dataclass alone would take it from the last of them that has it, inherited or not."""

    class Louder(Greeting):
        times: int = flag(default=9, type=int, help="How often.")

    class Politer(Greeting):
        please: bool = flag(is_flag=True, help="Say please.")

    class Both(Politer, Louder):
        """Both."""

    shown = command(lambda asked: print(asked.times))(Both).command
    assert CliRunner().invoke(shown, ["you"]).stdout == "9\n"
