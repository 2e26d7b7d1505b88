"""``umm explore``: the page on which partitions and replication factors are explored."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from umm.cli.flags.chain import BEST, SIZES, asked_outline, chain_options, chain_search_options, is_file
from umm.cli.flags.options import READ, given, option, problem_options
from umm.cli.flags.schedule import schedule_options
from umm.cli.flags.values import PRESETS
from umm.errors import InputError
from umm.plans.multiply.options import known

LOOPBACK = "127.0.0.1"


@click.command()
@click.argument("file", required=False, type=READ)
@problem_options(machine="h100-8")
@chain_options()
@chain_search_options()
@schedule_options()
@option("--memory", default="", help="Budget per rank: 16GiB, or 2x the unreplicated share.")
@option(
    "--host",
    default=LOOPBACK,
    show_default=True,
    help="Address to listen on; other hosts can reach any but loopback.",
)
@option(
    "--port", type=click.IntRange(0, 65535), default=8050, show_default=True, help="0 takes any free port."
)
@option("--open/--no-open", "opens", default=True, help="Open the page in the browser.")
@option("--quiet", is_flag=True, help="Print only the address.")
@click.pass_context
def explore(
    ctx: click.Context, /, file: Path | None, host: str, port: int, opens: bool, quiet: bool, **flags: Any
) -> None:
    """Explore partitions and replication factors on a page in the browser.

    FILE is a trace of 'umm run --save-trace' or a store of 'umm sweep -o', to compare predictions with.

    With --chain, a preset or a file, the page searches for the best layouts of all its tensors.

    Only this host can reach the page unless --host allows others, and it makes no external requests.
    """
    import webbrowser

    from umm.explorer.background import get_ready

    get_ready()  # while this process imports too
    from umm.explorer.app import is_loopback, serving

    texts = _chain_text(flags["chain"])
    query = _query(ctx, file, flags)
    server = serving(host, port, file, PRESETS, texts, query)
    address = f"http://{host if ':' not in host else f'[{host}]'}:{server.server_port}/{query}"
    click.echo(address)
    if not quiet:
        who = "this host alone" if is_loopback(host) else f"everyone who reaches {host}"
        click.echo(f"The page is open to {who}; Ctrl-C stops it.", err=True)
    if opens:
        webbrowser.open(address)
    try:
        server.serve_forever()
    finally:
        server.server_close()


def _query(ctx: click.Context, file: Path | None, flags: dict[str, Any]) -> str:
    """Return the query of the page's address at what the flags say."""
    from umm.explorer.point import machine_of
    from umm.explorer.state import OPERANDS, State, as_text, changed, usual_values

    state, every = State(), {*usual_values(), "preset", "model"}
    if file is None:  # what is measured names its own machine
        state = changed(state, "machine", flags["machine"])
    if flags["chain"] is None:
        asked_outline(ctx, flags)  # refuses what is of a chain
        stated = _stated(
            ctx,
            flags,
            every - {*SIZES, "chain", "backward", "dropout", "layouts", "choices", "optimizer"},
            "umm simulate takes it",
        )
    else:
        state = changed(state, "chain", Path(flags["chain"]).name)
        others = {*"mnk", *OPERANDS, "preset", "algorithm", *(x.name for x in known())}
        stated = _stated(ctx, flags, every - others, "it does not apply to chains")
    for name in sorted(stated, key=lambda x: x != "model"):  # other sizes stand before those of a model
        if name not in ("preset", "chain") and (name, flags[name]) != ("layouts", BEST):
            state = changed(state, name, as_text(flags[name]))  # a preset has set m, n and k
    machine = machine_of(state.machine, {})  # refuses one that the page would not find
    if state.chain:
        usual = {name: size for name, size in state.sizes.items() if flags[name] is None}
        outline = asked_outline(ctx, flags | usual)  # refuses what other commands refuse
        assert outline
        outline.layouts_of(state.layouts or None, state.ranks or machine.default_ranks)
    return (state if file is None else changed(state, "tab", "measured")).query


def _chain_text(name: str | None) -> dict[str, str]:
    """Return the text of a chain's file by its name on the page; nothing of a preset."""
    from umm.explorer.point import MOST_CHAIN, chain_from
    from umm.files import read_text

    if name is None or not is_file(name):
        return {}
    text = read_text(name, MOST_CHAIN)
    chain_from(text, Path(name).name)
    return {Path(name).name: text}


def _stated(ctx: click.Context, flags: dict[str, Any], parts: Iterable[str], why: str) -> list[str]:
    """Return those parts of an address that are stated: typed, by a variable, in a file or by a preset.

    Raises:
        InputError: for a flag that was typed and is no part of it.
    """
    known = {*parts}
    others = given(ctx, [x for x in flags if x not in known])
    if others:
        raise InputError(f"{', '.join(others)} is not for this page; {why}")
    return [x for x in flags if x in known and ctx.get_parameter_source(x) is not ParameterSource.DEFAULT]
