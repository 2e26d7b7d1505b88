"""A command is declared once: a class of its request, whose fields are flags and whose text is the help."""

import gc
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from importlib import import_module
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform

import click
from click.core import ParameterSource

from umm.cli.printed.output import Output
from umm.errors import InputError, UmmError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

ROOM, MOST_TYPED = 50, 24
"""Columns of a line of help, and of the flag before it, where only those are shown that most need."""
MAX_UNGROUPED_FLAGS = 24  # flags of a command whose help shows all of them
HEADINGS = (
    "Problem", "Machine", "Chain", "Schedule", "Space", "Execution", "Noise", "Options", "Output",
)  # fmt: skip
"""Of the groups in a command's help, in this order."""

IMPLIED: Mapping[Any, Mapping[str, Any]] = {
    bool: {"is_flag": True}, int: {"type": int}, int | None: {"type": int}, float: {"type": float},
}  # fmt: skip
"""Click's arguments of a flag that follow from the type of its field; its default is shown unless empty."""


@dataclass(frozen=True)
class Flag:
    """A flag's arguments for Click, and whether it is one of the usual ones."""

    names: tuple[str, ...]
    usual: bool
    settings: Mapping[str, Any]

    def option(self, name: str, kind: Any, default: Any = None) -> click.Option:
        """Return the Click option that sets a field of a kind, which ``UMM_<NAME>`` can also set."""
        names = self.names or (f"--{name.replace('_', '-')}",)
        long = next((x for x in names if x.startswith("--")), names[0])
        variable = "UMM_" + long.split("/")[0].strip("- ").replace("-", "_").upper()
        settings = dict(self.settings) if default is None else {**self.settings, "default": default}
        if "callback" not in settings:
            settings = {**IMPLIED.get(kind, {}), **settings}
        usual = settings.get("default")
        settings.setdefault("show_default", bool(usual) and usual is not True)
        if not callable(text := settings.get("help")):
            return click.Option([*names, name], envvar=variable, **settings)
        late = Late([*names, name], envvar=variable, **settings | {"help": None})
        late.text = text
        return late


class Late(click.Option):
    """An option whose help is made when it is read, from modules that its command does without."""

    text: Callable[[], str] | None = None

    @property
    def help(self) -> str | None:
        """The help."""
        return self.text and self.text()

    @help.setter  # noqa: A003
    def help(self, _: str | None) -> None:
        """Leave the help to the text."""


def flag(*names: str, usual: bool = False, **settings: Any) -> Any:
    """Return a field that a flag sets, by default the one of its name.

    Args:
        names: As they are typed; none for the field's own name with dashes.
        usual: Whether a command with many flags shows it without --help-all.
    """
    return field(default=None, metadata={"flags": {"": Flag(names, usual, settings)}})


def flags(group: Mapping[str, Flag]) -> Any:
    """Return a field that holds the values of several flags by their names."""
    return field(default=None, metadata={"flags": group})


def argument(**settings: Any) -> Any:
    """Return a field that an argument of the command sets."""
    return field(default=None, metadata={"argument": settings})


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(flag, flags, argument, field)
)
class Declared:
    """A frozen dataclass whose fields are flags, under one heading of help."""

    heading: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, heading: str = "Options") -> None:
        cls.heading, cls.names = heading, tuple(get_annotations(cls))
        # dataclass takes a field from the last of several bases that have it, inherited or not; an override
        # counts as for any attribute: of two bases the one that declares it itself, and nearer.
        owners = {name: x for x in reversed(cls.__mro__[1:]) for name in vars(x).get("names", ())}
        for name in owners.keys() - {*cls.names}:
            inherited = cast(Any, owners[name]).__dataclass_fields__[name]
            cls.__annotations__[name] = inherited.type
            setattr(cls, name, field(default=inherited.default, metadata=inherited.metadata))
        # Six generated methods for each of 60 classes took a tenth of a second of every command.
        dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)

    def __init__(self, **values: Any) -> None:
        usual = {x.name: x.default for x in fields(cast(Any, self))}
        if unlike := (values.keys() - usual) | {x for x in usual.keys() - values if usual[x] is MISSING}:
            raise TypeError(f"{type(self).__name__} lacks, or does not take, {', '.join(sorted(unlike))}")
        vars(self).update(usual | values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")


class Asked(Declared):
    """A command's request: the fields of its subclasses are flags."""

    command: ClassVar["Command"]
    ctx: click.Context = field(repr=False)  # the command as Click runs it
    output: Output  # where answers and notes go

    def typed(self, names: Iterable[str]) -> list[str]:
        """Return those of some flags that were typed, as they are typed."""
        typed = [x for x in names if self.ctx.get_parameter_source(x) is ParameterSource.COMMANDLINE]
        flags = {param.name: param.opts[0] for param in self.ctx.command.params}
        return [flags[name] for name in typed]

    def refuse(self, names: Iterable[str], why: str, *others: str) -> None:
        """Refuse flags that mean nothing here; InputError if one is typed, or another thing is given.

        Args:
            why: The line of the error, with ``{}`` in place of those.
            others: Other things that are given.
        """
        if typed := [*self.typed(names), *others]:
            raise InputError(why.replace("{}", ", ".join(typed), 1))

    def answer(
        self,
        record: Callable[[], dict[str, Any]],
        shown: Callable[["Console"], None],
        page: Iterable[Any] = (),
        wrong: UmmError | None = None,
    ) -> None:
        """Give an answer in the form that was asked for, and end as one that was ended early if it was.

        UmmError if what is wrong. click.Abort if it was ended early.

        Args:
            record: Returns it as plain values, for --json.
            page: The arguments of :func:`umm.figures.report.page`, for --html.
            wrong: What the command fails with after that; None if the answer is right.
        """
        if self.output.as_json:
            self.output.json(self.ctx.command_path.partition(" ")[2], record())
        else:
            shown(self.output.console())
        self.paged(*page)
        if wrong is not None:
            raise wrong
        self.output.end()

    def paged(self, *result: Any) -> None:
        """Write a result's page where --html asks for one."""
        html = getattr(self, "html", None)
        if result and html is not None:
            from umm.figures.pages import write

            write(html, *result)
            self.output.note(f"wrote {html}; it opens in any browser, offline")


A = TypeVar("A", bound=Asked)


def names_of(asked: type[Asked]) -> list[str]:
    """Return the names of the flags that a class and those it extends declare."""
    return [key or x.name for x in fields(asked) for key in x.metadata.get("flags", ())]


class Command(click.Command):
    """A command whose help is in groups, and of many flags shows those that most need."""

    # The heading under which each flag is shown, and whether it is one that most need.
    groups: Mapping[str, tuple[str, bool]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags in groups; of many without --help-all those that most need."""
        params = [x for x in self.get_params(ctx) if isinstance(x, click.Option) and not x.hidden]
        briefly = ALL not in ctx.meta and any(x.name == "help_all" for x in params)
        rows: dict[str, list[tuple[str, str]]] = {}
        for param in params:
            heading, usual = self.groups.get(param.name or "", ("Output", True))
            row = param.get_help_record(ctx)
            if row is None or not (usual or not briefly):
                continue
            if briefly:  # a line; of many values in place of a name the first
                first, bar, _ = row[0].partition("|")
                short = f"{first}|…{']' * first.count('[')}"
                row = short if bar and len(row[0]) > MOST_TYPED else row[0], in_a_line(row[1])
            rows.setdefault(heading, []).append(row)
        for heading in sorted(rows, key=HEADINGS.index):
            with formatter.section(heading):
                formatter.write_dl(rows[heading], col_max=26 if briefly else 30)


TARGETS = ("html", "save_schedule", "save_trace", "save_chain", "perfetto")
"""Flags that name files to write, which are refused before the work whose results they are to hold."""


def in_a_line(text: str) -> str:
    """Return the clauses with which a help begins that fit on a line.

    >>> in_a_line("Layout of A: row, col, 2d, 2d:3x4, cyclic:256x128:3x4, then @c for c replicas; shard(0).")
    'Layout of A: row, col, 2d, 2d:3x4, …'
    """
    text = text.partition("  [")[0].rstrip(".")
    ends = [x for x in re.finditer(r"[.;:,](?= )", text) if x.start() <= ROOM]
    if len(text) <= ROOM or not ends:
        return text
    text = text[: ends[-1].start()]
    return f"{text}, …" if ends[-1][0] == "," and ":" in text else text


ALL = "umm.help_all"  # where a context keeps that all flags are to be shown


def _help_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def command(
    answer: str | Callable[[Any], None], name: str = "", **defaults: Any
) -> Callable[[type[A]], type[A]]:
    """Return a decorator that gives a class of requests its command, whose help is the class's docstring.

    Args:
        answer: The function that answers a request, or ``module:function``, which is imported when called.
        name: Of the command; by default that of the function.
        defaults: Of flags, where they differ from those of the class.
    """
    module, _, function = answer.partition(":") if isinstance(answer, str) else ("", "", answer.__name__)

    def decorate(asked: type[A]) -> type[A]:
        declared = fields(asked)
        unknown = [x for x in defaults if x not in names_of(asked)]
        assert not unknown, did_you_mean(unknown[0], names_of(asked))
        params: list[click.Parameter] = []
        groups: dict[str, tuple[str, bool]] = {}
        for x in declared:
            if "argument" in x.metadata:
                params.append(click.Argument([x.name], **x.metadata["argument"]))
            first = next(y for y in reversed(asked.__mro__) if x.name in vars(y).get("names", ()))
            for key, each in x.metadata.get("flags", {}).items():
                key = key or x.name
                params.append(each.option(key, x.type, defaults.get(key)))
                groups[key] = (cast(type[Asked], first).heading, each.usual)
        # Of few flags --help shows all, too.
        params.append(click.Option(
            ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_help_all,
            hidden=len(params) <= MAX_UNGROUPED_FLAGS, help="Show all flags and exit.",
        ))  # fmt: skip

        def callback(**values: Any) -> None:
            as_json, quiet, no_color = (bool(values.get(x)) for x in ("as_json", "quiet", "no_color"))
            output = Output(as_json, quiet, no_color)
            arguments: dict[str, Any] = {}
            for x in declared:
                group = x.metadata.get("flags", {})
                if "argument" in x.metadata or group:
                    arguments[x.name] = values[x.name] if x.name in values else {y: values[y] for y in group}
            targets = {x: values[x] for x in TARGETS if values.get(x) is not None}
            if targets:
                from umm.cli.printed.save import check_targets

                check_targets(targets)
            answering = getattr(import_module(module), function) if isinstance(answer, str) else answer
            if not gc.isenabled():  # umm.cli.start has begun it
                gc.freeze()
                gc.enable()
            answering(asked(ctx=click.get_current_context(), output=output, **arguments))

        made = Command(name or function, params=params, callback=callback, help=asked.__doc__)
        made.groups = groups
        asked.command = made
        return asked

    return decorate
