"""What a sentence is charged for: the longest output that its search may have, with everything that follows the search."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from regard.decoding.requests import MOST_TOKENS
from regard.errors import DecodeError
from regard.serve.access import Access, Limits, sentence_cost
from regard.serve.models import load_all
from regard.serve.schema import TranslateRequest
from regard.serve.service import RequestContext, Service

TEXT = "Das Haus ist alt."


@pytest.fixture(scope="module")
def served():
    return load_all([Path("de-en")], int8=False)["de-en"]


@pytest.fixture
def options(served):
    return served.translator.options.replace(beam=4)


def test_a_sentence_is_charged_for_the_phrases_that_it_demands(served, options):
    source, phrases = served.count_tokens(TEXT), ["building", ["a very old vehicle", "car"]]
    more = sum(len(served.translator.tokenizers.target.encode(one)) for one in ("building", "car"))
    sentence = served.with_cost(TEXT, options, {"phrases": phrases})
    assert sentence.cost == sentence_cost(source, options.limit(source) + more, rows=4)
    assert sentence.demands == {"phrases": phrases}
    assert served.with_cost(TEXT, options).cost == sentence_cost(source, options.limit(source), rows=4)


@pytest.mark.parametrize(
    ("chosen", "rows"),
    [
        ({"confidence": True, "nbest": 2}, 4 + 2),
        # All beams are calibrated before they are ranked.
        ({"confidence": True, "nbest": 2, "mbr": "chrf"}, 4 + 4),
        ({"coverage_penalty": 0.1}, 4 + 4),
        ({"confidence": True, "coverage_penalty": 0.1}, 4 + 4 + 4),
    ],
)
def test_a_sentence_is_charged_for_each_pass_over_its_outputs(served, options, chosen, rows):
    source = served.count_tokens(TEXT)
    cost = served.with_cost(TEXT, options.replace(**chosen)).cost
    assert cost == sentence_cost(source, options.limit(source), rows=rows)


class Client:
    """A client that stays connected."""

    async def receive(self):
        await asyncio.sleep(60)


def prepare(served, options, demands):
    service = Service({"de-en": served}, None, Limits(), Access())

    async def run():
        context = RequestContext(Client(), "client", time.monotonic() + 60)
        return await service.prepare(context, served, [TEXT], options, demands)

    return asyncio.run(run())


def test_demands_are_tokenized_outside_of_the_event_loop(served, options):
    threads = []

    def demands(sentences):
        threads.append(threading.current_thread())
        return [{"phrases": ["building"]} for _ in sentences]

    _, [sentence] = prepare(served, options, demands)
    assert sentence.demands and threads[0] is not threading.main_thread()


def test_the_largest_request_of_the_schema_is_refused_before_it_is_queued(served, options):
    body = TranslateRequest(text=TEXT, phrases=["old houses " * 18] * 50)
    with pytest.raises(DecodeError, match="leave out some of them"):
        prepare(served, options, body.demands)
    phrases = ["old houses " * 10] * 20
    with pytest.raises(DecodeError, match=f"and may have {MOST_TOKENS}; leave out some of them"):
        prepare(served, options, TranslateRequest(text=TEXT, phrases=phrases).demands)


def test_a_glossary_with_many_terms_and_forms_is_not_refused(served, options):
    terms = {"Haus": "|".join(f"house{number}" for number in range(20)), "alt": "old|aged"}
    body = TranslateRequest(text=TEXT, glossary=terms)
    _, [sentence] = prepare(served, options, body.demands)
    assert [forms[0] for forms in sentence.demands["terms"]] == ["house0", "old"]
