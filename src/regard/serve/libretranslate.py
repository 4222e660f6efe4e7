"""A LibreTranslate-compatible API, so that clients of LibreTranslate work unchanged."""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException

from regard.serve.models import language_name
from regard.serve.service import RequestContext, Service

DETECTED = 300  # characters of a text from which its language is detected
# Of greedy outputs. Nine in ten dev sentences of Tatoeba score higher in their own language, with the pretrained models.
LIKELY_SCORE = -2.0


def add_libretranslate(app: FastAPI, service: Service) -> None:
    """Add /translate, /detect and /languages to an application."""

    @app.post("/translate", tags=["LibreTranslate"], openapi_extra=_BODY)
    async def translate(request: Request) -> dict[str, Any]:
        """Translate as LibreTranslate does: q, source, target, format (text), alternatives, api_key; form or JSON."""
        fields = await _read_fields(request)
        context = service.authorize(request, _text(fields, "api_key", ""))
        texts, several = _texts(fields)
        _refuse_markup(_text(fields, "format", "text"))
        source, target = _text(fields, "source"), _text(fields, "target")
        alternatives = _number(fields, "alternatives", maximum=service.limits.beam - 1)
        detected = None
        if source == "auto":
            detected = (await _detect(service, context, " ".join(texts), target))[0]
            source = detected["language"]
        *before, served = service.find_route(source, target)
        for first in before:
            found_first = await service.translate(context, first, texts, first.translator.options)
            texts = [split_text.join([best[0].text for best in found]) for split_text, found in found_first]
        beam = max(served.translator.options.beam, alternatives + 1)
        options = served.translator.options.replace(beam=min(beam, service.limits.beam), nbest=alternatives + 1)
        translations: list[str] = []
        others: list[list[str]] = []
        for split_text, found in await service.translate(context, served, texts, options):
            translations.append(split_text.join([best[0].text for best in found]))
            ranks = range(1, min(map(len, found), default=1))
            others.append([split_text.join([best[rank].text for best in found]) for rank in ranks])
        result: dict[str, Any] = {"translatedText": translations if several else translations[0]}
        if alternatives:
            result["alternatives"] = others if several else others[0]
        if detected:
            result["detectedLanguage"] = [detected] * len(texts) if several else detected
        return result

    @app.post("/detect", tags=["LibreTranslate"], openapi_extra=_BODY)
    async def detect(request: Request) -> list[dict[str, Any]]:
        """Detect the language of a text, among the source languages of the models."""
        fields = await _read_fields(request)
        context = service.authorize(request, _text(fields, "api_key", ""))
        texts, _ = _texts(fields)
        return await _detect(service, context, " ".join(texts))

    @app.get("/languages", tags=["LibreTranslate"])
    async def languages() -> list[dict[str, Any]]:
        """List the source languages and the target languages of each."""
        targets: dict[str, list[str]] = {}
        for source, target in service.language_pairs():
            targets.setdefault(source, []).append(target)
        return [{"code": code, "name": language_name(code), "targets": to} for code, to in targets.items()]


_FIELDS = {
    "type": "object",
    "required": ["q"],
    "properties": {
        "q": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "source": {"type": "string"},
        "target": {"type": "string"},
        "format": {"type": "string", "enum": ["text"]},
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


async def _read_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a form or a JSON object."""
    body, kind = await request.body(), request.headers.get("content-type", "")
    try:
        if "json" in kind:
            fields = json.loads(body)
        else:
            form = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=2000)
            fields = {key: values if key == "q" and len(values) > 1 else values[-1] for key, values in form.items()}
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the request body is neither a form nor JSON") from error
    if not isinstance(fields, dict):
        raise HTTPException(400, "the request body must be a JSON object")
    return fields


def _texts(fields: dict[str, Any]) -> tuple[list[str], bool]:
    q = fields.get("q")
    texts: list[Any] = q if isinstance(q, list) else [q]
    if not texts or not all(isinstance(text, str) for text in texts) or len(texts) > 1000:
        raise HTTPException(400, "q must be a string, or a list of up to 1,000 strings")
    if not all(map(_encodable, texts)):
        raise HTTPException(400, "q contains an unpaired surrogate")
    return texts, isinstance(q, list)


def _text(fields: dict[str, Any], key: str, default: str | None = None) -> str:
    value = fields.get(key) or default
    if not isinstance(value, str) or not _encodable(value):
        raise HTTPException(400, f"{key} is missing, or is not a string")
    return value


def _refuse_markup(kind: str) -> None:
    """Raise HTTPException for a format other than text: tags would be translated as if they were words."""
    if kind != "text":
        raise HTTPException(
            400, f"format {kind[:20]!r} is not supported, because tags would be translated as words; send format=text"
        )


def _encodable(text: str) -> bool:
    """Return whether UTF-8 can encode a text: JSON allows unpaired surrogates, UTF-8 does not."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _number(fields: dict[str, Any], key: str, *, maximum: int) -> int:
    try:
        value = int(fields.get(key, 0) or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise HTTPException(400, f"{key} must be an integer") from error
    if not 0 <= value <= maximum:
        raise HTTPException(400, f"{key} must be from 0 to {maximum}")
    return value


async def _detect(
    service: Service, context: RequestContext, text: str, target: str | None = None
) -> list[dict[str, Any]]:
    """Return source languages, most likely first. A model scores its output highest for input in its own language.

    The confidence in a language is lower if its model does not know the characters, or if all outputs are unlikely, as they
    are for other languages. With a target, only languages that can be translated into it are considered, if there are any.
    """
    scores: dict[str, float] = {}
    known: dict[str, float] = {}
    sources = {source for source, into in service.language_pairs() if into == target}
    for served in service.models.values():
        if served.languages and text.strip() and (not sources or served.languages[0] in sources):
            options = served.translator.options.greedy().replace(length_penalty=1.0)
            ((_, found),) = await service.translate(context, served, [text[:DETECTED]], options)
            score = sum(best[0].score for best in found) / max(1, len(found))
            scores[served.languages[0]] = max(score, scores.get(served.languages[0], -math.inf))
            share = 1 - served.unknown_share(text[:DETECTED])
            known[served.languages[0]] = max(share, known.get(served.languages[0], 0.0))
    if not scores:
        raise HTTPException(400, "the text is empty, or no model has known languages")
    # A model may be sure of an output though it knows no character of the text.
    weights = {code: math.exp(score) * known[code] for code, score in scores.items()}
    total = sum(weights.values())
    shares = {
        code: round(100 * weight / total * known[code] * min(1.0, math.exp(scores[code] - LIKELY_SCORE)), 1)
        if total
        else 0.0
        for code, weight in weights.items()
    }
    return sorted(
        ({"language": code, "confidence": share} for code, share in shares.items()), key=lambda one: -one["confidence"]
    )
