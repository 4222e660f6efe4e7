"""An imported model is a run like any other: it is explained, served, adapted, and exported again."""

import json

import numpy as np
import pytest
import torch

import regard
from regard.exchange import held_out
from regard.exchange.importing import import_model
from regard.run.folder import RunFolder
from regard.text.tokenizer import EOS
from tests.exchange.marian_folders import WOERTER, WORDS, make_folder, sentences
from tests.packages import skip_module_without
from tests.serve.conftest import serving
from tests.shared import make_once

skip_module_without("transformers")
TEXT = "the old cat sat on the station"
GREEDY = regard.SearchOptions(beam=1, max_extra=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run that is made of a folder as OPUS-MT's are, with random weights, which is next to it."""

    def make(folder):
        make_folder(folder / "opus-mt-en-de")
        import_model(folder / "opus-mt-en-de", folder / "run")

    return make_once(tmp_path_factory, "imported", make) / "run"


def test_look_shows_the_attention_that_hugging_face_computes(run):
    transformers = pytest.importorskip("transformers")
    model = transformers.MarianMTModel.from_pretrained(run.parent / "opus-mt-en-de").eval()
    trace = regard.look(run, TEXT, beam=1, device="cpu")
    tokenizers = regard.load(run, device="cpu").tokenizers
    theirs = json.loads((run.parent / "opus-mt-en-de" / "vocab.json").read_text(encoding="utf-8"))
    sides = [(tokenizers.source, trace.source.ids), (tokenizers.target, trace.target.ids)]
    source, target = (
        [theirs[one] if id != EOS else 0 for id, one in zip(ids, side.tokens(ids), strict=True)] for side, ids in sides
    )
    assert source[-1] == 0 and len(source) > 4 and len(target) > 2
    model.set_attn_implementation("eager")
    start = model.config.decoder_start_token_id
    with torch.inference_mode():
        found = model(
            input_ids=torch.tensor([source]),
            decoder_input_ids=torch.tensor([[start, *target[:-1]]]),
            output_attentions=True,
        )
    for name, layers in (
        ("encoder", found.encoder_attentions),
        ("decoder", found.decoder_attentions),
        ("encoder-decoder", found.cross_attentions),
    ):
        assert len(trace.layers(name)) == len(layers)
        for ours, their in zip(trace.layers(name), layers, strict=True):
            np.testing.assert_allclose(ours.weights, their[0].numpy(), atol=1e-4)
    probabilities = found.logits[0].softmax(dim=-1)[torch.arange(len(target)), target]
    np.testing.assert_allclose(trace.probabilities, probabilities.numpy(), atol=1e-4)


@pytest.mark.slow
def test_it_is_served_as_it_translates(run):
    translator = regard.load(run, device="cpu")
    with serving(str(run), "--no-int8") as server:
        [listed] = server.get("/v1/models").json()
        assert listed["name"] == run.name and listed["card"]["corpus"]["origin"]["format"] == "Hugging Face Marian"
        answer = server.post("/v1/translate", json={"text": TEXT, "beam": 1, "max_extra": 4}).json()
        looked = server.post("/v1/look", json={"text": TEXT, "beam": 1}).json()
    assert answer["translations"][0]["text"] == translator.translate([TEXT], options=GREEDY)[0] != ""
    assert looked["target"]["ids"] == regard.look(run, TEXT, beam=1, device="cpu").target.ids


@pytest.mark.slow
def test_it_is_adapted_and_exported_again(run, tmp_path):
    pytest.importorskip("ctranslate2")
    word = dict(zip(WORDS, WOERTER, strict=True))
    pairs = dict.fromkeys(sentences(WORDS, 150, seed=9))
    text = tmp_path / "mine.tsv"
    text.write_text("".join(f"{one}\t{' '.join(map(word.get, one.split()))}\n" for one in pairs), encoding="utf-8")
    done = regard.adapt(
        run, text, out=tmp_path / "adapted", steps=20, accept_loss=True, device="cpu", tell=lambda text: None
    )
    assert done.run.problems() == []
    adapted = RunFolder(tmp_path / "adapted")
    tokenizers = regard.load(run, device="cpu").tokenizers
    ids = [
        (tokenizers.source.encode(one), tokenizers.target.encode(" ".join(map(word.get, one.split())))) for one in pairs
    ]
    batch = regard.make_batch(*map(list, zip(*ids, strict=True)))
    before, after = (regard.load_model(one, device="cpu")(batch).item() for one in (run, adapted.path))
    assert after < 0.98 * before
    assert adapted.codec_folder().load_bytes("source.model") == RunFolder(run).codec_folder().load_bytes("source.model")
    certificate = regard.export_model(adapted.path, tmp_path / "out", to="ctranslate2")
    assert certificate.measured.identical >= 0.98
    again = import_model(tmp_path / "out", tmp_path / "again").path
    lines = list(pairs)[:20]
    ours, theirs = (regard.load(one, device="cpu").translate(lines, options=GREEDY) for one in (adapted.path, again))
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ctranslate2", "huggingface", "onnx"])
def test_tags_of_a_model_for_several_languages_are_exported(
    target, tmp_path, tmp_path_factory, monkeypatch, in_this_process
):
    pytest.importorskip({"huggingface": "transformers", "onnx": "onnxruntime"}.get(target, target))
    options = {"tags": [">>deu<<", ">>fra<<"], "ending": 1.0}
    folder = make_once(
        tmp_path_factory, "imported-tags", lambda place: make_folder(place / "opus-mt-en-mul", **options)
    )
    run = import_model(folder / "opus-mt-en-mul", tmp_path / "run").path
    lines = tmp_path / "lines.txt"
    lines.write_text(f">>deu<< {TEXT}\n>>fra<< {TEXT}\n{TEXT}\n", encoding="utf-8")
    certificate = regard.export_model(run, tmp_path / "out", to=target, lines=lines)
    assert certificate.measured.identical == 1.0
    assert len({line.output for line in certificate.lines}) > 1, "the tag matters"
    monkeypatch.setattr(held_out, "GENERATED", 10)  # lines, with one tag or the other
    own = regard.export_model(run, tmp_path / "own", to=target)
    assert {line.source[:7] for line in own.lines} == {">>deu<<", ">>fra<<"}
