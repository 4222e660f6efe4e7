"""An imported Marian model is the one that transformers has: same logits, same outputs, and the same weights back."""

import json
import shutil

import msgspec
import pytest
import torch

import regard
from regard.config import Bitext, DataConfig, SearchOptions, TrainConfig
from regard.data.ragged import Ragged
from regard.decoding.search import search
from regard.errors import CheckpointError, ConfigError
from regard.exchange import huggingface
from regard.exchange.exporting import export_model
from regard.exchange.importing import import_model
from regard.exchange.names import reorder_rows, to_theirs
from regard.exchange.vocabulary import Vocabulary
from regard.run.finding import find_run
from regard.text.symbols import BOS, EOS, UNK
from tests import commands
from tests.exchange.marian_folders import WOERTER, WORDS, make_folder, sentences
from tests.packages import skip_module_without

skip_module_without("transformers")
LIMIT = 30  # output tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("opus") / "opus-mt-en-de"


@pytest.fixture(scope="module")
def theirs(folder):
    return make_folder(folder)


@pytest.fixture(scope="module")
def run(folder, theirs, tmp_path_factory):
    return import_model(folder, tmp_path_factory.mktemp("runs") / "imported")


@pytest.fixture(scope="module")
def translator(run):
    return regard.load(run.path, device="cpu")


@pytest.fixture(scope="module")
def tokenizer(folder, theirs):
    from transformers import MarianTokenizer

    with pytest.warns(UserWarning, match="sacremoses"):
        return MarianTokenizer.from_pretrained(str(folder))


@pytest.fixture(scope="module")
def symbols(folder, theirs):
    """The symbol of each id there."""
    ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    return [symbol for symbol, _ in sorted(ids.items(), key=lambda item: item[1])]


@pytest.fixture(scope="module")
def texts():
    return sentences(WORDS, 200, seed=7)


def generate(model, tokenizer, texts, **options):
    """What transformers outputs for each text: ids without the first one, EOS and padding."""
    pad = model.config.pad_token_id
    outputs = []
    for at in range(0, len(texts), 100):
        batch = tokenizer(texts[at : at + 100], return_tensors="pt", padding=True)
        found = model.generate(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, max_length=LIMIT + 1,
            forced_eos_token_id=None, bad_words_ids=[[pad]], do_sample=False, **options,
        ).tolist()  # fmt: skip
        outputs += [[id for id in ids[1:] if id not in (pad, 0)] for ids in found]
    return outputs


def test_texts_have_the_same_tokens(translator, tokenizer, texts):
    for text in [*texts[:50], "an unknown wörd 😀", "  two   spaces ", ""]:
        ids = tokenizer(text).input_ids[:-1]
        own = translator.tokenizers.source.encode(text)
        assert [id == 1 for id in ids] == [id == UNK for id in own]
        known = [token for token, id in zip(tokenizer.convert_ids_to_tokens(ids), ids, strict=True) if id != 1]
        assert known == translator.tokenizers.source.tokens([id for id in own if id != UNK])
    for text in sentences(WOERTER, 20):
        ids = tokenizer(text_target=text).input_ids[:-1]
        own = translator.tokenizers.target.encode(text)
        assert tokenizer.convert_ids_to_tokens(ids) == translator.tokenizers.target.tokens(own)
        assert tokenizer.decode(ids) == translator.tokenizers.target.decode(own) == text


def test_logits_are_the_same_in_float64(run, theirs):
    model = regard.load_model(run.path, device="cpu").double()
    order = torch.tensor(Vocabulary(["?"] * theirs.config.vocab_size, 1, theirs.config.pad_token_id, 0).order())
    here = order.argsort()  # the id here of each id there
    source, target = [4, 9, 30, 17, 0], [theirs.config.pad_token_id, 50, 41, 8]
    wide = type(theirs)(theirs.config).eval().double()
    wide.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        expected = wide(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits[0]
        found = model.decode(
            Ragged.from_lists([here[target].tolist()]), model.encode(Ragged.from_lists([here[source].tolist()]))
        )
    torch.testing.assert_close(found, expected[:, order], rtol=1e-6, atol=1e-6)


@pytest.mark.slow(unless=["1-False-1.0"])
@pytest.mark.parametrize("penalty", [1.0, 0.6])
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("beam", [1, 4])
def test_outputs_are_those_of_generate_token_for_token(
    theirs, tokenizer, translator, symbols, texts, beam, early, penalty
):
    if beam == 1 and (early or penalty != 1.0):
        pytest.skip("greedy search has neither")
    more = {} if beam == 1 else {"early_stopping": early, "length_penalty": penalty}
    expected = generate(theirs, tokenizer, texts, num_beams=beam, **more)
    options = SearchOptions(
        beam=beam, length_penalty=penalty, length_penalty_kind="power", early_stopping=early,
        max_extra=1000, max_length=LIMIT,
    )  # fmt: skip
    sources = Ragged.from_lists([[*ids, EOS] for ids in translator.tokenizers.source.encode_all(texts)])
    found = [best[0].ids for best in search(translator.model, sources, options=options)]
    here = Vocabulary(symbols, 1, theirs.config.pad_token_id, 0).order().index
    wanted = [[here(id) for id in ids] for ids in expected]
    if early and beam > 1:
        # At the limit generate also counts open outputs when enough others have ended in the same step; ours does not. So
        # outputs of all tokens that there may be are compared without early stopping only, which is generate's default.
        ended = [number for number, ids in enumerate(wanted) if len(ids) < LIMIT]
        assert len(ended) > 60
        found, wanted = [found[number] for number in ended], [wanted[number] for number in ended]
    assert found == wanted
    # The comparison means something: lengths and tokens vary.
    assert len({len(ids) for ids in found}) > 8 and len({id for ids in found for id in ids}) > 12


def test_the_recipe_searches_as_generate_does_by_default(theirs, run):
    decode = run.recipe().decode
    assert (decode.length_penalty, decode.length_penalty_kind, decode.early_stopping) == (1.0, "power", False)
    assert decode.beam == 1 and decode.max_source == 63


def test_a_run_gives_back_the_tensors_of_the_file(folder, run, theirs):
    from safetensors.torch import load_file

    given = load_file(folder / "model.safetensors")
    model = regard.load_model(run.path, device="cpu")
    weights = {name: one.detach() for name, one in model.named_parameters()}
    size = theirs.config.vocab_size
    back = Vocabulary(["?"] * size, 1, size - 1, 0).order_back()
    found = to_theirs(huggingface.names(model.config), reorder_rows(weights, {"source": back, "target": back}))
    found["final_logits_bias"] = found["final_logits_bias"][None]
    computed = set(huggingface.COMPUTED)
    assert found.keys() == given.keys() - computed
    for name, tensor in found.items():
        assert torch.equal(tensor, given[name]), name


@pytest.mark.parametrize("old", [False, True])
def test_weights_may_be_in_a_file_of_pytorch(folder, theirs, run, tmp_path, old):
    copy = shutil.copytree(folder, tmp_path / "old")
    (copy / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), copy / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
    other = import_model(copy, tmp_path / "run")
    first, second = (regard.load_model(one.path, device="cpu").state_dict() for one in (run, other))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("options", "tie"),
    [
        ({"tie_word_embeddings": False, "share_encoder_decoder_embeddings": True}, "none"),
        ({"activation_function": "relu", "scale_embedding": False, "decoder_layers": 1}, "all"),
        ({"activation_function": "gelu"}, "all"),
    ],
)
def test_variants_have_the_same_logits(tmp_path, options, tie):
    theirs = make_folder(tmp_path / "variant", **options)
    run = import_model(tmp_path / "variant", tmp_path / "run")
    model = regard.load_model(run.path, device="cpu")
    assert model.config.tie == tie
    size = theirs.config.vocab_size
    order = torch.tensor(Vocabulary(["?"] * size, 1, size - 1, 0).order())
    here = order.argsort()
    source, target = [4, 9, 0], [size - 1, 20, 5]
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits[0]
        memory = model.encode(Ragged.from_lists([here[source].tolist()]))
        found = model.decode(Ragged.from_lists([here[target].tolist()]), memory)
    torch.testing.assert_close(found, expected[:, order], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "bart"}, "model_type is 'bart', which is not imported"),
        ({"activation_function": "gelu_new"}, "activation_function is 'gelu_new', which is not imported"),
        ({"decoder_attention_heads": 2}, "encoder_attention_heads is 4 and decoder_attention_heads is 2"),
        ({"normalize_before": True}, "normalize_before is True, which is not imported; only False is"),
        ({"vocab_size": 20}, "has an id that is not from 0 to 19"),
        ({"d_model": "16"}, "d_model is '16'; it must be a whole number"),
        ({"decoder_layers": 4}, "has no tensor 'model.decoder.layers.3"),
        ({"decoder_layers": 2}, "has the tensor 'model.decoder.layers.2"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_name_and_nothing_is_written(folder, theirs, tmp_path, change, sentence):
    copy = shutil.copytree(folder, tmp_path / "changed")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises((ConfigError, CheckpointError)) as caught:
        import_model(copy, tmp_path / "run")
    assert sentence in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("missing", ["target.spm", "model.safetensors"])
def test_a_missing_file_is_named(folder, theirs, tmp_path, missing):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / missing).unlink()
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        import_model(copy, tmp_path / "run")


def test_a_link_is_explained(folder, theirs, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "source.spm").rename(tmp_path / "elsewhere")
    (copy / "source.spm").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is a link or not a file; copy the folder with its files"):
        import_model(copy, tmp_path / "run")


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no model of a known format"):
        import_model(tmp_path, tmp_path / "run")
    with pytest.raises(ConfigError, match="is not a folder"):
        import_model(tmp_path / "absent", tmp_path / "run")


def test_an_imported_run_is_looked_at_carded_exported_and_loaded_again(run, translator, tmp_path):
    (text,) = sentences(WORDS, 1, seed=2)
    assert run.problems() == []
    trace = regard.look(run.path, text, beam=2)
    assert trace.target.text == translator.translate([text], options=SearchOptions(beam=2))[0]
    card = (run.path / "card.md").read_text(encoding="utf-8")
    assert "imported from | format `Hugging Face Marian`, folder `opus-mt-en-de`" in card
    assert "`regard import opus-mt-en-de`" in card
    copy = regard.export(run.path, tmp_path / "copy")
    assert regard.load(copy.path, device="cpu").translate([text]) == translator.translate([text])
    assert find_run(run.path).recipe().data.origin.startswith("This model was imported")


@pytest.mark.slow
def test_the_command_imports_and_refuses_a_second_time(folder, theirs, tmp_path):
    command = ["import", folder, "--out", tmp_path / "run"]
    done = commands.regard(*command)
    assert done.returncode == 0 and done.stdout == ""
    assert "use it like any run, as in: echo" in " ".join(done.stderr.split())
    again = commands.regard(*command)
    assert again.returncode == 1 and "is there already, and not an empty folder" in " ".join(again.stderr.split())


def test_the_start_of_an_output_is_bos_here(theirs, translator):
    pad = theirs.config.pad_token_id
    own = translator.model.target_embedding[BOS]
    assert torch.equal(own, theirs.state_dict()["model.shared.weight"][pad])


@pytest.mark.slow(unless=["none"])
@pytest.mark.parametrize("adapt", ["none", "lora"])
def test_training_begins_with_an_imported_run_and_its_tokenizers(run, tmp_path, adapt):
    pairs = zip(sentences(WORDS, 60), sentences(WOERTER, 60, seed=2), strict=True)
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    recipe = msgspec.structs.replace(
        run.recipe(),
        name="adapted",
        data=DataConfig(train=Bitext(pairs="pairs.tsv"), valid=Bitext(hold_out=10)),
        train=TrainConfig(
            init=str(run.path), adapt=adapt, steps=8, tokens=300, lr=2e-3, schedule="inverse-sqrt", warmup_steps=1,
            checkpoint_every=4, label_smoothing=0.1,
        ),
    )  # fmt: skip
    result = regard.train(recipe, out=tmp_path / "adapted", data=tmp_path, listen=lambda event: None)
    losses = [event["loss"] for event in result.run.read_log() if event["event"] == "validated"]
    assert result.finished and losses[-1] < losses[0]
    first, second = (regard.load(one.path, device="cpu").tokenizers for one in (run, result.run))
    assert first.source.symbols == second.source.symbols and first.target.model == second.target.model


@pytest.mark.slow
def test_export_gives_back_the_weights_and_the_vocabulary(folder, run, tmp_path, in_this_process):
    from safetensors.torch import load_file

    pairs = zip(sentences(WORDS, 20, seed=9), sentences(WOERTER, 20, seed=2), strict=True)
    (tmp_path / "lines.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    certificate = export_model(run.path, tmp_path / "out", to="huggingface", lines=tmp_path / "lines.tsv")
    assert certificate.measured.identical == 1.0
    given, found = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "out"))
    assert given.keys() == found.keys() and all(torch.equal(given[name], found[name]) for name in given)
    first, second = (json.loads((one / "vocab.json").read_text(encoding="utf-8")) for one in (folder, tmp_path / "out"))
    assert first == second
