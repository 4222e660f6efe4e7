"""regard serve"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.engine_option import EngineOption
from regard.cli.terminal import print_message


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Run folders, or pretrained models: de-en, en-de, zh-en. Default: all pretrained models.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0 accepts connections from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on. 0 chooses a free port.", min=0, max=65535)] = 8080,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    int8: Annotated[
        bool | None,
        typer.Option(
            "--int8/--no-int8",
            help="Multiply 8-bit integers on a CPU, or float32 numbers. Default: integers wherever the engine computes.",
            show_default=False,
        ),
    ] = None,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Precision of search on a GPU. auto: bfloat16 if possible."),
    ] = "auto",
    pivot: Annotated[
        str | None,
        typer.Option(
            help="A language through which texts are translated where no model has the pair, as in --pivot en.",
            show_default=False,
        ),
    ] = None,
    engine: EngineOption = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads. 0: one per core.")] = 0,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File of API keys, one per line; requests need one. Also: REGARD_API_KEYS, separated by commas."
        ),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="An API key; repeatable. Every user of this machine can see it with `ps`.", show_default=False
        ),
    ] = None,
    public_metrics: Annotated[bool, typer.Option("--public-metrics", help="Serve /metrics without a key.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Accept this host name in requests and refuse others; repeatable. Default on loopback: its own names.",
            show_default=False,
        ),
    ] = None,
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of a proxy whose X-Forwarded-For header is trusted; repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve models over HTTP: a web page, a JSON API (documented at /docs), and the LibreTranslate API.

    Examples:

      # the pretrained models, at http://127.0.0.1:8080
      regard serve

      regard serve runs/mine de-en --port 9000

      # all pairs of a model of several languages; de-fr through English
      regard serve runs/multi30k-many --pivot en

      regard serve --host 0.0.0.0 --api-key-file keys.txt --allow-host example.org

      # --json needs curl 7.82 or newer
      curl -s localhost:8080/v1/translate --json '{"text": "Where is it?"}'

      curl -s localhost:8080/translate -d q='Hallo!' -d source=de -d target=en
    """
    from regard.errors import ConfigError, require

    for package in ("fastapi", "uvicorn", "httptools"):
        require(package, extra="serve")
    from regard.loading import computes_on_gpu
    from regard.serve.access import Access, Limits, allowed_hosts, read_keys
    from regard.serve.models import load_all, num_workers, refuse_unknown_pivot
    from regard.serve.server import run_server, start_service

    access = Access(
        keys=read_keys(api_key or [], api_key_file, os.environ),
        hosts=allowed_hosts(allow_host or [], host),
        public_metrics=public_metrics,
    )
    gpu, limits = computes_on_gpu(device), Limits()
    if gpu and int8:
        raise ConfigError("8-bit integers are for a CPU, and this is cuda; leave out int8, or use device=cpu")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Bind first, so that a port in use is reported before models are loaded.
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise ConfigError(
            f"port {port} of {host} is in use; choose another with --port, or a free one with --port 0"
        ) from None
    models = load_all(runs or [], int8=int8, engine="auto" if gpu else engine, say=print_message)
    refuse_unknown_pivot(models, pivot)
    service = start_service(
        models,
        device=device,
        int8=int8,
        precision=precision,
        workers=num_workers(threads, gpu=gpu),
        limits=limits,
        access=access,
        say=print_message,
        pivot=pivot,
        engine=engine,
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    run_server(service, listening, address=address, proxies=tuple(trust_proxy or ()), say=print_message)
    print_message("stopped")
