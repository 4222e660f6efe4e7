"""Options of search that would have no effect are refused, and those that have one are named."""

import pytest
import torch

import regard
from regard.config import SearchOptions
from regard.decoding.cuda_graph_model import CudaGraphModel
from regard.decoding.ensemble import Ensemble
from regard.decoding.options import describe_search
from regard.decoding.requests import Request
from regard.decoding.shortlist_model import refuse_without_columns
from regard.decoding.translator import Translator
from regard.errors import ConfigError, DecodeError
from regard.explain.translation_trace import trace_translation
from regard.models import build_model
from regard.text.tokenizer_pair import train_tokenizers

TOKENIZERS = train_tokenizers([("abcdefgh", "abcdefgh")], kind="char", size=100, joint=True)
SIZES = {"source_size": TOKENIZERS.source.size, "target_size": TOKENIZERS.target.size}
SMALL = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16}


def make(kind="transformer", **recipe):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build_model({"kind": kind, **SMALL}, **SIZES).eval()
        model.target_embedding.data *= 3  # larger scores, so that outputs differ
    return Translator(model, TOKENIZERS, SearchOptions(max_extra=5, **recipe))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({name: 0.5}, f"{name} is an option of samples") for name in ("temperature", "top_p", "epsilon")),
        *(({name: 3}, f"{name} is an option of samples") for name in ("top_k", "seed")),
        ({"diversity_penalty": 0.9}, "diversity_penalty needs beam_groups"),
        ({"beam": 1, "mbr": "chrf"}, "mbr chooses among hypotheses, and beam is 1"),
        ({"beam": 1, "coverage_penalty": 0.2}, "coverage_penalty chooses among hypotheses, and beam is 1"),
    ],
)
def test_options_without_effect_are_refused_unless_they_are_the_recipes(options, message):
    given = SearchOptions(**options)
    with pytest.raises(DecodeError, match=message):
        make().translate(["abc"], options=given)
    with pytest.raises(DecodeError, match=message):
        make().refuse(Request("abc"), given)  # as the server does, before a search
    assert len(make(**options).translate(["abc"])) == 1


@pytest.mark.parametrize(
    "options", [{"sample": True}, {"beam_groups": 2}, {"no_repeat_ngram": 2}, {"token_scores": True}]
)
def test_what_a_model_that_outputs_all_tokens_at_once_lacks_is_refused(options):
    with pytest.raises(DecodeError, match=f"outputs all tokens at once, without {next(iter(options))}"):
        make("ctc").translate(["abc"], options=SearchOptions(**options))


def test_lengths_that_exclude_each_other_are_refused():
    with pytest.raises(DecodeError, match="min_length is 5, which max_length=3 does not allow"):
        SearchOptions(min_length=5, max_length=3)


def test_the_likeliest_sample_is_returned():
    options = SearchOptions(sample=True, beam=6)
    texts = ["abc", "hgfe", "bbb", "ad"]
    assert make().translate(texts, options=options) == [best[0].text for best in make().stream(texts, options=options)]


def test_scores_of_tokens_are_log_probabilities_even_where_sums_are_not_wanted():
    with_sums, without = (
        make().stream(["abc"], options=SearchOptions(beam=1, token_scores=True, scores=scores))
        for scores in (True, False)
    )
    (one,), (other,) = next(with_sums), next(without)
    assert [token.score for token in other.tokens] == pytest.approx([token.score for token in one.tokens], abs=1e-5)
    assert max(token.score for token in other.tokens) <= 0


def test_greedy_search_follows_from_any_options():
    given = SearchOptions(beam=4, beam_groups=2, diversity_penalty=0.3, nbest=2, coverage_penalty=0.1)
    greedy = SearchOptions().with_given(given).greedy()
    assert (greedy.beam, greedy.nbest, greedy.beam_groups, greedy.coverage_penalty) == (1, 1, 1, 0.0)
    drawn = SearchOptions().with_given(SearchOptions(sample=True, beam=4, mbr="bleu")).greedy()
    assert (drawn.sample, drawn.mbr) == (False, None)


def test_an_output_of_diverse_beams_is_looked_at():
    traced = trace_translation(make(beam=4, beam_groups=2), "abc", alternatives=2)
    assert all(other.text for others in traced.alternatives for other in others)


def test_a_shortlist_is_refused_where_steps_are_captured():
    model = make().model
    for one in (CudaGraphModel(model.for_inference()), Ensemble([CudaGraphModel(model.for_inference())])):
        with pytest.raises(DecodeError, match="shortlist is for models on a CPU"):
            refuse_without_columns(one)
    refuse_without_columns(Ensemble([model]))


def test_another_model_must_be_of_the_same_direction():
    with pytest.raises(ConfigError, match="de-en and en-de translate between other languages; a rescorer has those"):
        regard.load("en-de", device="cpu", rescorer="de-en")


def test_an_ensemble_says_that_it_has_no_confidence():
    plain = make()
    both = Translator(Ensemble([plain.model, plain.model]), TOKENIZERS, plain.options)
    with pytest.raises(DecodeError, match="an ensemble has no confidence"):
        both.translate(["abc"], options=SearchOptions(confidence=True))


def test_a_glossary_or_a_part_to_keep_is_refused_with_a_pivot(tmp_path):
    (tmp_path / "terms.tsv").write_text("a\tb\n")
    for made, request in ((make().with_glossary(tmp_path / "terms.tsv"), "abc"), (make(), Request("abc", keep=["b"]))):
        made.pivot = make()
        with pytest.raises(DecodeError, match="cannot be followed through a pivot"):
            made.translate([request])


def test_what_is_searched_is_named():
    def named(others=None, **options):
        return describe_search(SearchOptions(**options), **(others or {}))

    assert named() == "beam 4, length penalty 0.6"
    assert named(beam=1, max_repeats=2) == "greedy, max_repeats 2"
    assert named(shortlist=50, early_stopping=False) == "beam 4, length penalty 0.6, early_stopping false, shortlist 50"
    assert named(sample=True, beam=3, top_k=9, seed=4) == "3 samples, top_k 9, seed 4"
    others = {"rescorer": True, "reverse": True, "models": 3}
    assert named(others).endswith("0.6, ensemble of 3, rescored by another model, reverse model at 0.5")
