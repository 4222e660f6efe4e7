"""What a run reports and decides before its first step."""

import re

import msgspec
import pytest

import regard
from regard.errors import ConfigError, DataError, Diverged
from regard.recipe_files import load_recipe, shipped_recipes
from regard.run.folder import RunFolder
from regard.tasks import task_of, translation
from regard.tasks.corpus import note_known_examples
from regard.tasks.recipe_checks import resolve
from regard.training.events import Noted

TINY = [
    *("model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=32", "tokenizer.kind=word"),
    *("train.steps=1", "train.tokens=64", "train.checkpoint_every=1", "train.threads=1", "train.device=cpu"),
]


def test_pairs_that_are_too_long_are_counted_and_the_setting_is_named(tmp_path):
    (tmp_path / "train.tsv").write_text("a b\tb a\na b c d\td c b a\nb\ta b c d e\n")
    (tmp_path / "dev.tsv").write_text("a\tb\na b c d\td\n")
    notes = []
    recipe = tmp_path / "my.toml"
    files = 'train = { pairs = "train.tsv" }\nvalid = { pairs = "dev.tsv" }\n'
    recipe.write_text(f'[data]\n{files}max_length = 3\n[model]\nkind = "transformer"\n')
    regard.train(str(recipe), out=tmp_path / "run", overrides=TINY, listen=notes.append)
    texts = [note.text for note in notes if isinstance(note, Noted)]
    kept = "to keep them, raise data.max_length (now 3), or cut them with data.cut_source=true or data.cut_target=true"
    assert f"training leaves out 2 of 3 examples with more than 3 tokens on a side; {kept}" in texts
    assert f"the dev loss leaves out 1 of 2 examples with more than 3 tokens on a side; {kept}" in texts


def test_sides_that_are_too_long_are_cut_where_the_recipe_says_so(tmp_path):
    (tmp_path / "train.tsv").write_text("a b\tb a\na b c d\td c b a\nb\ta b c d e\n")
    recipe = tmp_path / "my.toml"
    recipe.write_text('[data]\ntrain = { pairs = "train.tsv" }\nmax_length = 3\n[model]\nkind = "transformer"\n')
    task = task_of(load_recipe(str(recipe), [*TINY, "data.cut_source=true", "data.cut_target=true"]))
    corpus = task.read([tmp_path])
    columns = task.encode(corpus.train.examples(), task.fit(corpus.train))
    assert columns["source"].lengths.tolist() == [2, 3, 1] and columns["target"].lengths.tolist() == [2, 3, 3]
    notes = []
    overrides = [*TINY, "data.cut_target=true"]
    regard.train(str(recipe), out=tmp_path / "run", overrides=overrides, listen=notes.append)
    texts = [note.text for note in notes if isinstance(note, Noted)]
    assert "2 of 3 targets have 3 tokens or more; training reads the first 3" in texts
    assert any(text.startswith("training leaves out 1 of 3 examples") for text in texts)


def test_dev_examples_that_are_training_examples_too_are_noted_if_most_are(tmp_path):
    (tmp_path / "train.tsv").write_text("a b\tb a\nc\td\ne\tf\nc\td\n")
    (tmp_path / "my.toml").write_text(
        '[data]\ntrain = { pairs = "train.tsv" }\nvalid = { pairs = "dev.tsv" }\n[model]\nkind = "transformer"\n'
    )

    def note(dev, *overrides):
        (tmp_path / "dev.tsv").write_text(dev)
        recipe = load_recipe(str(tmp_path / "my.toml"), overrides)
        return note_known_examples(recipe, task_of(recipe).read([tmp_path]))

    ending = "also in the training data, so dev scores say"
    assert note("c\td\ne\tf\nc\td\n") == f"all 3 dev examples are {ending} nothing about new text"
    assert note("c\td\ne\tf\nc\te\n") == f"2 of 3 dev examples are {ending} little about new text"
    assert note("c\td\n") == f"the dev example is {ending} nothing about new text"
    assert note("c\td\nc\te\n") == note("d\tc\n") == ""
    toy = 'data.train={generate="counting/train"}', 'data.valid={generate="counting/train"}'
    assert note("", *toy) == ""  # such tasks may repeat examples by design
    notes = []
    (tmp_path / "dev.tsv").write_text("c\td\n")
    regard.train(
        str(tmp_path / "my.toml"), out=tmp_path / "run", overrides=TINY, listen=notes.append, stop=lambda: True
    )
    assert any(isinstance(one, Noted) and "the dev example is also" in one.text for one in notes)
    assert any(isinstance(one, Noted) and one.text.startswith("no BLEU: no reference has 4 tokens") for one in notes)


def notes_of(folder, lines, *overrides):
    (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    tiny = "width = 16\nnum_layers = 1\nnum_heads = 2\nhidden = 16\n"
    (folder / "my.toml").write_text(
        '[data]\ntrain = { pairs = "pairs.tsv" }\nvalid = { hold_out = 4 }\n[tokenizer]\nkind = "bpe"\nsize = 900\n'
        f'[model]\nkind = "transformer"\n{tiny}[train]\nsteps = 500\ntokens = 256\nwarmup_steps = 5\ndevice = "cpu"\n',
        encoding="utf-8",
    )
    notes = []
    regard.train(
        str(folder / "my.toml"),
        out=folder / "run",
        overrides=overrides,
        data=folder,
        listen=notes.append,
        stop=lambda: True,
    )
    return [note.text for note in notes if isinstance(note, Noted)]


def test_tokens_that_hardly_ever_occur_are_noted(tmp_path):
    # 600 pairs, each with a number of its own on both sides.
    lines = [f"number {number * 7919 % 100_000}\tN{number * 7919 % 100_000}\n" for number in range(600)]
    rare = [text for text in notes_of(tmp_path, lines) if "times on average" in text]
    assert len(rare) == 1 and "a smaller tokenizer.size, or tokenizer.kind=char" in rare[0]
    (tmp_path / "other").mkdir()
    assert not [text for text in notes_of(tmp_path / "other", lines, "tokenizer.kind=char") if "on average" in text]


def test_a_run_that_ends_before_its_first_score_is_noted(tmp_path):
    lines = [f"a b {number}\tc d\n" for number in range(20)]
    late = "the dev set is scored every 1,000 steps, and training has 500: no scores before the end"
    assert f"{late}; to see some, set train.validate_every=50" in notes_of(tmp_path, lines, "tokenizer.kind=char")
    (tmp_path / "other").mkdir()
    texts = notes_of(tmp_path / "other", lines, "tokenizer.kind=char", "train.validate_every=50")
    assert not [text for text in texts if "dev set is scored" in text]


ENDINGS = {
    "all steps": ["train.steps=2", "model.norm_order=post"],
    "no patience": ["train.steps=100", "model.norm_order=post", "train.patience=1", "train.lr=1e-12"],
    "pre-norm": ["train.steps=2", "model.norm_order=pre"],
}


@pytest.mark.parametrize("entropy", [0.97, 0.5])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_model_that_has_not_learned_to_attend_is_noted_at_the_end(tmp_path, monkeypatch, ending, entropy):
    monkeypatch.setattr(translation, "attention_between", lambda *_, **__: {"entropy": entropy})
    heard = []
    overrides = [*TINY, "train.validate_every=1", "train.validate_pairs=2", *ENDINGS[ending]]
    regard.train("copy", out=tmp_path / "run", overrides=overrides, listen=heard.append)
    found = [event for event in heard if isinstance(event, Noted) and "hardly learned to attend" in event.text]
    assert [event.step for event in found] == ([2] if entropy == 0.97 else [])
    assert all(("sublayer_gain=0.5" in event.text) == (ending != "pre-norm") for event in found)


def test_attention_that_is_not_finite_does_not_hide_that_training_diverges(tmp_path):
    overrides = [*TINY, "train.steps=12", "train.validate_every=2", "train.validate_pairs=2"]
    overrides += ["train.lr=1e18", "train.optimizer=adam"]
    with pytest.raises(Diverged):
        regard.train("copy", out=tmp_path / "run", overrides=overrides, listen=lambda event: None)


def test_a_run_resumes_when_its_recipe_says_since_where_its_files_may_be(tmp_path):
    (tmp_path / "train.tsv").write_text("a b\tb a\n")
    recipe = tmp_path / "my.toml"
    recipe.write_text('[data]\ntrain = { pairs = "train.tsv" }\n[model]\nkind = "transformer"\n')
    settings, asked = [*TINY, "train.steps=3"], iter(range(100))
    begun = regard.train(str(recipe), out=tmp_path / "run", overrides=settings, stop=lambda: next(asked) >= 2)
    assert not begun.finished
    new = recipe.read_text().replace("[model]", 'origin = "example.org"\nfolders = ["."]\n[model]')
    recipe.write_text(new)
    assert regard.train(str(recipe), out=tmp_path / "run", overrides=settings).finished


def test_a_dev_set_whose_examples_are_all_too_long_is_refused(tmp_path):
    with pytest.raises(
        DataError,
        match=r"^every dev example has more than 2 tokens on a side; to keep them, raise data.max_length \(now 2\)",
    ):
        regard.train("copy", out=tmp_path / "run", overrides=[*TINY, "data.max_length=2"], listen=lambda event: None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("recipe", "setting", "sentence"),
    [
        (
            "runs",
            "decode.beam=2",
            "decode.beam is 2, but a tagging recipe with model.kind=tagger ignores it; leave it out",
        ),
        ("majority", "decode.max_extra=3", "decode.max_extra is 3, but a classification recipe"),
        ("sort-numbers", "decode.mbr=chrf", "decode.mbr is chrf, but a pointing recipe"),
        ("counting", "decode.coverage_penalty=0.2", "decode.coverage_penalty is 0.2, but a language-modelling recipe"),
        ("sort-numbers", "train.label_smoothing=0.2", "train.label_smoothing is 0.2, but a pointing recipe"),
        ("ntm-copy-small", "train.label_smoothing=0.2", "train.label_smoothing is 0.2, but a binary-sequences recipe"),
        ("conll2000", "train.label_smoothing=0.2", "train.label_smoothing is 0.2, but a tagging recipe"),
        ("multi30k-en-de-ctc", "train.label_smoothing=0.2", "train.label_smoothing is 0.2, but a translation recipe"),
    ],
)
def test_an_option_that_has_no_effect_is_refused(recipe, setting, sentence):
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        resolve(load_recipe(recipe, [setting]))


def test_options_that_have_an_effect_are_kept():
    assert resolve(load_recipe("counting", ["decode.beam=2"])).decode.beam == 2
    assert resolve(load_recipe("copy", ["decode.mbr=bleu"])).decode.mbr == "bleu"
    assert resolve(load_recipe("majority", ["decode.tokens=64"])).decode.tokens == 64
    assert resolve(load_recipe("ewt-upos", ["train.label_smoothing=0.2"])).train.label_smoothing == 0.2
    # The default may be spelled out, as run folders do.
    assert resolve(load_recipe("conll2000", ["train.label_smoothing=0.1"])).train.label_smoothing == 0.1


@pytest.mark.parametrize("recipe", shipped_recipes())
def test_no_recipe_has_an_option_without_effect(recipe):
    resolve(load_recipe(recipe, []))


def test_a_run_resumes_though_its_recipe_had_an_option_without_effect(tmp_path):
    small = [one for one in TINY if "tokenizer" not in one]
    asked = iter(range(100))
    regard.train("runs", out=tmp_path / "run", overrides=[*small, "train.steps=3"], stop=lambda: next(asked) >= 2)
    run = RunFolder(tmp_path / "run")
    stored = run.recipe()
    run.change_recipe(msgspec.structs.replace(stored, decode=stored.decode.replace(beam=1)))
    assert regard.train("runs", out=tmp_path / "run", overrides=[*small, "train.steps=3"]).finished
