"""The server of the page: all of it from this package, no request to another host."""

import atexit
import gc
import json
import re
import socket
import sys
from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import numpy as np

from umm.errors import InputError
from umm.files import read_bytes, shortened, shown
from umm.quoting.terminal import visible

if TYPE_CHECKING:
    from dash import Dash
    from werkzeug.serving import BaseWSGIServer

    from umm.explorer.point import Machines
    from umm.explorer.state import Sizes

MISSING = 'the page needs Dash; pip install "umm-sim[explore]"'
IDLE = 60.0  # seconds in which a connection has to send or take something, or its thread ends
MOST_REQUEST = 16 * 2**20
MOST_FILE = 2**28  # bytes of the trace or store that the page begins with
# Plotly's WebGL marks compile their shaders with eval; Dash's first script stands in the page.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; "
    "base-uri 'self'"
)


def serving(
    host: str,
    port: int,
    file: Path | None = None,
    presets: "Sizes | None" = None,
    chains: Mapping[str, str] | None = None,
    start: str = "",
    machines: "Machines | None" = None,
) -> "BaseWSGIServer":
    """Return the page's server, listening but not yet serving.

    InputError if Dash is not installed, the file holds neither, or the address cannot be listened on.

    Args:
        host: Address to listen on.
        port: Port; 0 for any that is free.
        file: A trace or a store that every viewer finds dropped in.
        presets: Values of m, n and k by name.
        chains: Files of chains that every viewer finds dropped in, as text by name.
        start: The query that the address without one stands for.
        machines: Machines of files that every viewer finds dropped in, by name.
    """
    # An empty text would mean every interface of this host.
    if not re.fullmatch(r"[0-9A-Za-z._-]{1,253}|[0-9A-Fa-f:.]{2,45}(%[0-9A-Za-z._-]{1,40})?", host):
        raise InputError(
            f"{shown(host)} is not an address to listen on; write 127.0.0.1 for this host alone, or 0.0.0.0 "
            "for everyone who can reach it"
        )
    ours = ("localhost", host) if is_loopback(host) else None
    app = make_app(ours, file, presets, chains, start, machines)
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        timeout = IDLE

        def log_request(self, *_: object) -> None:
            """Say nothing of requests that were answered."""

        def log_error(self, form: str, *words: object) -> None:
            """Say nothing of connections on which nothing came."""
            if not form.startswith("Request timed out"):
                super().log_error(form, *words)

    gc.freeze()  # to look through all that is imported for garbage stopped an answer for a tenth of a second
    try:
        return make_server(host, port, app.server, threaded=True, request_handler=Quiet)
    except (OSError, SystemExit, UnicodeError) as error:
        why = (
            "it is no name"
            if isinstance(error, UnicodeError)
            else getattr(error, "strerror", None) or "is it taken?"
        )
        raise InputError(f"cannot listen on {host}, port {port}: {why}; --port 0 takes a free one") from None


def is_loopback(host: str) -> bool:
    """Whether an address or a name stands for loopback alone, however it is written."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in addresses)


def make_app(
    hosts: tuple[str, ...] | None = ("localhost",),
    file: Path | None = None,
    presets: "Sizes | None" = None,
    chains: Mapping[str, str] | None = None,
    start: str = "",
    machines: "Machines | None" = None,
) -> "Dash":
    """Return the page as a Dash app; InputError if Dash is not installed; says how to get it.

    Args:
        hosts: Names, beside addresses of the loopback, by which a browser may ask; None for any.
        file: A trace or a store that every viewer finds dropped in.
        presets: Values of m, n and k by name.
        chains: Files of chains that every viewer finds dropped in, as text by name.
        start: The query that the address without one stands for.
        machines: Machines of files that every viewer finds dropped in, by name.
    """
    try:
        from dash import Dash
    except ImportError:
        raise InputError(MISSING) from None
    from flask import Response, abort, redirect, request
    from werkzeug.exceptions import BadRequest, HTTPException, InternalServerError, NotFound

    from umm.explorer.background import Behind
    from umm.explorer.callbacks import Sources, answered, asked_of, register
    from umm.explorer.layout import page
    from umm.explorer.uploads import Dropped, trace_or_store

    dropped, first = Dropped(), ""
    if file is not None:
        content = read_bytes(file, MOST_FILE)
        first = dropped.keep(content, trace_or_store(file.name, content))
    app = Dash("umm.explorer", title="umm explore", update_title="", serve_locally=True)
    app.layout = partial(page, first, presets)
    app.index_string = app.index_string.replace("<html>", '<html lang="en">')
    server, sources = app.server, Sources(dropped, Behind(), chains or {}, machines or {})
    register(app, sources)
    atexit.register(sources.behind.close)
    server.config["MAX_CONTENT_LENGTH"] = MOST_REQUEST

    @server.post("/answer")
    def answer() -> Response:
        # The browser puts the answers into the page itself: as an output of a callback each of some two
        # hundred properties would take its time, changed or not.
        try:
            asked = asked_of(request.get_json(silent=True))
        except (ValueError, RecursionError):
            abort(400)
        result = answered(asked, sources)
        reply = {"shown": result.shown, "over": result.over, "soon": result.soon}
        return Response(as_json(reply), mimetype="application/json")

    @server.errorhandler(Exception)
    def failed(error: Exception) -> Any:
        """Answer a request that cannot be answered; an odd request is no traceback on the terminal."""
        if isinstance(error, HTTPException):
            return error
        if request.path.startswith("/_dash-component-suites/"):
            return NotFound()  # Dash knows no such file
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"
        print(f"error: {visible(shortened(f'{request.path}: {words}', 300))}", file=sys.stderr, flush=True)
        return BadRequest() if request.path == "/_dash-update-component" else InternalServerError()

    @server.get("/chain/")
    @server.get("/chain")
    def chain() -> Response:
        """Lead addresses of the page that chains once had to the same chain here."""
        query = request.query_string.decode(errors="replace")
        parts = [query] if "chain" in parse_qs(query) else ["chain=mlp", *filter(None, [query])]
        return redirect("/?" + "&".join(parts))

    @server.before_request
    def known_host() -> Response | None:
        # A page elsewhere whose name resolves to this host must not read this one.
        if hosts is not None and not _is_ours(request.host, hosts):
            abort(403)
        if start and request.path == "/" and not request.query_string and request.method == "GET":
            return redirect("/" + start)
        return None

    @server.after_request
    def guarded(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        if request.path.endswith("_favicon.ico"):  # the browser asks for it at every change of the address
            response.headers["Cache-Control"] = "max-age=3600"
        return response

    return app


def _is_ours(host: str, hosts: tuple[str, ...]) -> bool:
    name = host.rsplit(":", 1)[0].strip("[]") if not host.endswith("]") else host.strip("[]")
    if name in hosts:
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def as_json(reply: Any) -> str:
    """Return a page's content as JSON, the numbers of figures as plotly.js takes them from arrays."""
    try:
        return json.dumps(reply, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:  # of a number that JSON has not; plotly.py writes null, and takes five times as long
        from plotly.io.json import to_json_plotly

        return str(to_json_plotly(reply))


def _plain(value: Any) -> Any:
    """Return numbers as the bytes that plotly.js reads, of integers at most 32 bits; words as they are."""
    if not isinstance(value, np.ndarray):
        return value.item() if isinstance(value, np.generic) else value.to_plotly_json()
    if value.dtype.kind == "i" and abs(value).max(initial=0) < 2**31:
        value = value.astype(np.int32)
    if not value.size or value.dtype not in (np.int32, np.float32, np.float64):
        return value.tolist()
    kind, encoded = f"{value.dtype.kind}{value.itemsize}", b64encode(value.tobytes()).decode()
    shape = {"shape": ", ".join(map(str, value.shape))} if value.ndim > 1 else {}
    return {"dtype": kind, "bdata": encoded, **shape}
