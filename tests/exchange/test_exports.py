"""An exported model is ours in another engine: certified, or refused by name; and a damaged one is found."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.errors import CheckpointError, ConfigError
from regard.exchange import engines, exporting, verifying
from regard.exchange.exporting import TARGETS, export_model
from regard.exchange.held_out import OWN_SENTENCES
from regard.exchange.verifying import verify
from tests.exchange.tiny_runs import make_run
from tests.packages import skip_without

PACKAGES = {"ctranslate2": "ctranslate2", "huggingface": "transformers", "onnx": "onnxruntime"}
VARIANTS = {
    "post": {},
    "pre": {"norm_order": "pre"},
    "pre without a final norm": {"norm_order": "pre", "final_norm": False},
    "post with a final norm": {"final_norm": True},
    "target tied": {"tie": "target"},
    "untied": {"tie": "none"},
    "two vocabularies": {"tie": "target", "joint": False},
    "two vocabularies, untied": {"tie": "none", "joint": False, "output_bias": True},
    "rotary": {"positions": "rotary"},
    "rotary, pre": {"positions": "rotary", "norm_order": "pre", "norm": "rms"},
    "learned": {"positions": "learned", "max_positions": 64},
    "no positions": {"positions": "none"},
    "sines first": {"positions": "sinusoid-halves"},
    "fairseq's positions": {"positions": "sinusoid-log", "first_position": 2, "start_id": 2},
    "biases": {"attention_bias": True, "output_bias": True, "norm_eps": 1e-5},
    "not scaled": {"scale_embeddings": False},
    "gelu": {"feed_forward": "gelu"},
    "silu": {"feed_forward": "silu"},
    "swiglu": {"feed_forward": "swiglu"},
    "convolutions": {"feed_forward": "conv"},
    "rms": {"norm": "rms"},
    "normed queries": {"qk_norm": True},
    "window": {"window": 2},
    "wide values": {"value_width": 6},
    "wide keys": {"key_width": 6},
    "no EOS behind sources": {"source_eos": False},
    "copy": {"copy": True},
    "deep decoder": {"num_layers": 1, "decoder_layers": 3},
    "bytes": {"byte_fallback": True},
    "bpe": {"kind_of_tokenizer": "bpe"},
}
# What a target refuses, and the word of the error.
REFUSED = {
    "ctranslate2": {
        "post with a final norm": "model.final_norm",
        "convolutions": "model.feed_forward",
        "normed queries": "model.qk_norm",
        "window": "model.window",
        "wide values": "model.value_width",
        "wide keys": "model.key_width",
        "copy": "model.copy",
    },
    "huggingface": {
        "pre": "model.norm_order",
        "pre without a final norm": "model.norm_order",
        "post with a final norm": "model.final_norm",
        "rotary": "model.positions",
        "rotary, pre": "model.norm",
        "learned": "model.positions",
        "no positions": "model.positions",
        "fairseq's positions": "model.positions",
        "swiglu": "model.feed_forward",
        "convolutions": "model.feed_forward",
        "rms": "model.norm",
        "normed queries": "model.qk_norm",
        "window": "model.window",
        "wide values": "model.value_width",
        "wide keys": "model.key_width",
        "no EOS behind sources": "model.source_eos",
        "copy": "model.copy",
    },
    "onnx": {"convolutions": "model.feed_forward", "copy": "model.copy"},
}
CASES = [(target, variant) for target in TARGETS for variant in VARIANTS]


def tiny(folder, variant="post"):
    options = dict(VARIANTS[variant])
    tokenizer = options.pop("kind_of_tokenizer", "unigram")
    return make_run(folder, tokenizer=tokenizer, **options)


QUICK = ("post", "rotary", "copy")


@pytest.mark.slow(unless=[f"{target}-{variant}" for target, variant in CASES if variant in QUICK])
@pytest.mark.parametrize(("target", "variant"), CASES)
@pytest.mark.filterwarnings("ignore:Recommended")
def test_a_variant_is_certified_or_refused_by_name(target, variant, tmp_path, lines, in_this_process):
    skip_without(PACKAGES[target])
    run, out = tiny(tmp_path / "run", variant), tmp_path / "out"
    refused = REFUSED[target].get(variant)
    if refused is not None:
        with pytest.raises(ConfigError, match=refused.replace(".", r"\.")):
            export_model(run, out, to=target, lines=lines)
        assert not out.exists() and not [one for one in tmp_path.iterdir() if one.name.startswith(".")]
        return
    measured = export_model(run, out, to=target, lines=lines).measured
    assert measured.lines == 12 and measured.identical == 1.0
    assert measured.score < 1e-3
    assert (measured.logit is None) == (target == "ctranslate2")
    assert verify(out).measured.score == pytest.approx(measured.score, abs=1e-6)


def test_the_engine_runs_where_regard_cannot_be_imported(tmp_path, lines):
    """One engine here, and all of them in test_environments.py."""
    skip_without("ctranslate2")
    certificate = export_model(tiny(tmp_path / "run"), tmp_path / "out", to="ctranslate2", lines=lines)
    assert certificate.measured.identical == 1.0
    page = (tmp_path / "out" / "certificate.md").read_text(encoding="utf-8")
    assert "| identical greedy translations | 100.0% |" in page and "## Files" in page
    assert set(certificate.files) == {one.name for one in (tmp_path / "out").iterdir()} - {
        "certificate.json", "certificate.md"
    }  # fmt: skip


def test_the_engines_process_cannot_import_regard():
    path = Path(engines.__file__)
    code = (
        f"import runpy, sys; module = runpy.run_path({str(path)!r})\n"
        "sys.meta_path.insert(0, module['Blocked']()); assert module['regard_is_missing']()\n"
        "try:\n    import regard.api\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout == "regard is blocked in this process\n", done.stderr


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    pytest.importorskip("ctranslate2")
    folder = tmp_path_factory.mktemp("exported")
    export_model(make_run(folder / "run"), folder / "out", to="ctranslate2")
    return folder / "out"


@pytest.fixture
def copied(exported, tmp_path):
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def test_a_changed_vocabulary_is_found(copied):
    path = copied / "shared_vocabulary.json"
    symbols = json.loads(path.read_text(encoding="utf-8"))
    symbols[10], symbols[11] = symbols[11], symbols[10]
    path.write_text(json.dumps(symbols, ensure_ascii=False), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"shared_vocabulary\.json is not the file"):
        verify(copied)


def test_a_missing_file_is_named_and_an_added_one_is_reported(copied, in_this_process):
    (copied / "notes.txt").write_text("mine")
    said = []
    verify(copied, tell=said.append)
    assert [one for one in said if "notes.txt is not part of the certificate" in one]
    (copied / "target.spm").unlink()
    with pytest.raises(CheckpointError, match=r"target\.spm is missing"):
        verify(copied)


def test_weights_that_are_not_ours_are_found_even_if_the_hash_is_right(copied, in_this_process):
    """Two symbols of the vocabulary change places, and the certificate is forged to have the hash of the new file."""
    path = copied / "shared_vocabulary.json"
    symbols = json.loads(path.read_text(encoding="utf-8"))
    used = json.loads((copied / "certificate.json").read_text(encoding="utf-8"))["lines"][0]["tokens"][0]
    at = symbols.index(used)
    other = at + 1 if at + 1 < len(symbols) else at - 1
    symbols[at], symbols[other] = symbols[other], symbols[at]
    path.write_text(json.dumps(symbols, ensure_ascii=False), encoding="utf-8")
    certificate = json.loads((copied / "certificate.json").read_text(encoding="utf-8"))
    record = verifying.record_file(verifying.Folder(copied), path.name)
    certificate["files"][path.name] = {"bytes": record.bytes, "sha256": record.sha256}
    (copied / "certificate.json").write_text(json.dumps(certificate), encoding="utf-8")
    with pytest.raises(CheckpointError, match="does not agree with the certificate"):
        verify(copied)


@pytest.mark.slow(unless=["ctranslate2"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_flipped_byte_is_found_in_any_file_of_any_engine(target, tmp_path, lines, in_this_process):
    pytest.importorskip(PACKAGES[target])
    export_model(make_run(tmp_path / "run"), out := tmp_path / "out", to=target, lines=lines)
    files = [one for one in out.iterdir() if one.name not in ("certificate.json", "certificate.md")]
    assert len(files) >= 5
    for file in files:
        content = file.read_bytes()
        at = len(content) // 2
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CheckpointError, match=f"{re.escape(file.name)} is not the file that was certified"):
            verify(out)
        file.write_bytes(content)
    verify(out)


@pytest.mark.slow(unless=["ctranslate2"])
@pytest.mark.parametrize("target", TARGETS)
def test_drift_fails_the_export_and_leaves_nothing_behind(target, tmp_path, monkeypatch, in_this_process):
    pytest.importorskip(PACKAGES[target])
    write = TARGETS[target].write

    def write_another(model, folder, weights):
        drifted = {name: tensor * 1.02 for name, tensor in model.weights.items()}
        write(exporting.Portable(**{**vars(model), "weights": drifted}), folder, weights)

    monkeypatch.setitem(TARGETS, target, TARGETS[target]._replace(write=write_another))
    folder = tmp_path / "exports"
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"does not agree with us: .*bound"):
        export_model(make_run(tmp_path / "run"), folder / "out", to=target)
    assert not list(folder.iterdir())


def test_an_export_overwrites_nothing(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(ConfigError, match="not an empty folder"):
        export_model("de-en", tmp_path, to="ctranslate2")
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


def test_a_certificate_from_a_stranger_is_read_with_care(tmp_path):
    with pytest.raises(CheckpointError, match=r"no certificate\.json"):
        verify(tmp_path)
    (tmp_path / "certificate.json").write_text('{"form": 1, "lines": 3}')
    with pytest.raises(CheckpointError, match=r"certificate\.json is damaged"):
        verify(tmp_path)
    with pytest.raises(CheckpointError, match="is not a folder"):
        verify(tmp_path / "nowhere")


@pytest.mark.parametrize("target", ["ctranslate2", "onnx"])
def test_int8_is_another_model_and_the_certificate_measures_it(target, tmp_path, lines, in_this_process):
    pytest.importorskip(PACKAGES[target])
    run = make_run(tmp_path / "run")
    export_model(run, tmp_path / "large", to=target, lines=lines)
    wide = exporting.Bounds(logit=1e9, score=1e9, mean_score=1e9, identical=0.0)
    measured = export_model(run, tmp_path / "small", to=target, weights="int8", lines=lines, bounds=wide).measured
    assert measured.mean_score > 1e-4
    name = "model.bin" if target == "ctranslate2" else "encoder.onnx"
    assert (tmp_path / "small" / name).read_bytes() != (tmp_path / "large" / name).read_bytes()


def test_float16_weights_are_rounded_and_certified_on_a_cpu(tmp_path, lines, in_this_process):
    pytest.importorskip("ctranslate2")
    run = make_run(tmp_path / "run")
    export_model(run, tmp_path / "large", to="ctranslate2", lines=lines)
    measured = export_model(run, tmp_path / "small", to="ctranslate2", weights="float16", lines=lines).measured
    assert measured.mean_score > 1e-6
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("small", "large")]
    assert sizes[0] < 0.7 * sizes[1]


@pytest.fixture
def pairs(tmp_path):
    """Some of the sentences of the package as a table, German first."""
    path = tmp_path / "pairs.tsv"
    rows = [line.split("\t") for line in OWN_SENTENCES.read_text(encoding="utf-8").splitlines()[::5]]

    def of(run):
        path.write_text("".join("\t".join(row if run == "de-en" else row[::-1]) + "\n" for row in rows))
        return path

    return of


@pytest.mark.slow
@pytest.mark.parametrize(("target", "run"), [("ctranslate2", "de-en"), ("onnx", "en-de")])
def test_the_translators_of_the_package_are_certified_in_int8(target, run, tmp_path, pairs, in_this_process):
    pytest.importorskip(PACKAGES[target])
    measured = export_model(run, tmp_path / "out", to=target, weights="int8", lines=pairs(run)).measured
    assert measured.mean_score > 1e-4
    assert verify(tmp_path / "out").measured.identical == measured.identical


@pytest.mark.slow
@pytest.mark.parametrize(("target", "run"), list(zip(TARGETS, ["de-en", "en-de", "de-en"], strict=True)))
def test_the_translators_of_the_package_are_certified(target, run, tmp_path, pairs, in_this_process):
    pytest.importorskip(PACKAGES[target])
    lines = None if target == "ctranslate2" else pairs(run)  # all of the sentences where they are translated fast
    measured = export_model(run, tmp_path / "out", to=target, lines=lines).measured
    assert measured.identical == 1.0 and measured.bleu_ours == measured.bleu_theirs is not None
    assert verify(tmp_path / "out").measured.identical == 1.0
