"""A folder that CTranslate2's own converter wrote gives a run with the same outputs."""

import json
import shutil
import struct

import pytest
import torch

import regard
from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.search import search
from regard.errors import ConfigError
from regard.exchange.importing import import_model
from regard.text.symbols import BOS, EOS
from tests.exchange.marian_folders import WORDS, make_folder, sentences
from tests.packages import skip_module_without

ctranslate2 = pytest.importorskip("ctranslate2")
skip_module_without("transformers")
LIMIT = 30


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of transformers, and that of CTranslate2."""
    place = tmp_path_factory.mktemp("ct2")
    make_folder(place / "marian")
    return place / "marian", convert(place / "marian", place / "converted")


def convert(folder, out, **options):
    files = ["source.spm", "target.spm"]
    ctranslate2.converters.TransformersConverter(str(folder), copy_files=files).convert(str(out), **options)
    return out


@pytest.fixture(scope="module")
def run(folders, tmp_path_factory):
    return import_model(folders[1], tmp_path_factory.mktemp("runs") / "run")


def outputs(folder, texts, tokenizer, **options):
    """What CTranslate2 outputs: ids here, and scores.

    Its default of at least one token (min_decoding_length) is not used. It makes EOS impossible before the softmax of the
    first step, so that all outputs of a sentence gain -log(1 - p(EOS)) there; divided by their lengths, that changes which
    of them is best. Ours makes EOS impossible behind the softmax. With it, 9 of 200 outputs at beam 4 differ here.
    """
    engine = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    tokens = [[*tokenizer.tokenize(text), "</s>"] for text in texts]
    found = engine.translate_batch(
        tokens, min_decoding_length=0, max_decoding_length=LIMIT, return_scores=True, **options
    )
    ids = {symbol: id for id, symbol in enumerate(tokenizer.tokens(range(tokenizer.size)))} | {"<unk>": 0}
    return [[ids[token] for token in one.hypotheses[0]] for one in found], [one.scores[0] for one in found]


@pytest.mark.slow(unless=["4-0.6"])
@pytest.mark.parametrize(("beam", "penalty"), [(1, 1.0), (4, 1.0), (4, 0.6), (4, 0.0)])
def test_outputs_and_scores_are_those_of_ctranslate2(folders, run, beam, penalty):
    translator = regard.load(run.path, device="cpu")
    texts = sentences(WORDS, 200, seed=7)
    source = translator.tokenizers.source
    expected, scores = outputs(folders[1], texts, source, beam_size=beam, length_penalty=penalty)
    options = SearchOptions(
        beam=beam, length_penalty=penalty, length_penalty_kind="power", max_extra=1000, max_length=LIMIT
    )
    batch = Ragged.from_lists([[*ids, EOS] for ids in source.encode_all(texts)])
    found = [best[0] for best in search(translator.model, batch, options=options)]
    assert [one.ids for one in found] == expected
    assert [one.score for one in found] == pytest.approx(scores, abs=1e-3)
    assert len({len(ids) for ids in expected}) > 8


def test_without_padding_in_the_softmax_it_is_another_model_than_that_of_transformers(folders, run, tmp_path):
    """CTranslate2 removes the padding symbol, which Hugging Face's softmax has."""
    other = import_model(folders[0], tmp_path / "other")
    ours, theirs = (regard.load_model(one.path, device="cpu") for one in (run, other))
    assert ours.target_embedding.shape == theirs.target_embedding.shape
    source = Ragged.from_lists([[7, 8, EOS]])
    with torch.no_grad():
        logits, others = (model.decode(Ragged.from_lists([[BOS, 9]]), model.encode(source)) for model in (ours, theirs))
    assert logits.softmax(-1)[:, BOS].tolist() == [0.0, 0.0] and others.softmax(-1)[0, BOS] > 0


def test_an_int8_folder_has_the_values_of_its_integers(folders, tmp_path):
    folder = convert(folders[0], tmp_path / "int8", quantization="int8")
    model = regard.load_model(import_model(folder, tmp_path / "run").path, device="cpu")
    exact = regard.load_model(import_model(folders[1], tmp_path / "exact").path, device="cpu")
    for name, weight in model.named_parameters():
        other = dict(exact.named_parameters())[name]
        if weight.dim() == 1:
            assert torch.equal(weight, other), name
        else:
            # Each row is rounded to 127 steps of its largest number.
            bound = other.abs().amax(dim=1, keepdim=True) / 127 * 0.51
            assert ((weight - other).abs() <= bound).all() and not torch.equal(weight, other), name


def test_a_folder_without_sentencepiece_reads_symbols_between_spaces(folders, tmp_path):
    copy = shutil.copytree(folders[1], tmp_path / "copy")
    for name in ("source.spm", "target.spm"):
        (copy / name).unlink()
    run = import_model(copy, tmp_path / "run")
    translator = regard.load(run.path, device="cpu")
    assert translator.tokenizers.joint and translator.tokenizers.source.kind == "word"
    assert "symbols separated by spaces" in (run.path / "card.md").read_text(encoding="utf-8")


def test_sinusoids_that_are_not_stored_are_those_that_ctranslate2_computes(folders, tmp_path):
    folder = tmp_path / "computed"
    shutil.copytree(folders[1], folder)
    spec = ctranslate2.converters.TransformersConverter(str(folders[0]))._load()
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = ctranslate2.specs.model_spec.OPTIONAL
    spec.validate()
    spec.optimize()
    for name in ("model.bin", "config.json", "shared_vocabulary.json"):
        (folder / name).unlink()
    spec.save(str(folder))
    run = import_model(folder, tmp_path / "run")
    translator = regard.load(run.path, device="cpu")
    assert translator.model.config.positions == "sinusoid-log"
    texts = sentences(WORDS, 50, seed=3)
    source = translator.tokenizers.source
    expected, _ = outputs(folder, texts, source, beam_size=1)
    batch = Ragged.from_lists([[*ids, EOS] for ids in source.encode_all(texts)])
    options = SearchOptions(beam=1, max_extra=1000, max_length=LIMIT)
    assert [best[0].ids for best in search(translator.model, batch, options=options)] == expected


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda content: content[:100], "is damaged: it ends early"),
        (lambda content: struct.pack("<I", 5) + content[4:], "is of version 5; only 6 is read"),
        (lambda content: content.replace(b"TransformerSpec", b"WhisperSpecXXXX", 1), "is a 'WhisperSpecXXXX'"),
        (lambda content: content.replace(b"encoder/layer_1/ffn", b"encoder/layer_1/fXn"), "encoder/layer_1/fXn"),
    ],
)
def test_a_damaged_or_other_file_is_refused(folders, tmp_path, damage, sentence):
    copy = shutil.copytree(folders[1], tmp_path / "copy")
    (copy / "model.bin").write_bytes(damage((copy / "model.bin").read_bytes()))
    with pytest.raises(ConfigError) as caught:
        import_model(copy, tmp_path / "run")
    assert sentence in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"add_source_bos": True}, "add_source_bos is True, which is not imported"),
        ({"eos_token": "<end>"}, "has no symbol '<end>'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(folders, tmp_path, change, sentence):
    copy = shutil.copytree(folders[1], tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ConfigError) as caught:
        import_model(copy, tmp_path / "run")
    assert sentence in str(caught.value)
