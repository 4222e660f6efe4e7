"""The page, and the files that it loads."""

from __future__ import annotations

from importlib import resources

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from regard.explain.page import asset

KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
OWN = ("page.html", "page.js", "page.css", "docs.html", "docs.js")
SHARED = ("attention.js", "look.css")  # with the files of `regard look`


def add_page(app: FastAPI) -> None:
    files = {name: own_asset(name) for name in OWN} | {name: asset(name) for name in SHARED}

    def answer(name: str) -> Response:
        kind = KINDS[name.rpartition(".")[2]]
        return Response(files[name], media_type=f"{kind}; charset=utf-8", headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return answer("page.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return answer("docs.html")

    @app.get("/assets/{name}", include_in_schema=False)
    async def of_page(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        return answer(name)


def own_asset(name: str) -> str:
    """A file of the page."""
    return (resources.files("regard.serve") / "assets" / name).read_text(encoding="utf-8")
