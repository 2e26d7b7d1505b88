"""The command ``umm``: its subcommands, imported when called, and every failure as one line."""

import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Timer
from time import monotonic
from typing import Any

import click
from click.core import ParameterSource

from umm import __version__
from umm.cli.flags.values import CONFIG
from umm.cli.printed.streams import flushed, open_streams, reader_left, time_is_up
from umm.errors import INTERRUPTED, InputError, UmmError, did_you_mean, short_words
from umm.files import shortened
from umm.host.ending import end
from umm.host.launcher import handled, launched_rank
from umm.quoting.terminal import visible

AGAIN_S = 0.01  # seconds after which a signal comes again that came where nothing can be raised
SECOND_S = 0.5  # seconds after which one more signal is a second: timeout(1) sends two at once
RUNTIME, USAGE = UmmError.exit_code, InputError.exit_code


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called.

    Args:
        lazy: For each command where it is, as ``module:name``, and one line on what it does.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the table."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if no command has this name."""
        if cmd_name not in self.lazy:
            return None
        module, name = self.lazy[cmd_name][0].split(":")
        made = getattr(importlib.import_module(module), name)
        command: click.Command = made.command if hasattr(made, "heading") else made
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest, ``peers --step`` is step's.

        click.UsageError if there is no such command.
        """
        if args[0] not in self.lazy and not args[0].startswith("-"):
            hint = did_you_mean(args[0], self.lazy)
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        if args[0] == "peers" and "--step" in args:
            args = ["step", "--peers", *(x for x in args[1:] if x != "--step")]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.lazy.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; where who reads its output has seen enough, that is no failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if not reader_left():
                raise
            return 0

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line and exit; every failure is one line on stderr and its exit code."""
        extra = {"prog_name": "umm", **extra, "standalone_mode": False}
        open_streams()
        came: list[int] = []
        try:
            with _interrupted_by_signals() as came:
                code = super().main(*args, **extra)
        except UmmError as error:
            code = _fail(str(error), error.exit_code)
        except click.exceptions.Abort as error:
            code = _ended(answered=error.__cause__ is None)
        except click.NoSuchOption as error:
            code = _fail(_no_option(error), USAGE)
        except click.UsageError as error:
            where = f" (see '{error.ctx.command_path} --help')" if error.ctx else ""
            code = _fail(_origin(error) + error.format_message() + where, USAGE)
        except click.ClickException as error:
            code = _fail(error.format_message(), USAGE)
        except MemoryError as error:
            reason = f": {error}" if str(error) else ""
            advice = "try smaller m, n or k, or larger tiles"
            code = _fail(f"not enough memory on this host{reason}; {advice}", RUNTIME)
        except OSError as error:
            named = f"{os.fspath(error.filename)}: " if isinstance(error.filename, str) else ""
            code = _fail(f"{named}{error.strerror or error}", USAGE if named else RUNTIME)
        except Exception:  # made of a signal, amid the making of a class or numpy's comparison of records
            if not came:
                raise
            code = _ended(answered=False)
        code, failure = flushed(code if isinstance(code, int) else 0)
        sys.exit(_fail(failure, code) if failure else code)


def _ended(answered: bool) -> int:
    """Say that a command was ended early, and return its exit code."""
    # answered: whether it has shown what it had found.
    seconds = time_is_up()
    if seconds is None:
        return _fail("interrupted", INTERRUPTED)
    if not answered:
        return _fail(f"nothing was found in {seconds:g} s; allow more --seconds or fewer layouts", RUNTIME)
    click.echo(f"stopped after {seconds:g} s, as asked; what is shown is the best so far", err=True)
    return 0


@contextmanager
def _interrupted_by_signals() -> Iterator[list[int]]:
    """Yield the list of received signals; SIGTERM and SIGHUP end a command as Ctrl-C does."""
    # Batch systems send the first, a terminal that closes the second. Ranks that mpiexec has started keep
    # what they do with these two. A second signal ends the command at once, whatever it still has to show.
    came: list[int] = []
    first = 0.0

    def interrupt(number: int, _: Any) -> None:
        nonlocal first
        if came and monotonic() - first < SECOND_S:
            return
        if came:
            end()
        first = monotonic()
        came.append(number)
        raise KeyboardInterrupt

    def lost(what: Any) -> None:
        if not came or not issubclass(what.exc_type, KeyboardInterrupt):
            usual(what)
            return
        while came:  # also where it comes again before its timer has started
            again = Timer(AGAIN_S, os.kill, (os.getpid(), came.pop()))  # a callback cannot raise
            again.daemon = True
            with suppress(KeyboardInterrupt):
                again.start()

    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if launched_rank() is None else (signal.SIGINT,)
    usual, sys.unraisablehook = sys.unraisablehook, lost
    try:
        with handled(ends, interrupt, instead=end):
            yield came
    finally:
        sys.unraisablehook = usual


def _no_option(error: click.NoSuchOption) -> str:
    """Return that there is no such option, and the nearest; a long one may be meant to be short."""
    name, command = error.option_name, error.ctx.command if error.ctx else None
    short = "-" + name.lstrip("-")
    known = [flag for param in command.params for flag in param.opts] if command else []
    where = f" (see '{error.ctx.command_path} --help')" if error.ctx else ""
    if short in known:
        return f"there is no option {name}; write {short}{where}"
    if name == "--layouts" and "--chain" in known and error.ctx:
        return f"{error.ctx.command_path} chooses a chain's layouts itself; give --layouts to umm simulate"
    return error.format_message() + where


def _origin(error: click.UsageError) -> str:
    """Return the variable or the file that gave a bad value, empty if it was typed."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return ""
    source = error.ctx.get_parameter_source(error.param.name or "")
    if source is ParameterSource.ENVIRONMENT:
        return f"{error.param.envvar}: "
    if source is ParameterSource.DEFAULT_MAP and CONFIG in error.ctx.meta:
        return f"{error.ctx.meta[CONFIG]}: "
    return ""


def _fail(message: str, code: int) -> int:
    if not launched_rank():  # of all ranks that mpiexec started, the first speaks
        click.echo(f"error: {shortened(visible(short_words(' '.join(message.split()))))}", err=True)
    return code


COMMANDS = {
    "simulate": ("umm.cli.commands.simulate:Simulate", "Predict one multiply on one machine."),
    "search": ("umm.cli.commands.search:Search", "Find the best layouts for a problem and a machine."),
    "step": ("umm.cli.commands.step:Step", "Predict a training step, or find the fastest way to spread it."),
    "serve": ("umm.cli.commands.serve:Serve", "Predict a deployment: first token, further tokens, memory."),
    "muon": ("umm.cli.commands.muon:Muon", "Plan where Muon orthogonalises each weight."),
    "sweep": ("umm.cli.commands.sweep:Sweep", "Run every point of a space and store the results."),
    "peers": ("umm.cli.commands.peers:Peer", "Compare with other algorithms and training systems."),
    "fuse": ("umm.cli.commands.collective:Fuse", "Decide whether to fuse a multiply with its collective."),
    "run": ("umm.cli.commands.run:Run", "Execute a schedule for real and check the product."),
    "compare": ("umm.cli.commands.compare:Compare", "Compare a predicted trace with a measured one."),
    "collective": ("umm.cli.commands.collective:Sized", "Time a collective over sizes."),
    "what-if": ("umm.cli.commands.what_if:WhatIf", "Show what would change the answer of a search."),
    "explore": ("umm.cli.commands.explore:Explore", "Explore layouts and replication factors on a page."),
    "plan": ("umm.cli.commands.plan:Plan", "Show who computes what, and what moves from whom to whom."),
    "tiles": ("umm.cli.commands.tiles:Tiles", "Show who owns which tile of A, B and C."),
    "machine": ("umm.cli.commands.machine:machine", "List, show, check and calibrate machines."),
    "model": ("umm.cli.commands.model:OfModel", "Show a model's layers and parameters."),
    "models": ("umm.cli.commands.model:Models", "List the models that are known by name."),
    "mcp": ("umm.mcp.command:Mcp", "Serve commands as tools for agents."),
    "demo": ("umm.cli.commands.demo:Demo", "Search, multiply real matrices and write a page."),
    "doctor": ("umm.cli.commands.doctor:Doctor", "Show what is installed and what can run here."),
}
EPILOG = """\b
Start with:
  umm simulate --machine h100-8 --preset mlp1 --a col --b col --c col
  umm search --machine pvc-12 --preset mlp1

A flag can also be set as UMM_<FLAG> in the environment or in a TOML file given with --config; a flag wins
over the environment, that over the file, that over a preset. Exit codes: 0 fine, 1 runtime error, 2 bad
input, 3 nothing feasible, 4 check or tolerance failed, 5 executor not available here, 130 interrupted."""


@click.group(
    "umm",
    cls=LazyGroup,
    lazy=COMMANDS,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="umm")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Which partition and replication should a distributed matrix multiply C = AB have?

    Simulate it on a model of the machine, search for the best, execute the same schedule for real, and
    compare the two.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


if __name__ == "__main__":
    main()
