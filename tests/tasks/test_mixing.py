"""Training on several corpora: weights, tags and stages; resuming in the middle of a stage."""

import json

import msgspec
import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.errors import ConfigError, DataError, DecodeError
from regard.recipe_files import load_recipe
from regard.run.folder import RunFolder
from regard.storage.folder import Folder
from regard.text.tokenizer_pair import load_tokenizers
from regard.training import trainer
from regard.training.events import Progress, Started

WORDS = {"a": ["ape", "ant", "auk"], "b": ["bat", "bee", "boa"], "c": ["cat", "cow", "cod"]}
RECIPE = """
[data]
valid = { pairs = "a.tsv" }
[[data.train]]
pairs = "a.tsv"
until = 6
[[data.train]]
pairs = "b.tsv"
from = 6
tag = "<b>"
[[data.train]]
pairs = "c.tsv"
weight = 0.5
[tokenizer]
kind = "word"
size = 50
[model]
kind = "transformer"
width = 16
num_layers = 1
num_heads = 2
hidden = 16
dropout = 0.1
[train]
steps = 12
tokens = 64
threads = 1
device = "cpu"
log_every = 1
checkpoint_every = 100
validate_pairs = 4
[decode]
max_extra = 2
"""


def lines(name, count=40):
    words = WORDS[name]
    return [" ".join(words[(number // 3**place) % 3] for place in range(1 + number % 4)) for number in range(count)]


@pytest.fixture
def folder(tmp_path):
    """A folder with three corpora of words that begin with different letters, and a recipe of two stages."""
    for name in WORDS:
        (tmp_path / f"{name}.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in lines(name)))
    (tmp_path / "my.toml").write_text(RECIPE)
    return tmp_path


def train(folder, run, *overrides, **settings):
    return regard.train(
        str(folder / "my.toml"), out=folder / run, overrides=overrides, data=folder, **{"listen": print, **settings}
    )


def weights(folder, run):
    return load_file(folder / run / "final" / "weights.safetensors")


@pytest.fixture
def steps(monkeypatch):
    """The source ids that each step of training saw, end to end."""
    seen = []
    original = trainer.training_step

    def recorded(*arguments, **keywords):
        (batches,) = arguments[2:]
        seen.append([ids for batch in batches for ids in batch.source.as_lists()])
        return original(*arguments, **keywords)

    monkeypatch.setattr(trainer, "training_step", recorded)
    return seen


def letters(run, sources):
    """Return the first letters of the words in these sources; "#" for a tag."""
    codec = load_tokenizers(Folder(run, "tokenizer"))
    words = codec.source.tokens(sorted({id for ids in sources for id in ids}))
    return {"#" if word.startswith("<b>") else word[0] for word in words} - {"<"}


def test_each_step_draws_from_the_corpora_of_its_stage(folder, steps):
    run = train(folder, "run").run.path
    assert len(steps) == 12
    assert letters(run, [ids for step in steps[:6] for ids in step]) == {"a", "c"}
    assert letters(run, [ids for step in steps[6:] for ids in step]) == {"b", "c", "#"}


@pytest.mark.parametrize(("bound", "accumulate"), [(1, 1), (5, 3), (11, 1)])
def test_stage_bounds_are_exact(folder, steps, bound, accumulate):
    options = [f"data.train.0.until={bound}", f"data.train.1.from={bound}", f"train.accumulate={accumulate}"]
    run = train(folder, "run", 'data.train.2={pairs="a.tsv", until=1}', *options).run.path
    assert [letters(run, step) for step in steps] == [{"a"}] * bound + [{"b", "#"}] * (12 - bound)


def test_a_tag_is_one_id_in_front_of_the_source_and_no_output_has_it(folder, steps):
    run = train(folder, "run").run.path
    translator = regard.load(run)
    codec = translator.tokenizers
    (tag,) = codec.tags.values()
    assert tag == codec.source.size - 1 and codec.source.tokens([tag]) == ["<b>"]
    words = {id for word in ("bat", "bee", "boa") for id in codec.source.encode(word)}
    for ids in (ids for step in steps for ids in step):
        assert (ids[0] == tag) == bool(words & set(ids)) and tag not in ids[1:]
    # Text never has the id, even if it looks like the tag, and an output never shows it.
    assert tag not in codec.source.encode("<b> bat")
    assert codec.target.decode([tag, *codec.target.encode("BAT"), tag]) == "BAT"
    assert translator.into(tag="<b>").encode("bat bee")[0] == [tag, *codec.source.encode("bat bee")]
    assert translator.encode("bat bee")[0] == codec.source.encode("bat bee")
    with pytest.raises(DecodeError, match="the tag '<c>' is unknown; this model was trained with the tags <b>"):
        translator.into(tag="<c>")


def test_an_epoch_is_shared_out_by_weight(folder, steps):
    one_stage = ["data.train.0={pairs='a.tsv', weight=2}", "data.train.1={pairs='b.tsv', weight=0.25}"]
    run = train(folder, "run", *one_stage, "train.steps=40", "data.max_length=5").run
    epochs = [event.get("epoch") for event in run.read_log() if event["event"] == "progress"]
    # After the last step of epoch 0 the position is the beginning of epoch 1.
    first = [ids for step in steps[: epochs.index(1) + 1] for ids in step]
    names = [letters(run.path, [ids]) for ids in first]
    assert [sum(letter in name for name in names) for letter in "abc"] == [87, 11, 22]


def stop_after(step):
    seen = []
    return lambda event: seen.append(event.step) if isinstance(event, Progress) else None, lambda: step in seen


@pytest.mark.slow(unless=["6"])
@pytest.mark.parametrize("stop_at", [4, 6, 9])
def test_a_run_that_is_stopped_within_a_stage_or_between_two_resumes_to_the_same_bits(folder, stop_at):
    train(folder, "uninterrupted")
    listen, stop = stop_after(stop_at)
    assert not train(folder, "parts", listen=listen, stop=stop).finished
    assert RunFolder(folder / "parts").steps() == [stop_at]
    assert train(folder, "parts").finished
    uninterrupted, parts = weights(folder, "uninterrupted"), weights(folder, "parts")
    assert all(torch.equal(uninterrupted[name], parts[name]) for name in uninterrupted)
    logs = [RunFolder(folder / name).read_log() for name in ("uninterrupted", "parts")]
    losses = [[(event["step"], event["loss"]) for event in log if event["event"] == "progress"] for log in logs]
    assert losses[0] == losses[1] and len(losses[0]) == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra",
    [
        ["tokenizer.kind=bpe", "tokenizer.size=60", "tokenizer.sampling=0.3"],
        ["train.accumulate=2"],
        ["data.train.0={generate='reverse/valid', until=6}", "data.train.2={pairs='c.tsv', weight=7.3}"],
        [
            "data.train.2={generate='rooms/train', fresh=true, options={size=30}}",
            "data.max_length=900",
            "tokenizer.size=500",
        ],
    ],
    ids=["subword sampling", "accumulation", "generated", "fresh"],
)
def test_mixtures_of_all_kinds_resume_to_the_same_bits(folder, extra):
    train(folder, "uninterrupted", *extra)
    listen, stop = stop_after(8)
    assert not train(folder, "parts", *extra, listen=listen, stop=stop).finished
    train(folder, "parts", *extra)
    uninterrupted, parts = weights(folder, "uninterrupted"), weights(folder, "parts")
    assert all(torch.equal(uninterrupted[name], parts[name]) for name in uninterrupted)


def test_a_list_of_one_corpus_trains_like_a_table(folder):
    for name, given in (("table", "data.train={pairs='a.tsv'}"), ("list", "data.train=[{pairs='a.tsv'}]")):
        train(folder, name, given, "train.steps=5")
    table, entries = weights(folder, "table"), weights(folder, "list")
    assert all(torch.equal(table[name], entries[name]) for name in table)


def test_two_corpora_of_weight_one_train_like_their_text_in_one_file(folder):
    both = "".join((folder / f"{name}.tsv").read_text() for name in "ab")
    (folder / "both.tsv").write_text(both)
    train(folder, "one", "data.train={pairs='both.tsv'}", "train.steps=5")
    train(folder, "two", "data.train=[{pairs='a.tsv'}, {pairs='b.tsv', weight=1}]", "train.steps=5")
    one, two = weights(folder, "one"), weights(folder, "two")
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_run_folder_and_the_card_list_all_corpora(folder):
    run = train(folder, "run").run
    assert list(run.corpus()) == ["train.0", "train.1", "train.2", "valid"]
    assert "[[data.train]]" in (run.path / "recipe.toml").read_text()
    assert load_recipe(str(run.path / "recipe.toml")) == run.recipe()
    page = regard.card(run.path, evaluated=False).read_text()
    assert "| train.2 data | pairs 40" in page
    exported = regard.export(run.path, folder / "exported").recipe()
    assert [one.pairs for one in exported.data.corpora] == ["a.tsv", "b.tsv", "c.tsv"]
    assert json.loads((run.path / "tokenizer" / "tokenizer.json").read_text())["tags"] == ["<b>"]


def test_a_change_in_one_corpus_is_noticed_when_a_run_resumes(folder):
    listen, stop = stop_after(3)
    train(folder, "run", listen=listen, stop=stop)
    with pytest.raises(ConfigError, match=r"data.train.2.weight: 0.5 -> 0.6"):
        train(folder, "run", "data.train.2.weight=0.6")
    # The first pair of b.tsv becomes the last one of a.tsv: all pairs together are the same.
    first, rest = (folder / "b.tsv").read_text().split("\n", 1)
    (folder / "a.tsv").write_text((folder / "a.tsv").read_text() + first + "\n")
    (folder / "b.tsv").write_text(rest)
    with pytest.raises(DataError, match="the text has changed"):
        train(folder, "run")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.train.1.from=7", "data.train: no corpus is used in steps 7 to 7; one must be"),
        ("data.train.0.weight=0", r"data.train\[0\]: weight is 0.0; it must be from 0.000001 to 1,000,000"),
        ("data.train.0.from=6", r"data.train\[0\]: from is 6 and until is 6; from must be 0 or more, and below until"),
        ("data.train.0.tag='two words'", "tag is 'two words'; it must be one word of at most 64 printable"),
        ("data.train.3.tag=x", "data.train is a list of 3 tables, so 'data.train.3.tag=x' does not name one of them"),
        ("data.train.weight=2", "give its number, from 0, as in data.train.0.weight=2"),
        ("data.train.0.wieght=2", "data.train.0 has no field 'wieght'; did you mean 'weight'"),
        ("data.valid.tag='<z>'", r"valid.tag is '<z>'; no corpus in data.train has it \(there: '<b>'\)"),
        ("data.valid.weight=2", "valid has a weight, from or until; these are for the corpora of data.train"),
        ("data.valid={hold_out=3}", "hold_out takes examples from a single data.train; with several sets, name files"),
    ],
)
def test_mistakes_are_named(folder, override, message):
    without_third = ["data.train=[{pairs='a.tsv', until=6}, {pairs='b.tsv', from=6, tag='<b>'}]"]
    overrides = [*without_third, override] if "from=7" in override else [override]
    with pytest.raises(ConfigError, match=message):
        load_recipe(str(folder / "my.toml"), overrides)


def test_tags_are_refused_where_nothing_reads_them():
    with pytest.raises(ConfigError, match=r"data.train has the tag '<x>', but tagging reads no tags; leave it out"):
        regard.train("runs", overrides=["data.train.tag='<x>'"])


def test_a_run_can_begin_with_one_that_has_fewer_tags(folder):
    """The rows of new tags are new; all others, and the ids of the text, are those of the other run."""
    train(folder, "first", "data.train={pairs='a.tsv'}", "train.steps=2")
    tagged = "data.train=[{pairs='a.tsv'}, {pairs='a.tsv', tag='<x>'}]"
    events = []
    init = ["train.steps=1", "train.lr=0", "train.warmup_steps=0", f"train.init={folder / 'first'}"]
    train(folder, "second", tagged, *init, listen=events.append)
    first, second = regard.load(folder / "first"), regard.load(folder / "second")
    size = first.tokenizers.source.size
    assert dict(second.tokenizers.tags) == {"<x>": size} and second.tokenizers.source.size == size + 1
    assert any(f"{size} of {size + 1} rows of" in getattr(event, "text", "") for event in events)
    assert first.translate(["ape ant"]) == second.translate(["ape ant"])
    before, after = weights(folder, "first"), weights(folder, "second")
    assert all(torch.equal(before[name], after[name][: len(before[name])]) for name in before)


@pytest.mark.parametrize("noise", ["data.augment={typos=0.5, upper=0.5}", "tokenizer.sampling=0.5"])
def test_sources_with_noise_keep_their_tags(folder, steps, noise):
    subwords = ["tokenizer.kind=bpe", "tokenizer.size=60"] if "sampling" in noise else ["tokenizer.kind=char"]
    run = train(folder, "run", noise, *subwords, "data.train=[{pairs='a.tsv'}, {pairs='b.tsv', tag='<b>'}]").run.path
    codec = load_tokenizers(Folder(run, "tokenizer"))
    words = [(ids[0] == codec.tags["<b>"], codec.source.decode(ids)[:1].lower()) for step in steps for ids in step]
    assert {(True, "b"), (False, "a")} <= set(words)
    assert sum(tagged != (letter == "b") for tagged, letter in words) < 0.2 * len(
        words
    )  # a typo may be the first letter


@pytest.mark.gpu
def test_stages_are_packed_for_a_gpu_and_resume(folder):
    """Packed batches of each stage, one CUDA graph per stage; resuming takes the remaining steps alone."""
    large = ["train.device=cuda", "model.width=64", "model.hidden=128", "train.tokens=256", "train.graph=true"]
    events = []
    listen, stop = stop_after(8)
    first = train(
        folder, "run", *large, "train.steps=30", "data.train.0.until=8", "data.train.1.from=8", listen=listen, stop=stop
    )
    assert not first.finished and first.run.steps() == [8]
    done = train(
        folder, "run", *large, "train.steps=30", "data.train.0.until=8", "data.train.1.from=8", listen=events.append
    )
    started = next(event for event in events if isinstance(event, Started))
    assert done.finished and started.step == 8 and "packed batches" in started.how
    losses = [event.loss for event in events if isinstance(event, Progress)]
    assert len(losses) == 22 and all(0 < loss < 20 for loss in losses)


GENERATED = ["runs", "majority", "sort-numbers", "counting", "repeats", "rooms", "documents", "expressions"]


@pytest.mark.slow(unless=["runs"])
@pytest.mark.parametrize("name", GENERATED)
def test_every_task_can_mix_corpora_in_stages(name, tmp_path):
    recipe = load_recipe(name, ["train.steps=3", "train.validate_pairs=2", "train.threads=1", "train.warmup_steps=0"])
    # The dev set is smaller than the training set.
    first = recipe.data.dev_sets[0]
    later = msgspec.structs.replace(first, weight=0.25, from_=1)
    data = msgspec.structs.replace(recipe.data, train=(first, later))
    run = regard.train(msgspec.structs.replace(recipe, data=data), out=tmp_path / "run", listen=print).run
    assert run.finished and run.recipe().data.corpora[1].weight == 0.25


STACKS = ["model.num_layers=1", "model.num_heads=2", "model.hidden=16"]
SMALL = {
    "rnn": ["model.hidden=16", "model.num_layers=1"],
    "nat": STACKS,
    "cmlm": STACKS,
    "ctc": STACKS,
    "convs2s": ["model.encoder=[[16,3]]", "model.decoder=[[16,3]]"],
    "bytenet": ["model.sets=1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_every_family_of_translation_can_mix_corpora_with_tags(kind, folder):
    settings = [f"model.kind={kind}", "model.width=16", "train.steps=8", "model.dropout=0", *SMALL[kind]]
    assert train(folder, "run", *settings, warn=lambda text: None).finished
    assert len(regard.load(folder / "run").into(tag="<b>").translate(["bat"])) == 1
