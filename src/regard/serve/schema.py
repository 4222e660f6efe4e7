"""Requests and responses of our API."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from regard.config import SearchOptions
from regard.serve.access import Limits

LIMITS = Limits()


def option(name: str, description: str = "", *, most: int | None = None) -> Any:
    """Return the field of a search option, within the bounds of `SearchOptions` and up to `most`."""
    least, largest = SearchOptions.BOUNDS[name]
    return Field(ge=least, le=largest if most is None else min(most, largest), description=description or None)


Text = Annotated[str, Field(max_length=LIMITS.text_characters)]


class BaseRequest(BaseModel):
    """The fields that all translation requests share."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[
        str | None, Field(max_length=200, description="A name from /v1/models; the first model if not given.")
    ] = None
    target: Annotated[
        str | None, Field(max_length=40, description="The language to translate into; chooses among several models.")
    ] = None
    max_extra: Annotated[
        int | None,
        option("max_extra", "Maximum number of output tokens beyond those of the input.", most=LIMITS.max_extra),
    ] = None

    def search(self) -> dict[str, Any]:
        """Return the search options that were given."""
        names = set(SearchOptions.__struct_fields__) & set(type(self).model_fields)
        return self.model_dump(include=names, exclude_none=True)


class SearchRequest(BaseRequest):
    """The search options of a request."""

    beam: Annotated[int | None, option("beam", "1 is greedy search.", most=LIMITS.beam)] = None
    length_penalty: Annotated[float | None, option("length_penalty")] = None
    iterations: Annotated[int | None, option("iterations", "Mask-predict iterations.", most=LIMITS.iterations)] = None


class TranslateRequest(SearchRequest):
    """One text or several. Long texts are split into sentences and joined again."""

    text: Text | Annotated[list[Text], Field(max_length=LIMITS.texts)]
    nbest: Annotated[int, option("nbest", "Translations per sentence.", most=LIMITS.beam)] = 1


class Candidate(BaseModel):
    text: str
    score: float


class SentenceResult(BaseModel):
    source: str
    text: str
    nbest: list[Candidate]


class Translated(BaseModel):
    text: str
    sentences: list[SentenceResult]


class TranslateResponse(BaseModel):
    model: str
    translations: list[Translated]


class StreamRequest(BaseRequest):
    """A text to translate by greedy search; the translation is sent token by token as server-sent events."""

    text: Annotated[str, Field(max_length=LIMITS.streamed_characters)]


class LookRequest(SearchRequest):
    """A sentence to trace, and the token ids that its translation must begin with."""

    text: Text
    prefix: Annotated[list[Annotated[int, Field(ge=0, le=2**31)]], Field(max_length=LIMITS.prefix_tokens)] = []
    alternatives: Annotated[int, Field(ge=0, le=10)] = 3


class ModelInfo(BaseModel):
    name: str
    source: str | None
    target: str | None
    kind: str
    parameters: int
    non_autoregressive: bool
    beam: int
    card: dict[str, Any]


class Problem(BaseModel):
    error: str
