"""Answers of the commands in :mod:`umm.cli.commands.explore`."""

import webbrowser
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from umm.cli.commands.explore import Explore
from umm.cli.flags.chain import BEST, SIZES, is_file
from umm.cli.flags.values import PRESETS
from umm.errors import InputError
from umm.explorer.app import is_loopback, serving
from umm.explorer.background import get_ready
from umm.explorer.point import MOST_CHAIN, Machines, chain_from, machine_of
from umm.explorer.state import OPERANDS, TOML, State, as_text, changed, name_of, usual_values
from umm.files import read_text
from umm.machines import Machine, machine
from umm.machines.machine import TF32
from umm.plans.multiply.options import known


def explore(asked: Explore) -> None:
    """Answer ``umm explore``."""
    asked = asked.with_model()

    get_ready()  # while this process imports too

    host, texts = asked.host, dict[str, str]()
    if asked.chain is not None and is_file(asked.chain):
        name = Path(asked.chain).name
        texts[name] = read_text(asked.chain, MOST_CHAIN)
        chain_from(texts[name], name)
    path, tf32, _ = asked.machine.partition(TF32)
    name, machines = asked.machine, dict[str, Machine]()
    if Path(path).suffix == TOML:
        name = name_of(Path(path).name)
        machines[name], name = machine(path), f"{name}{tf32}"
    query = _query(asked, name, machines)
    server = serving(host, asked.port, asked.file, PRESETS, texts, query, machines)
    address = f"http://{host if ':' not in host else f'[{host}]'}:{server.server_port}/{query}"
    click.echo(address)
    if not asked.quiet:
        who = "this host alone" if is_loopback(host) else f"everyone who reaches {host}"
        click.echo(f"The page is open to {who}; Ctrl-C stops it.", err=True)
    if asked.opens:
        webbrowser.open(address)
    try:
        server.serve_forever()
    finally:
        server.server_close()


def _query(asked: Explore, name: str, machines: Machines) -> str:
    """Return the query of the page's address for the flags.

    Args:
        name: Of the machine on the page.
        machines: Machines that the page finds by name beside the listed ones.
    """
    values = {**asked.ctx.params, "machine": name}
    state, every = State(), {*usual_values(), "preset", "model"}
    if asked.file is None:  # what is measured names its own machine
        state = changed(state, "machine", name)
    if asked.chain is None:
        asked.outline()  # refuses what is of a chain
        others = ("backward", "dropout", "decode", "layouts", "choices", "optimizer", "layers")
        of_chain = {*SIZES, "chain", *others}
        stated = _stated(asked, every - of_chain, "umm simulate takes it")
    else:
        state = changed(state, "chain", Path(asked.chain).name)
        of_multiply = {*"mnk", *OPERANDS, "preset", "algorithm", *(x.name for x in known())}
        stated = _stated(asked, every - of_multiply, "it does not apply to chains")
    for part in sorted(stated, key=lambda x: x != "model"):  # other sizes stand before those of a model
        if part not in ("preset", "chain") and (part, values[part]) != ("layouts", BEST):
            state = changed(state, part, as_text(values[part]))  # a preset has set m, n and k
    machine_of(state.machine, machines)  # refuses one that the page would not find
    if state.chain:
        usual = {name: size for name, size in state.sizes.items() if values[name] is None}
        # Refuses what other commands refuse.
        outline = replace(asked, sizes={**asked.sizes, **usual}).outline()
        assert outline
        outline.layouts_of(state.layouts or None, state.ranks or asked.hardware.default_ranks)
    return (state if asked.file is None else changed(state, "tab", "measured")).query


def _stated(asked: Explore, parts: Iterable[str], why: str) -> list[str]:
    """Return those parts of an address that are stated: typed, by a variable, in a file or by a preset."""
    ctx, known = asked.ctx, {*parts}
    page = {"file", "host", "port", "opens", "quiet", "config"}
    others = asked.typed([x for x in ctx.params if x not in known | page])
    if others:
        raise InputError(f"{', '.join(others)} is not for this page; {why}")
    return [
        x for x in ctx.params if x in known and ctx.get_parameter_source(x) is not ParameterSource.DEFAULT
    ]
