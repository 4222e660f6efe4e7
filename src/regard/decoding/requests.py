"""A text to translate with what its translation must have, and how this becomes an automaton over tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.config import SearchOptions
from regard.decoding.automaton import Automaton, Phrase
from regard.decoding.constraints import Demands
from regard.decoding.shortlist import Shortlist, refuse_without_columns
from regard.errors import DecodeError
from regard.messages import counted
from regard.models.base import Model, Seq2Seq
from regard.text.protected_spans import Masked, placeholder_ids
from regard.text.symbols import UNK
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_pair import Tokenizers
from regard.text.unknown_words import ExtendedVocabulary

WORD_START = "▁"  # of a subword
MOST_PHRASES, MOST_FORMS, MOST_CHARS = 50, 20, 1000  # of one text; search takes time for each


@dataclass(frozen=True)
class Request:
    """A text to translate, and what its translation must have."""

    text: str
    prefix: str = ""  # what it begins with
    # What it contains. An entry that is a list of forms is satisfied by one of them.
    phrases: Sequence[str | Sequence[str]] = ()
    keep: Sequence[str] = ()  # parts of the text that come back as they are

    def __post_init__(self) -> None:
        texts = [self.text, self.prefix, *self.keep, *(form for forms in self.forms for form in forms)]
        if (
            isinstance(self.phrases, str)
            or isinstance(self.keep, str)
            or not all(isinstance(one, str) for one in texts)
        ):
            raise DecodeError("a request takes a text, and lists of texts as phrases and keep")
        if len(self.phrases) > MOST_PHRASES or any(len(forms) > MOST_FORMS for forms in self.forms):
            raise DecodeError(f"a request takes at most {MOST_PHRASES} phrases, with at most {MOST_FORMS} forms each")
        if any(not form.strip() for forms in self.forms for form in forms) or not all(self.forms):
            raise DecodeError("a phrase is empty; leave it out")
        if any(len(one) > MOST_CHARS for one in texts[1:]):
            raise DecodeError(f"a prefix, a phrase or a part to keep has more than {counted(MOST_CHARS, 'character')}")

    @property
    def forms(self) -> list[tuple[str, ...]]:
        """The forms of each phrase."""
        return [(one,) if isinstance(one, str) else tuple(one) for one in self.phrases]


class OutputDemands:
    """Makes the automata of a model's outputs."""

    def __init__(self, model: Model, tokenizers: Tokenizers) -> None:
        self.model, self.tokenizers = model, tokenizers
        self.find_shortlist: Callable[[], Shortlist | None] = lambda: None
        sides = placeholder_ids(tokenizers.source), placeholder_ids(tokenizers.target)
        # The ids of the placeholders on both sides, if the model knows them.
        self.symbols = None if model.non_autoregressive or model.copies or not all(sides) else sides

    @cached_property
    def _continuing(self) -> frozenset[int]:
        return continuing_tokens(self.tokenizers.target)

    def refuse(self, request: Request, options: SearchOptions) -> None:
        """Raise DecodeError if the model or the options cannot satisfy a request."""
        if not (request.phrases or request.prefix or request.keep):
            return
        if self.model.non_autoregressive:
            raise DecodeError("this model outputs all tokens at once; it takes no prefix, phrases or parts to keep")
        if self.model.copies and request.keep:
            raise DecodeError("this model copies words on its own; leave out the parts to keep")
        self._prefix(request)
        if self._phrases(request):
            if options.sample or options.beam_groups > 1:
                name = "sample" if options.sample else "beam_groups"
                raise DecodeError(f"phrases are found by beam search, without {name}; give one or the other")
            if options.beam == 1:
                raise DecodeError(
                    "phrases need a beam of at least 2, and beam is 1; set it to 4, or leave out the phrases"
                )

    def demands(
        self,
        sources: Sequence[tuple[Sequence[int], ExtendedVocabulary]],
        requests: Sequence[Request] = (),
        prefixes: Sequence[Sequence[int]] = (),
        *,
        shortlist: int = 0,
    ) -> Demands | None:
        """Return what the outputs for these sources must have; None: nothing. `prefixes` are ids.

        `shortlist` is that of the options of search.
        """
        if self.model.non_autoregressive:
            return None
        requests = requests or [Request("")] * len(sources)
        prefixes = prefixes or [self._prefix(request) for request in requests]
        automata = [
            self._automaton(ids, vocabulary.masked, request, prefix)
            for (ids, vocabulary), request, prefix in zip(sources, requests, prefixes, strict=True)
        ]
        never = () if self.symbols is None else tuple(self.symbols[1])
        vocabularies = None
        if shortlist:
            likely = self.shortlist()
            vocabularies = [
                likely.vocabulary(ids, shortlist, automaton.tokens)
                for (ids, _), automaton in zip(sources, automata, strict=True)
            ]
        if vocabularies is None and not never and not any(automata):
            return None
        return Demands([one or None for one in automata], never, vocabularies)

    def shortlist(self) -> Shortlist:
        """Return the shortlist of the run. Raise DecodeError if there is none, or if the model cannot use one."""
        refuse_without_columns(self.model)
        found = self.find_shortlist()
        if found is None:
            raise DecodeError("this run has no shortlist; make one with: regard align --run RUN --data FOLDER")
        return found

    def lacking(self, request: Request, ids: Sequence[int]) -> list[str]:
        """Return the phrases that an output does not have."""
        phrases = self._phrases(request)
        if not phrases:
            return []
        assert isinstance(self.model, Seq2Seq)
        automaton = Automaton(self.model.eos, phrases=phrases, continuing=self._continuing)
        names = [*(forms[0] for forms in request.forms), *self._kept(request)]
        return [names[number] for number in automaton.unmet(ids)]

    def _automaton(
        self, ids: Sequence[int], masked: Masked | None, request: Request, prefix: Sequence[int]
    ) -> Automaton:
        assert isinstance(self.model, Seq2Seq)
        phrases = self._phrases(request)
        own, theirs = self.symbols or ([], [])
        # Not the placeholders that were cut off with the end of the source.
        there, spans = set(ids), () if masked is None else masked.spans
        wanted = [number for number in range(len(spans)) if own[number] in there]
        return Automaton(
            self.model.eos,
            tuple(prefix),
            phrases,
            symbols=tuple(theirs[number] for number in wanted),
            in_order=tuple(theirs[number] for number in wanted if spans[number].kind == "tag"),
            continuing=self._continuing if phrases else frozenset(),
        )

    def _prefix(self, request: Request) -> list[int]:
        return self._ids(request.prefix) if request.prefix else []

    def _phrases(self, request: Request) -> tuple[Phrase, ...]:
        forms = [*request.forms, *((one,) for one in self._kept(request))]
        return tuple(Phrase(tuple(tuple(self._ids(form)) for form in some)) for some in forms)

    def _kept(self, request: Request) -> list[str]:
        """Return the parts to keep that are no placeholders but phrases, because the model has none."""
        return [one for one in request.keep if one in request.text] if self.symbols is None else []

    def _ids(self, text: str) -> list[int]:
        ids = self.tokenizers.target.encode(text)
        if UNK in ids or not ids:
            raise DecodeError(f"the model cannot output {text!r}: its vocabulary lacks some of it")
        return ids


def continuing_tokens(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of the tokens that continue the word before them: letters and digits without a beginning of a word."""
    tokens = tokenizer.tokens(range(tokenizer.size))
    if tokenizer.kind != "char" and not any(token.startswith(WORD_START) for token in tokens):
        return frozenset()  # each token is a word
    return frozenset(id for id, token in enumerate(tokens) if token[:1].isalnum())
