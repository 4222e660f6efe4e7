"""The endpoints of LibreTranslate, so that its clients work unchanged."""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException

from regard.serve.caller import Caller
from regard.serve.models import Served, known_languages
from regard.serve.service import Service


def add_libre(app: FastAPI, service: Service) -> None:
    """Adds /translate, /detect and /languages."""

    @app.post("/translate", tags=["LibreTranslate"], openapi_extra=_BODY)
    async def translate(request: Request) -> dict[str, Any]:
        """As LibreTranslate's: q, source, target, alternatives, api_key; form or JSON."""
        asked = await _read(request)
        caller = service.enter(request, _text(asked, "api_key", ""))
        texts, several = _texts(asked)
        source, target = _text(asked, "source"), _text(asked, "target")
        alternatives = _number(asked, "alternatives", most=service.limits.beam - 1)
        detected = None
        if source == "auto":
            detected = (await _detect(service, caller, " ".join(texts)))[0]
            source = detected["language"]
        served = _between(service, source, target)
        beam = max(served.translator.config.beam, alternatives + 1)
        options = served.translator.config.replace(beam=min(beam, service.limits.beam), nbest=alternatives + 1)
        answers: list[str] = []
        others: list[list[str]] = []
        for cut, found in await service.translate(caller, served, texts, options):
            answers.append(cut.joined([best[0].text for best in found]))
            ways = range(1, min(map(len, found), default=1))
            others.append([cut.joined([best[way].text for best in found]) for way in ways])
        result: dict[str, Any] = {"translatedText": answers if several else answers[0]}
        if alternatives:
            result["alternatives"] = others if several else others[0]
        if detected:
            result["detectedLanguage"] = [detected] * len(texts) if several else detected
        return result

    @app.post("/detect", tags=["LibreTranslate"], openapi_extra=_BODY)
    async def detect(request: Request) -> list[dict[str, Any]]:
        """Which of the languages that are translated from a text is most likely in."""
        asked = await _read(request)
        caller = service.enter(request, _text(asked, "api_key", ""))
        texts, _ = _texts(asked)
        return await _detect(service, caller, " ".join(texts))

    @app.get("/languages", tags=["LibreTranslate"])
    async def languages() -> list[dict[str, Any]]:
        """The languages that are translated from, and into which."""
        targets: dict[str, list[str]] = {}
        for served in service.models.values():
            if served.languages:
                targets.setdefault(served.languages[0], []).append(served.languages[1])
        return [{"code": code, "name": known_languages()[code], "targets": to} for code, to in targets.items()]


_FIELDS = {
    "type": "object",
    "required": ["q"],
    "properties": {
        "q": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "source": {"type": "string"},
        "target": {"type": "string"},
        "format": {"type": "string"},
        "alternatives": {"type": "integer", "minimum": 0},
        "api_key": {"type": "string"},
    },
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": _FIELDS}, "application/x-www-form-urlencoded": {"schema": _FIELDS}},
    }
}


async def _read(request: Request) -> dict[str, Any]:
    """The fields of a form or of JSON."""
    body, kind = await request.body(), request.headers.get("content-type", "")
    try:
        if "json" in kind:
            asked = json.loads(body)
        else:
            form = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=2000)
            asked = {key: values if key == "q" and len(values) > 1 else values[-1] for key, values in form.items()}
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is neither a form nor JSON") from error
    if not isinstance(asked, dict):
        raise HTTPException(400, "the body must be an object")
    return asked


def _texts(asked: dict[str, Any]) -> tuple[list[str], bool]:
    q = asked.get("q")
    texts: list[Any] = q if isinstance(q, list) else [q]
    if not texts or not all(isinstance(text, str) for text in texts) or len(texts) > 1000:
        raise HTTPException(400, "q must be a text, or a list of up to 1,000")
    if not all(map(_encodable, texts)):
        raise HTTPException(400, "q holds half of a surrogate pair")
    return texts, isinstance(q, list)


def _text(asked: dict[str, Any], key: str, default: str | None = None) -> str:
    value = asked.get(key) or default
    if not isinstance(value, str) or not _encodable(value):
        raise HTTPException(400, f"{key} is missing, or is no text")
    return value


def _encodable(text: str) -> bool:
    """Whether it is whole: JSON can write half of a surrogate pair, UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _number(asked: dict[str, Any], key: str, *, most: int) -> int:
    try:
        value = int(asked.get(key, 0) or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise HTTPException(400, f"{key} must be a whole number") from error
    if not 0 <= value <= most:
        raise HTTPException(400, f"{key} must be from 0 to {most}")
    return value


def _between(service: Service, source: str, target: str) -> Served:
    for served in service.models.values():
        if served.languages == (source, target):
            return served
    pairs = ", ".join("-".join(served.languages) for served in service.models.values() if served.languages)
    raise HTTPException(400, f"{source[:20]} to {target[:20]} is not translated here; there is {pairs or 'nothing'}")


async def _detect(service: Service, caller: Caller, text: str) -> list[dict[str, Any]]:
    """The languages translated from, likeliest first: a model is least surprised by what it writes for its own language."""
    scores: dict[str, float] = {}
    for served in service.models.values():
        if served.languages and text.strip():
            options = served.translator.config.replace(beam=1, length_penalty=1.0)
            ((_, found),) = await service.translate(caller, served, [text[:300]], options)
            score = sum(best[0].score for best in found) / max(1, len(found))
            scores[served.languages[0]] = max(score, scores.get(served.languages[0], -math.inf))
    if not scores:
        raise HTTPException(400, "no language is known here, or there is no text")
    total = sum(math.exp(score) for score in scores.values())
    shares = {code: round(100 * math.exp(score) / total, 1) if total else 0.0 for code, score in scores.items()}
    return sorted(
        ({"language": code, "confidence": share} for code, share in shares.items()), key=lambda one: -one["confidence"]
    )
