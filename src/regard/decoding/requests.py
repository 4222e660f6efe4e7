"""A text to translate with what its translation must have, and how this becomes an automaton over tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from regard.config import SearchOptions
from regard.decoding.automaton import Automaton, Phrase
from regard.decoding.backend import Backend
from regard.decoding.constraints import Demands
from regard.decoding.shortlist import Shortlist
from regard.errors import DecodeError
from regard.messages import counted
from regard.text.protected_spans import Masked, placeholder_ids
from regard.text.symbols import UNK
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_pair import Tokenizers
from regard.text.unknown_words import ExtendedVocabulary

WORD_START = "▁"  # of a subword
# Of one text; search takes time for each. Parts to keep count as phrases.
MOST_PHRASES, MOST_FORMS, MOST_CHARS = 50, 20, 1000
# Of all forms of the phrases of one text together. So many characters have more tokens; saves tokenizing them.
MOST_TOKENS, MOST_TOTAL_CHARS = 256, 8192
ENCODED = 4096  # phrases whose tokens are remembered


@dataclass(frozen=True)
class Request:
    """A text to translate, and what its translation must have."""

    text: str
    prefix: str = ""  # what it begins with
    # What it contains. An entry that is a list of forms is satisfied by one of them.
    phrases: Sequence[str | Sequence[str]] = ()
    keep: Sequence[str] = ()  # parts of the text that come back as they are
    # Phrases of a glossary. Search leaves out those beyond the limits, and those that the model cannot output.
    terms: Sequence[Sequence[str]] = ()

    def __post_init__(self) -> None:
        demanded = [*self.keep, *(form for forms in self.forms for form in forms)]
        texts = [self.text, self.prefix, *demanded]
        terms = [form for forms in self.terms for form in forms]
        if (
            isinstance(self.phrases, str)
            or isinstance(self.keep, str)
            or isinstance(self.terms, str)
            or not all(isinstance(one, str) for one in (*texts, *terms))
        ):
            raise DecodeError("a request takes a text, and lists of texts as phrases and keep")
        if len(self.phrases) + len(self.keep) > MOST_PHRASES or any(len(forms) > MOST_FORMS for forms in self.forms):
            raise DecodeError(
                f"a request takes at most {MOST_PHRASES} phrases and parts to keep, with at most {MOST_FORMS} forms each"
            )
        if any(not form.strip() for forms in self.forms for form in forms) or not all((*self.forms, *self.terms)):
            raise DecodeError("a phrase is empty; leave it out")
        if any(len(one) > MOST_CHARS for one in texts[1:]):
            raise DecodeError(f"a prefix, a phrase or a part to keep has more than {counted(MOST_CHARS, 'character')}")
        if sum(map(len, demanded)) > MOST_TOTAL_CHARS:
            raise DecodeError(
                f"the phrases and parts to keep of a request have more than {counted(MOST_TOTAL_CHARS, 'character')} "
                "in all; leave out some of them"
            )

    @property
    def forms(self) -> list[tuple[str, ...]]:
        """The forms of each phrase."""
        return [(one,) if isinstance(one, str) else tuple(one) for one in self.phrases]


class OutputDemands:
    """Makes the automata of a model's outputs."""

    def __init__(self, model: Backend, tokenizers: Tokenizers) -> None:
        self.model, self.tokenizers = model, tokenizers
        self.find_shortlist: Callable[[], Shortlist | None] = lambda: None
        sides = placeholder_ids(tokenizers.source), placeholder_ids(tokenizers.target)
        # The ids of the placeholders on both sides, if the model knows them.
        self.symbols = None if model.non_autoregressive or model.copies or not all(sides) else sides
        # A glossary has the same terms in many texts.
        self._encode = lru_cache(maxsize=ENCODED)(tokenizers.target.encode)

    @cached_property
    def _continuing(self) -> frozenset[int]:
        return continuing_tokens(self.tokenizers.target)

    def refuse(self, request: Request, options: SearchOptions) -> None:
        """Raise DecodeError if the model or the options cannot satisfy a request."""
        if not (request.phrases or request.prefix or request.keep or request.terms):
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

    def limit(self, request: Request, limit: int, options: SearchOptions) -> int:
        """Return the most tokens of an output that could have so many if nothing were demanded."""
        if self.model.non_autoregressive:
            return limit
        automaton = Automaton(self.model.eos, tuple(self._prefix(request)), self._phrases(request))
        return Demands([automaton]).limit(0, limit, options)

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
        self.model.refuse_shortlist()
        found = self.find_shortlist()
        if found is None:
            raise DecodeError("this run has no shortlist; make one with: regard align --run RUN --data FOLDER")
        return found

    def lacking(self, request: Request, ids: Sequence[int]) -> list[str]:
        """Return the phrases that an output does not have."""
        phrases = [*self._demanded(request), *map(self._term, request.terms)]
        if not phrases:
            return []
        names = [*(forms[0] for forms in request.forms), *self._kept(request), *(forms[0] for forms in request.terms)]
        automaton = Automaton(self.model.eos, phrases=tuple(phrases), continuing=self._continuing)
        return [names[number] for number in automaton.unmet(ids)]

    def _automaton(
        self, ids: Sequence[int], masked: Masked | None, request: Request, prefix: Sequence[int]
    ) -> Automaton:
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
        """Return the phrases that search looks for, with the first terms of the glossary that are within the limits."""
        found = self._demanded(request)
        tokens = sum(map(_size, found))
        if tokens > MOST_TOKENS:
            raise DecodeError(
                f"the phrases and parts to keep of a request have {tokens} tokens in all their forms, and may have "
                f"{MOST_TOKENS}; leave out some of them"
            )
        for forms in request.terms:
            phrase = self._term(forms)
            if phrase.forms and len(found) < MOST_PHRASES and tokens + _size(phrase) <= MOST_TOKENS:
                found.append(phrase)
                tokens += _size(phrase)
        return tuple(found)

    def _demanded(self, request: Request) -> list[Phrase]:
        forms = [*request.forms, *((one,) for one in self._kept(request))]
        return [Phrase(tuple(tuple(self._ids(form)) for form in some)) for some in forms]

    def _term(self, forms: Sequence[str]) -> Phrase:
        """Return a term with those of its first forms that the model can output."""
        encoded = (self._encode(form) for form in forms[:MOST_FORMS] if len(form) <= MOST_CHARS)
        return Phrase(tuple(tuple(ids) for ids in encoded if ids and UNK not in ids))

    def _kept(self, request: Request) -> list[str]:
        """Return the parts to keep that are no placeholders but phrases, because the model has none."""
        return [one for one in request.keep if one in request.text] if self.symbols is None else []

    def _ids(self, text: str) -> list[int]:
        ids = self._encode(text)
        if UNK in ids or not ids:
            raise DecodeError(f"the model cannot output {text!r}: its vocabulary lacks some of it")
        return ids


def _size(phrase: Phrase) -> int:
    return sum(map(len, phrase.forms))


def continuing_tokens(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of the tokens that continue the word before them: letters and digits without a beginning of a word."""
    tokens = tokenizer.tokens(range(tokenizer.size))
    if tokenizer.kind != "char" and not any(token.startswith(WORD_START) for token in tokens):
        return frozenset()  # each token is a word
    return frozenset(id for id, token in enumerate(tokens) if token[:1].isalnum())
