"""Serving the built site to this machine alone."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from regard.errors import ConfigError


class QuietHandler(SimpleHTTPRequestHandler):
    """Files of one folder, without a line per request. Windows may know other types of scripts."""

    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript", ".css": "text/css"}  # noqa: RUF012

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def list_directory(self, path: Any) -> None:
        self.send_error(404)


def make_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of a folder on loopback. Port 0 chooses a free one."""
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(QuietHandler, directory=str(folder)))
    except OSError as error:
        raise ConfigError(
            f"port {port} cannot be used ({error.strerror}); name another one with --port, or 0 for a free one"
        ) from None
