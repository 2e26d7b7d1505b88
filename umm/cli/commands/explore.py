"""``umm explore``: the page on which partitions and replication factors are explored."""

from pathlib import Path
from typing import Any

import click

from umm.cli.flags.config import PRESETS
from umm.cli.flags.options import READ, given, option, problem_options
from umm.cli.flags.schedule import schedule_options

LOOPBACK = "127.0.0.1"


@click.command()
@click.argument("file", required=False, type=READ)
@problem_options(machine="pvc-12")
@schedule_options()
@option("--memory", default="", help="Budget per rank: 16GiB, or 2x the unreplicated share.")
@option(
    "--host", default=LOOPBACK, show_default=True, help="Address to listen on; others can reach another one."
)
@option(
    "--port", type=click.IntRange(0, 65535), default=8050, show_default=True, help="0 takes any that is free."
)
@option("--open/--no-open", "opens", default=True, help="Open the page in the browser.")
@option("--quiet", is_flag=True, help="Say nothing but the address.")
@click.pass_context
def explore(
    ctx: click.Context, /, file: Path | None, host: str, port: int, opens: bool, quiet: bool, **flags: Any
) -> None:
    """Explore partitions and replication factors on a page in the browser.

    FILE is a trace of 'umm run --save-trace' or a store of 'umm sweep -o', to hold predictions against. The
    page is served to this host alone unless --host says otherwise, and asks nothing of any other.
    """
    import webbrowser

    from umm.errors import InputError
    from umm.explorer.app import serving
    from umm.explorer.state import State, changed

    state = State()
    for name in given(ctx, tuple(flags)):
        key = name.lstrip("-").replace("-", "_")
        if key == "with":
            raise InputError("--with is not for the page; choose the algorithm there")
        state = changed(state, key, str(flags[key]))
    if file is not None:
        state = changed(state, "tab", "measured")
    server = serving(host, port, file, PRESETS)
    address = f"http://{host if ':' not in host else f'[{host}]'}:{server.server_port}/{state.query}"
    click.echo(address)
    if not quiet:
        who = "this host alone" if host == LOOPBACK else f"whoever reaches {host}"
        click.echo(f"The page is served to {who}; Ctrl-C ends it.", err=True)
    if opens:
        webbrowser.open(address)
    try:
        server.serve_forever()
    finally:
        server.server_close()
