"""Refused requests in one sentence: what was given, what fits, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException

LONGEST_NAME = 40  # characters of a name or a path of a request that are quoted


def describe_invalid(request: Request, errors: Sequence[Any]) -> str:
    """Return what is wrong with the body of a request, from the errors that pydantic found."""
    # A value that is neither a string nor a list gives one error for each type; other errors are more specific.
    error = next((one for one in errors if one["type"] not in ("string_type", "list_type")), errors[0])
    place = [str(part)[:LONGEST_NAME] for part in error["loc"][1:2]]
    if error["type"] == "json_invalid":
        return f"the request body is not valid JSON: {error['ctx']['error']} (character {place[0]})"
    if not place and error["type"] in ("missing", "model_attributes_type"):
        if "json" not in request.headers.get("content-type", ""):
            return "the request body must be a JSON object; send it with the header content-type: application/json"
        return 'the request body must be a JSON object, such as {"text": "Where is the station?"}'
    if error["type"] == "value_error":  # of our own
        return str(error["ctx"]["error"])
    if error["type"] == "missing":
        return f"{place[0]} is missing"
    return ": ".join([*place, error["msg"]])


def describe_refusal(request: Request, problem: HTTPException) -> str:
    """Return why a request was refused. What the router says of an unknown path or method is made a sentence."""
    path = request.url.path[: 2 * LONGEST_NAME]
    if problem.status_code == 404 and problem.detail == "Not Found":
        return f"there is no {path}; /docs lists what there is"
    if problem.status_code == 405 and problem.headers:
        return f"{path} does not take {request.method}; use {problem.headers['Allow']}"
    return str(problem.detail)
