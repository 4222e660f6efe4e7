"""Requests and responses of our API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from regard.config import SearchOptions
from regard.decoding.requests import MOST_FORMS, MOST_PHRASES
from regard.errors import DecodeError, did_you_mean
from regard.serve.access import Limits
from regard.serve.request_errors import LONGEST_NAME
from regard.text.glossary import make_glossary

LIMITS = Limits()


def option(name: str, description: str = "", *, most: int | None = None) -> Any:
    """Return the field of a search option, within the bounds of `SearchOptions` and up to `most`."""
    least, largest = SearchOptions.BOUNDS[name]
    return Field(ge=least, le=largest if most is None else min(most, largest), description=description or None)


Text = Annotated[str, Field(max_length=LIMITS.text_characters)]
Term = Annotated[str, Field(max_length=LIMITS.term_characters)]


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

    @model_validator(mode="before")
    @classmethod
    def refuse_unknown(cls, values: Any) -> Any:
        """Name the field that an unknown one is similar to."""
        if isinstance(values, dict):
            for name in values:
                if name not in cls.model_fields:
                    known = did_you_mean(name[:LONGEST_NAME], cls.model_fields)
                    raise ValueError(f"a request has no field {name[:LONGEST_NAME]!r}; {known}")
        return values

    def search(self) -> dict[str, Any]:
        """Return the search options that were given."""
        names = [name for name in type(self).model_fields if name in SearchOptions.__struct_fields__]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class SearchRequest(BaseRequest):
    """The search options of a request."""

    beam: Annotated[int | None, option("beam", "1 is greedy search.", most=LIMITS.beam)] = None
    length_penalty: Annotated[float | None, option("length_penalty")] = None
    length_penalty_kind: Literal["wu", "power"] | None = None
    early_stopping: bool | Literal["never"] | None = None
    beam_groups: Annotated[int | None, option("beam_groups", "Diverse beam search.", most=LIMITS.beam)] = None
    diversity_penalty: Annotated[float | None, option("diversity_penalty")] = None
    sample: Annotated[bool | None, Field(description="Draw `beam` samples in place of searching.")] = None
    temperature: Annotated[float | None, option("temperature", "Sampling temperature.")] = None
    top_k: Annotated[int | None, option("top_k")] = None
    top_p: Annotated[float | None, option("top_p")] = None
    epsilon: Annotated[float | None, option("epsilon")] = None
    seed: Annotated[int | None, option("seed", "Random seed of sampling.")] = None
    no_repeat_ngram: Annotated[
        int | None, option("no_repeat_ngram", "Forbid any n-gram of this length from occurring twice.")
    ] = None
    max_repeats: Annotated[
        int | None, option("max_repeats", "Maximum number of consecutive repetitions of a token sequence.")
    ] = None
    shortlist: Annotated[int | None, option("shortlist", "Likely translations per token that may be output.")] = None
    iterations: Annotated[int | None, option("iterations", "Mask-predict iterations.", most=LIMITS.iterations)] = None


class TranslateRequest(SearchRequest):
    """One text or several. Long texts are split into sentences and joined again."""

    text: Text | Annotated[list[Text], Field(max_length=LIMITS.texts)]
    nbest: Annotated[int, option("nbest", "Translations per sentence.", most=LIMITS.beam)] = 1
    mbr: Annotated[
        Literal["chrf", "bleu"] | None, Field(description="Choose the hypothesis that agrees most with all of them.")
    ] = None
    coverage_penalty: Annotated[float | None, option("coverage_penalty", "beta of Wu et al. 2016; 0: off.")] = None
    token_scores: Annotated[bool | None, Field(description="Whether log-probabilities of all tokens are returned.")] = (
        None
    )
    confidence: Annotated[
        bool | None, Field(description="Whether calibrated probabilities of words and sentences are returned.")
    ] = None
    unknown: Annotated[
        bool, Field(description="Whether the share of characters that the model does not know is returned.")
    ] = False
    glossary: Annotated[
        dict[Term, Term],
        Field(max_length=LIMITS.terms, description="Terms and their translations; a|b are two of them."),
    ] = {}
    keep: Annotated[
        list[Term], Field(max_length=LIMITS.terms, description="Parts of the text that are not translated.")
    ] = []
    phrases: Annotated[
        list[Term | Annotated[list[Term], Field(max_length=MOST_FORMS)]],
        Field(max_length=MOST_PHRASES, description="What the translation of one sentence must contain."),
    ] = []
    prefix: Annotated[Term, Field(description="What the translation of one sentence begins with.")] = ""

    @property
    def has_demands(self) -> bool:
        return bool(self.glossary or self.keep or self.phrases or self.prefix)

    def demands(self, sentences: Sequence[str]) -> list[dict[str, Any]]:
        """Return what the translation of each sentence must have, as fields of a request."""
        if len(sentences) > 1 and (self.phrases or self.prefix):
            raise DecodeError("phrases and prefix are for a text of one sentence; use a glossary for longer texts")
        glossary, found = make_glossary(self.glossary.items()), []
        for text in sentences:
            one = {
                "prefix": self.prefix,
                "phrases": self.phrases,
                "keep": [kept for kept in self.keep if kept in text],
                "terms": glossary.phrases(text),
            }
            found.append({name: value for name, value in one.items() if value})
        return found


class Candidate(BaseModel):
    text: str
    score: float
    lacks: list[str]  # protected spans and demanded phrases that it does not have
    tokens: Sequence[tuple[str, float]] | None = None
    confidence: float | None = None  # in the sentence, from 0 to 1, if it was asked for
    words: Sequence[tuple[str, float]] | None = None  # and in each word


class SentenceResult(BaseModel):
    source: str
    text: str
    nbest: list[Candidate]
    unknown: float | None = (
        None  # the share of characters of the source that the model does not know, if it was asked for
    )


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
    calibrated: bool  # whether it has confidence
    beam: int
    card: dict[str, Any]


class Problem(BaseModel):
    error: str
