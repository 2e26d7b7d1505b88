"""``umm mcp``: the server for agents."""

from umm.cli.flags.declared import Asked, command
from umm.errors import InputError

INSTALL = "pip install 'umm-sim[mcp]'"


@command("umm.mcp.command:mcp")
class Mcp(Asked):
    """Serve commands as tools for agents, over stdin and stdout.

    Tools of the Model Context Protocol: simulate, search, step, serve, muon, peers, fuse, collective,
    what_if, plan, compare (with a profile), machine_list, machine_show, model and models. Arguments are the
    commands' flags: the usual ones are listed, all are taken, and help_all lists them. Answers are the
    commands' JSON with its schema, each number that has a range with its source, and the command that
    repeats it.

    A call reads files that the agent names, writes none, executes no schedule and imports no module. Its
    process ends with it if it is cancelled. A client's configuration:

    {"mcpServers": {"umm": {"command": "umm", "args": ["mcp"]}}}
    """


def mcp(asked: Mcp) -> None:
    """Answer ``umm mcp``."""
    try:
        import anyio

        from umm.mcp.server import serve
    except ImportError:
        raise InputError(f"agents are served by the mcp package; {INSTALL}") from None
    anyio.run(serve)
