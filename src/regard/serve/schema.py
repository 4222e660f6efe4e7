"""Requests and responses of our API."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from regard.serve.limits import Limits

LIMITS = Limits()


Text = Annotated[str, Field(max_length=LIMITS.text_characters)]


class BaseRequest(BaseModel):
    """The fields that all translation requests share."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[
        str | None, Field(max_length=200, description="A name from /v1/models; the first model if not given.")
    ] = None
    max_extra: Annotated[
        int | None, Field(ge=0, le=1000, description="Maximum number of output tokens beyond those of the input.")
    ] = None

    def search(self) -> dict[str, Any]:
        """Return the search options that were given."""
        names = {"beam", "length_penalty", "max_extra", "iterations"}
        return self.model_dump(include=names & set(type(self).model_fields), exclude_none=True)


class SearchRequest(BaseRequest):
    """The search options of a request."""

    beam: Annotated[int | None, Field(ge=1, le=LIMITS.beam, description="1 is greedy search.")] = None
    length_penalty: Annotated[float | None, Field(ge=0, le=10)] = None
    iterations: Annotated[int | None, Field(ge=1, le=100, description="Mask-predict iterations.")] = None


class TranslateRequest(SearchRequest):
    """One text or several. Long texts are split into sentences and joined again."""

    text: Text | Annotated[list[Text], Field(max_length=LIMITS.texts)]
    nbest: Annotated[int, Field(ge=1, le=LIMITS.beam, description="Translations per sentence.")] = 1


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
