"""The server of the page: everything from this package, nothing to or from anybody else."""

import atexit
import gc
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umm.errors import InputError

if TYPE_CHECKING:
    from dash import Dash
    from werkzeug.serving import BaseWSGIServer

    from umm.explorer.state import Sizes

MISSING = 'the page needs Dash; pip install "umm-sim[explore]"'
MOST_REQUEST = 16 * 2**20
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
) -> "BaseWSGIServer":
    """Return the page's server, listening but not yet serving.

    Args:
        host: Address to listen on.
        port: Port; 0 for any that is free.
        file: A trace or a store that every viewer finds dropped in.
        presets: Values of m, n and k by name.
        chains: Files of chains that every viewer finds dropped in, as text by name.

    Raises:
        InputError: if Dash is not installed, the file holds neither, or the address cannot be listened on.
    """
    app = make_app(None if not _is_ours(host, ("localhost",)) else ("localhost",), file, presets, chains)
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_: object) -> None:
            """Say nothing of requests that were answered."""

    gc.freeze()  # to look through all that is imported for garbage stopped an answer for a tenth of a second
    try:
        return make_server(host, port, app.server, threaded=True, request_handler=Quiet)
    except (OSError, SystemExit) as error:
        why = getattr(error, "strerror", None) or "is it taken?"
        raise InputError(f"cannot listen on {host}, port {port}: {why}; --port 0 takes a free one") from None


def make_app(
    hosts: tuple[str, ...] | None = ("localhost",),
    file: Path | None = None,
    presets: "Sizes | None" = None,
    chains: Mapping[str, str] | None = None,
) -> "Dash":
    """Return the page as a Dash app.

    Args:
        hosts: Names, beside addresses of the loopback, by which a browser may ask; None for any.
        file: A trace or a store that every viewer finds dropped in.
        presets: Values of m, n and k by name.
        chains: Files of chains that every viewer finds dropped in, as text by name.

    Raises:
        InputError: if Dash is not installed; says how to get it.
    """
    try:
        from dash import Dash
    except ImportError:
        raise InputError(MISSING) from None
    from flask import Response, abort, redirect, request

    from umm.explorer.background import Behind
    from umm.explorer.callbacks import register
    from umm.explorer.chains import callbacks as of_chains
    from umm.explorer.chains import layout as chain_layout
    from umm.explorer.layout import CHAINS, page
    from umm.explorer.uploads import Dropped, trace_or_store

    dropped, first = Dropped(), ""
    if file is not None:
        content = file.read_bytes()
        first = dropped.keep(content, trace_or_store(file.name, content))
    same: Any = {"update_title": "", "serve_locally": True}
    app = Dash("umm.explorer", title="umm explore", **same)
    app.layout = partial(page, first, presets)
    server = app.server
    of_chain = Dash(
        "umm.explorer", title="umm explore a chain", server=server, url_base_pathname=CHAINS, **same
    )
    of_chain.layout = chain_layout.page
    for each in (app, of_chain):
        each.index_string = each.index_string.replace("<html>", '<html lang="en">')
    behind = Behind()
    register(app, dropped, behind)
    of_chains.register(of_chain, behind, chains or {})
    atexit.register(behind.close)
    server.config["MAX_CONTENT_LENGTH"] = MOST_REQUEST

    @server.get(CHAINS.rstrip("/"))
    def to_chains() -> Response:
        return redirect(f"{CHAINS}?{request.query_string.decode(errors='replace')}")

    @server.before_request
    def known_host() -> None:
        # A page elsewhere whose name resolves to this host must not read this one.
        if hosts is not None and not _is_ours(request.host, hosts):
            abort(403)

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
