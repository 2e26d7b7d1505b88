"""The server: a call starts its command, whose JSON is the answer and whose error is the error."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from umm import __version__
from umm.errors import UmmError, did_you_mean
from umm.mcp.answers import numbers, schema
from umm.mcp.tools import Served, tools

INSTRUCTIONS = """Predict distributed matrix multiplies, layers, training steps and serving on machines that
files describe, and search for the best layouts. Sizes are texts: 8K is 8192. Each answer has the command
that repeats it. Tools list the usual flags; help_all=true lists all, which are taken too. Units are seconds,
bytes and flop/s."""
READ_ONLY = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)


def server() -> Server[Any]:
    """Return a server of the commands; calls beyond the number of cores wait."""
    served, room = tools(), anyio.CapacityLimiter(os.cpu_count() or 1)

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=x.name,
                    description=x.command.help or "",
                    input_schema=x.schema(),
                    output_schema=schema(x.name),
                    annotations=READ_ONLY,
                )
                for x in served.values()
            ]
        )

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if params.name not in served:
                raise UmmError(f"there is no tool {params.name[:80]!r}; {did_you_mean(params.name, served)}")
            async with room:
                answer = await answered(served[params.name], params.arguments or {})
        except UmmError as error:
            return types.CallToolResult(content=[types.TextContent(text=f"error: {error}")], is_error=True)
        text = types.TextContent(text=json.dumps(answer, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content=answer)

    texts = {"version": __version__, "instructions": INSTRUCTIONS}
    return Server("umm", on_list_tools=list_tools, on_call_tool=call_tool, **texts)


async def answered(served: Served, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Run a command in a process, which ends with a call that is cancelled, and return its answer.

    UmmError with the command's own line.
    """
    words = served.command_line(arguments)
    start = [sys.executable, "-P", "-c", "from umm.cli import start; start()", *words]
    done = await anyio.run_process(start, stdin=subprocess.DEVNULL, check=False)
    lines = done.stderr.decode(errors="replace").splitlines()
    if done.returncode:
        errors = [x.removeprefix("error: ") for x in lines if x.startswith("error: ")]
        raise UmmError(errors[-1] if errors else f"umm {words[0]} ended with exit code {done.returncode}")
    printed = done.stdout.decode(errors="replace")
    record = json.loads(printed) if "--json" in words else None
    return {
        "command": shlex.join(["umm", *(x for x in words if x != "--json")]),
        "result": record,
        "text": printed if record is None else None,
        "numbers": numbers(record or {}),
        "notes": lines,
    }


async def serve() -> None:
    """Serve over stdin and stdout until stdin ends."""
    async with stdio_server() as (reader, writer):
        made = server()
        await made.run(reader, writer, made.create_initialization_options())
