"""A vocabulary per sentence: for every model that has an output layer, and in the run folder."""

import msgspec
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.automaton import Automaton, Phrase
from regard.decoding.constraints import Demands
from regard.decoding.ensemble import Ensemble
from regard.decoding.requests import Request
from regard.decoding.search import search
from regard.decoding.shortlist import Shortlist
from regard.decoding.shortlist_model import with_shortlist
from regard.errors import CheckpointError, DecodeError
from regard.models import build_model
from regard.run.folder import RunFolder

SMALL = {
    "transformer": {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24},
    "rnn": {"width": 16, "hidden": 24},
    "convs2s": {"width": 16, "encoder": [[16, 3]], "decoder": [[16, 3]]},
    "bytenet": {"width": 16, "dilations": [1, 2], "sets": 2},
}
SIZE = 30
SOURCES = [[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2]]
VOCABULARIES = [np.array([2, 4, 9, 11, 20]), np.array([2, 5, 7, 29]), np.array([2, 3, 8, 9])]


@pytest.fixture(params=SMALL)
def model(request):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        made = build_model({"kind": request.param, **SMALL[request.param]}, source_size=SIZE, target_size=SIZE).eval()
        made.output_weight.data *= 3  # larger scores, so that outputs differ
    return made


def find(model, rows, vocabularies, automata=None, **options):
    demands = Demands(
        [None if automata is None else automata[row] for row in rows],
        vocabularies=None if vocabularies is None else [vocabularies[row] for row in rows],
    )
    source = Ragged.from_lists([SOURCES[row] for row in rows])
    return search(model, source, options=SearchOptions(max_extra=8, **options), demands=demands)


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3, "nbest": 2}, {"sample": True, "beam": 2, "nbest": 2}])
def test_outputs_have_tokens_of_their_own_vocabulary_whatever_the_neighbours(model, options):
    together = find(model, [0, 1, 2], VOCABULARIES, **options)
    for row, best in enumerate(together):
        (alone,) = find(model, [row], VOCABULARIES, **options)
        assert [one.ids for one in best] == [one.ids for one in alone]
        assert [one.score for one in best] == pytest.approx([one.score for one in alone], abs=1e-4)
        assert {token for one in best for token in one.ids} <= set(VOCABULARIES[row].tolist())


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3, "nbest": 3}])
def test_the_whole_vocabulary_changes_nothing(model, options):
    every = [np.arange(SIZE)] * len(SOURCES)
    for short, plain in zip(
        find(model, [0, 1, 2], every, **options), find(model, [0, 1, 2], None, **options), strict=True
    ):
        assert [one.ids for one in short] == [one.ids for one in plain]
        assert [one.score for one in short] == pytest.approx([one.score for one in plain], abs=1e-4)


def test_probabilities_are_those_of_the_models_logits_within_the_vocabulary(model):
    source, target = Ragged.from_lists(SOURCES[:2]), Ragged.from_lists([[1, 4, 9], [1, 5]])
    with torch.no_grad():
        logits = model.decode(target, model.encode(source))
        short = with_shortlist(model, VOCABULARIES[:2])
        found = short.decode(target, short.encode(source)).log_softmax(-1)
    for row, sentence in enumerate([0, 0, 0, 1, 1]):
        own = VOCABULARIES[sentence]
        torch.testing.assert_close(found[row, own], logits[row, own].log_softmax(-1), rtol=1e-4, atol=1e-4)
        assert found[row].exp().sum().item() == pytest.approx(1, abs=1e-4)


def test_the_output_bias_belongs_to_its_column():
    table = {"kind": "transformer", "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16, "output_bias": True}
    model = build_model(table, source_size=SIZE, target_size=SIZE).eval()
    model.output_bias.data[7] = 100.0
    assert {tuple(best[0].ids[:3]) for best in find(model, [1], VOCABULARIES, beam=1)} == {(7, 7, 7)}
    assert model.output is None and model.output_bias.shape == (SIZE,)  # as before


def test_a_phrase_is_output_though_no_token_has_it_as_a_translation():
    shortlist = Shortlist(size=SIZE, frequent=[4], translations={5: [8, 9, 10], 6: [11]}, shared=False)
    automaton = Automaton(2, phrases=(Phrase(((21, 22),)),))
    assert shortlist.vocabulary([5, 6], 2, automaton.tokens).tolist() == [2, 4, 8, 9, 11, 21, 22]
    assert Shortlist(SIZE, [4], {5: [8]}, shared=True).vocabulary([5, 6], 2).tolist() == [2, 4, 5, 6, 8]
    model = build_model({"kind": "rnn", **SMALL["rnn"]}, source_size=SIZE, target_size=SIZE).eval()
    own = [shortlist.vocabulary(source, 2, automaton.tokens) for source in SOURCES]
    for best in find(model, [0, 1, 2], own, [automaton] * 3, beam=4):
        assert any(best[0].ids[place : place + 2] == [21, 22] for place in range(len(best[0].ids)))


def test_an_ensemble_of_one_has_the_outputs_of_its_model(model):
    plain, alone = (find(one, [0, 1, 2], VOCABULARIES, beam=2) for one in (model, Ensemble([model])))
    assert [best[0].ids for best in plain] == [best[0].ids for best in alone]


@pytest.mark.parametrize("kind", ["nat", "ctc"])
def test_other_models_are_refused(kind):
    model = build_model({"kind": kind, **SMALL["transformer"]}, source_size=SIZE, target_size=SIZE)
    with pytest.raises(DecodeError, match="shortlist is for models on a CPU"):
        with_shortlist(model, VOCABULARIES)


# The command, and the run folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "pairs.tsv"
    text.write_text("".join(f"{a} {b}\t{b.upper()} {a.upper()}\n" for a in "abcdefg" for b in "hijklmn"))
    data = [f'data.train={{pairs="{text}"}}', "data.valid={hold_out=2}", "data.test={}"]
    sizes = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16"]
    regard.train("copy", out=folder / "run", data=folder, overrides=[*data, *sizes, "train.steps=2", "train.threads=1"])
    return folder / "run"


def test_a_run_without_a_shortlist_says_how_to_make_one(run, tmp_path):
    regard.export(run, tmp_path / "plain")
    with pytest.raises(DecodeError, match="make one with: regard align --run"):
        regard.load(tmp_path / "plain", device="cpu").translate(["a h"], options=SearchOptions(shortlist=2))


def test_the_command_writes_a_shortlist_that_search_uses_and_an_export_keeps(run, tmp_path):
    done = CliRunner().invoke(app, ["align", "--run", str(run), "--data", str(run.parent)])
    assert done.exit_code == 0, done.output
    regard.export(run, tmp_path / "copy")
    translator = regard.load(tmp_path / "copy", device="cpu")
    ids, _ = translator.encode("a h")
    shortlist = msgspec.json.decode((tmp_path / "copy" / "shortlist.json").read_bytes(), type=Shortlist)
    upper = translator.tokenizers.target.encode("A H")
    assert set(upper) <= set(shortlist.vocabulary(ids, 5).tolist())
    plain, short = (translator.translate(["a h", "g n"], options=SearchOptions(shortlist=n)) for n in (0, 100))
    assert short == plain  # all tokens are frequent in so small a corpus
    with_phrase = Request("a h", phrases=["M"])
    assert "M" in translator.translate([with_phrase], options=SearchOptions(beam=4, shortlist=1))[0]


@pytest.mark.parametrize("text", ["{", '{"size": 3, "frequent": [], "translations": {}, "shared": true}'])
def test_a_shortlist_that_does_not_fit_is_refused_by_name(run, tmp_path, text):
    regard.export(run, tmp_path / "copy")
    RunFolder(tmp_path / "copy").write_extras({"shortlist.json": text})
    with pytest.raises(CheckpointError, match=r"shortlist\.json is damaged, or of another vocabulary"):
        regard.load(tmp_path / "copy", device="cpu").translate(["a h"], options=SearchOptions(shortlist=2))


def test_a_model_of_the_package_is_exported_first():
    done = CliRunner().invoke(app, ["align", "--run", "en-de"])
    assert done.exit_code != 0 and "regard export en-de --out mine" in str(done.exception)
