"""What our API takes and gives."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from regard.serve.limits import Limits

LIMITS = Limits()


Text = Annotated[str, Field(max_length=LIMITS.text_characters)]


class BaseRequest(BaseModel):
    """What all requests for a translation have in common."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str | None, Field(max_length=200, description="A name of /v1/models; the first if not given.")] = (
        None
    )
    max_extra: Annotated[int | None, Field(ge=0, le=1000, description="Most output tokens beyond the input's.")] = None

    def search(self) -> dict[str, Any]:
        """The options for search that were given."""
        names = {"beam", "length_penalty", "max_extra", "iterations"}
        return self.model_dump(include=names & set(type(self).model_fields), exclude_none=True)


class SearchRequest(BaseRequest):
    """What can be said of search."""

    beam: Annotated[int | None, Field(ge=1, le=LIMITS.beam, description="1 is greedy.")] = None
    length_penalty: Annotated[float | None, Field(ge=0, le=10)] = None
    iterations: Annotated[int | None, Field(ge=1, le=100, description="Of mask-predict.")] = None


class TranslateRequest(SearchRequest):
    """One text or several. Long ones are cut into sentences and put together again."""

    text: Text | Annotated[list[Text], Field(max_length=LIMITS.texts)]
    nbest: Annotated[int, Field(ge=1, le=LIMITS.beam, description="Translations of each sentence.")] = 1


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
    """A text whose translation is sent token by token, as server-sent events; greedy."""

    text: Annotated[str, Field(max_length=LIMITS.streamed_characters)]


class LookRequest(SearchRequest):
    """A sentence, and the tokens that its translation is to begin with."""

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
