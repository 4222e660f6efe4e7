"""translate.py, which an ONNX export contains, translates as we do, without regard; and a damaged folder is one sentence."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.exchange.portable import load_portable
from regard.storage.folder import Folder
from tests.exchange.marian_folders import WORDS, sentences
from tests.exchange.tiny_runs import make_run

pytest.importorskip("onnxruntime")
to_onnx = pytest.importorskip("regard.exchange.to_onnx")
VARIANTS = {
    "bytes": {"byte_fallback": True},
    "no bytes": {},
    "bpe, two vocabularies": {"tokenizer": "bpe", "joint": False, "tie": "target"},
    "learned": {"positions": "learned", "max_positions": 12},
    "no EOS behind sources": {"source_eos": False},
}
LINES = [
    *sentences(WORDS, 12, seed=7),
    "the cat 🚀 sat on https://example.org/?a=1&b=2, or mailto:me@example.org",
    "{name} has %s and 1,234.5 <b>houses</b>",
    "Übergrößenträger 北京 \u2581 the \u00a0dog",
    "one\ttab",
    "",
    " ",
    "\u00a0",
    "the\u2028cat\x0bran\x85here\x0cthere",
    "station " * 50,
    "  old  house  ",
]


def export(folder, variant="bytes"):
    run, out = make_run(folder / "run", **VARIANTS[variant]), folder / "out"
    out.mkdir()
    to_onnx.write(load_portable(run), Folder(out), "float32")
    return run, out


def translate(folder, lines):
    """Run the loop in a process that cannot import regard."""
    loop = str(folder / "translate.py")
    code = f"import runpy, sys; sys.modules['regard'] = None; runpy.run_path({loop!r}, run_name='__main__')"
    text = "".join(f"{line}\n" for line in lines).encode()
    done = subprocess.run([sys.executable, "-I", "-c", code], input=text, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().removesuffix("\n").split("\n")


@pytest.mark.slow(unless=["bytes"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loop_prints_our_greedy_translations(variant, tmp_path):
    run, out = export(tmp_path, variant)
    cut = []
    # Protected spans are a step before and after the model, which the loop does not have.
    options = regard.SearchOptions(beam=1, protect=False)
    ours = regard.load(run, device="cpu", warn=cut.append).translate(LINES, options=options)
    assert len(set(ours)) > 8
    assert any("only the first" in sentence for sentence in cut)
    assert translate(out, LINES) == [text.strip() for text in ours]


def test_the_loop_is_short():
    lines = Path(to_onnx.__file__).with_name("onnx_translate.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 125


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export(tmp_path_factory.mktemp("exported"))[1]


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove(path):
    path.unlink()


def forget_a_setting(path):
    settings = json.loads(path.read_text(encoding="utf-8"))
    del settings["max_length"]
    path.write_text(json.dumps(settings), encoding="utf-8")


def shorten(path):
    path.write_text(json.dumps([symbols[:5] for symbols in json.loads(path.read_text(encoding="utf-8"))]))


FILES = ["config.json", "vocabulary.json", "encoder.onnx", "decoder.onnx", "source.spm", "target.spm"]
DAMAGES = [
    *((name, damage) for damage in (remove, cut) for name in FILES),
    ("config.json", forget_a_setting),
    ("vocabulary.json", shorten),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_damaged_folder_ends_the_loop_with_one_sentence(name, damage, exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "copy")
    damage(folder / name)
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(folder / "translate.py"), run_name="__main__")
    sentence = stopped.value.code
    assert sentence.startswith(f"{folder} is damaged: ") and "\n" not in sentence


def test_nothing_but_the_sentence_is_printed(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "copy")
    cut(folder / "decoder.onnx")
    done = subprocess.run([sys.executable, str(folder / "translate.py")], input=b"the cat\n", capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith(f"{folder} is damaged: ") and done.stderr.count(b"\n") == 1
