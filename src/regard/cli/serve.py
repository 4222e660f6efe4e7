"""regard serve"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.say import say


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...", help="Run folders, or de-en, en-de; all models in the box if none.", show_default=False
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Likewise; 0 takes a free one.", min=0, max=65535)] = 8080,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    int8: Annotated[
        bool, typer.Option("--int8", help="Multiply 8-bit integers: faster on a CPU, nearly the same text.")
    ] = False,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 lets PyTorch choose.")] = 0,
    api_key: Annotated[
        list[str] | None,
        typer.Option(help="Translations need one of these; also REGARD_API_KEYS, by commas.", show_default=False),
    ] = None,
) -> None:
    """Serve models over HTTP: a page to type into, our API (see /docs), and LibreTranslate's for its clients.

    Examples:

      regard serve                                    the models in the box, at http://127.0.0.1:8080

      regard serve runs/mine de-en --port 9000

      curl -s localhost:8080/v1/translate -H 'content-type: application/json' -d '{"text": "Where is the station?"}'

      curl -s localhost:8080/translate -d q='Guten Morgen!' -d source=de -d target=en
    """
    from regard.errors import require

    require("fastapi", extra="serve")
    uvicorn = require("uvicorn", extra="serve")
    from regard.nn.device import use_threads
    from regard.serve.app import make_app
    from regard.serve.limits import Limits
    from regard.serve.models import load_all

    use_threads(threads)
    sys.setswitchinterval(0.0005)  # seconds; who answers requests should not wait long for who translates (LOG.md)
    limits = Limits()
    keys = [*(api_key or []), *filter(None, os.environ.get("REGARD_API_KEYS", "").split(","))]
    listening = socket.create_server((host, port))  # first: a port that is taken is known before anything is loaded
    models = load_all(runs or [], device=device, int8=int8, say=say)
    config = uvicorn.Config(
        make_app(models, device=device, int8=int8, limits=limits, keys=keys),
        log_level="warning",
        server_header=False,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=int(limits.seconds) + 10,
        limit_concurrency=2000,
    )

    class Server(uvicorn.Server):  # type: ignore[name-defined, misc]
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            say(f"serving {', '.join(models)} at http://{host}:{sockets[0].getsockname()[1]}   Ctrl-C stops")

    server = Server(config)

    def stop(number: int, frame: Any) -> None:
        server.should_exit = True

    # uvicorn replaces the first two while it runs. SIGHUP stays ignored under nohup.
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN:
            signal.signal(one, stop)
    server.run(sockets=[listening])
    say("stopped")
