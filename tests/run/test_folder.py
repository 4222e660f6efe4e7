"""The run folder: which checkpoints are kept, which one is read, and a log without duplicates."""

import json

import pytest
import torch

from regard.errors import CheckpointError
from regard.models import expected_shapes
from regard.recipe_files import load_recipe
from regard.run.checkpoint import Checkpoint
from regard.run.folder import RunFolder
from regard.text.tokenizer_pair import load_tokenizers, train_tokenizers


def weights(value):
    """Return weights of the model of these runs, all with this value."""
    shapes = expected_shapes(load_recipe("copy").model, source_size=5, target_size=5)
    return {name: torch.full(shape, float(value)) for name, shape in shapes.items()}


def checkpoint(value):
    return Checkpoint(weights(value), {"m": torch.tensor([0.0])}, {"step": value})


def value_of(checkpoint):
    return next(iter(checkpoint.weights.values())).flatten()[0].item()


@pytest.fixture(scope="module")
def tokenizers():
    return train_tokenizers([("a b", "b a")], kind="word", size=10, joint=True)


@pytest.fixture
def run(tmp_path, tokenizers):
    folder = RunFolder(tmp_path / "runs" / "mine")
    folder.create(load_recipe("copy", ["train.steps=30"]), tokenizers, {"train": {"pairs": 20_000}})
    return folder


def save(run, *steps):
    for step in steps:
        run.save(checkpoint(step), step=step)


def damage(path, name="weights.safetensors"):
    (path / name).write_bytes((path / name).read_bytes()[:-1])


# Creating a run


def test_a_new_run_has_its_recipe_tokenizers_and_corpus(run):
    assert run.exists and not run.finished
    assert run.recipe() == load_recipe("copy", ["train.steps=30"])
    source = load_tokenizers(run.codec_folder()).source
    assert source.encode("a b") != source.encode("b a")
    assert run.corpus() == {"train": {"pairs": 20_000}}
    assert str(run).endswith("mine")


def test_a_folder_without_a_recipe_is_not_a_run(tmp_path):
    run = RunFolder(tmp_path)
    assert not run.exists
    for act in (run.require, run.recipe, run.codec_folder, run.weights):
        with pytest.raises(CheckpointError) as caught:
            act()
        assert f"{tmp_path} is not a run folder" in str(caught.value)


def test_the_recipe_is_written_last_so_that_an_unfinished_folder_is_not_a_run(tmp_path):
    class Broken:
        def save(self, folder):
            raise OSError("no space left")

    run = RunFolder(tmp_path / "run")
    with pytest.raises(OSError, match="no space left"):
        run.create(load_recipe("copy"), Broken(), {})
    assert not run.exists


@pytest.mark.parametrize("text", ["name = ", "name = 'x'\n", "name = 'x'\nstepps = 3\n"])
def test_a_damaged_recipe_is_named(run, text):
    (run.path / "recipe.toml").write_text(text)
    with pytest.raises(CheckpointError) as caught:
        run.recipe()
    assert str(caught.value).startswith(f"{run.path / 'recipe.toml'} is damaged: ")


def test_an_unfinished_folder_is_created_again(run, tokenizers):
    recipe = run.recipe()
    (run.path / "recipe.toml").unlink()
    (run.path / ".tokenizer.tmp").mkdir()
    run.create(recipe, tokenizers, {"train": {"pairs": 5}})
    assert run.exists
    assert run.corpus() == {"train": {"pairs": 5}}


def test_checkpoints_without_a_recipe_are_not_overwritten(run, tokenizers):
    recipe = run.recipe()
    save(run, 10)
    (run.path / "recipe.toml").unlink()
    with pytest.raises(CheckpointError, match=r"has checkpoints but no recipe\.toml"):
        run.create(recipe, tokenizers, {})


def test_a_damaged_vocabulary_is_named(run):
    path = next(path for path in (run.path / "tokenizer").iterdir() if path.name != "manifest.json")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError) as caught:
        load_tokenizers(run.codec_folder())
    assert str(caught.value) == f"{path} is damaged: it is not what was written"


def test_a_run_has_one_writer_at_a_time(run):
    with run.locked(), pytest.raises(CheckpointError, match="another process is training"), run.locked():
        pass
    # The lock is free again.
    with run.locked():
        pass


# Keeping checkpoints


def test_steps_are_sorted_as_numbers(run):
    save(run, 9, 1_000, 20, 100)
    assert run.steps() == [9, 20, 100, 1_000]


def test_checkpoints_are_kept_until_they_are_removed(run):
    save(run, 10, 20, 30, 40)
    run.keep({10, 40, 99})  # there is no checkpoint of step 99
    assert run.steps() == [10, 40]
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == ["step-00000010", "step-00000040"]


def test_saving_a_step_again_replaces_its_checkpoint(run):
    save(run, 10)
    run.save(checkpoint(99), step=10)
    assert run.steps() == [10]
    assert value_of(run.checkpoint_at(10)) == 99.0


def test_an_unfinished_checkpoint_is_not_listed(run):
    save(run, 10)
    (run.path / "checkpoints" / ".step-00000020.tmp").mkdir()
    assert run.steps() == [10]


# Reading checkpoints


def test_a_run_without_checkpoints_has_no_latest_and_no_weights(run):
    assert run.latest() == (None, [])
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        run.weights()


def test_the_newest_checkpoint_is_read_during_training_and_the_final_one_afterwards(run):
    save(run, 10, 20)
    read, name = run.weights()
    assert (value_of(read), name) == (20.0, "step-00000020")
    run.finish(Checkpoint(weights(99)))
    assert run.finished
    read, name = run.weights()
    assert (value_of(read), name) == (99.0, "final")


def test_a_run_tells_how_far_it_is_until_it_is_finished(run):
    assert run.unfinished() == ""  # nothing can be used yet
    save(run, 10, 20)
    assert run.unfinished() == f"{run} is at step 20 of 30"
    assert RunFolder(run.path, checkpoint="step-00000010").unfinished() == ""
    run.finish(checkpoint(30))
    assert run.unfinished() == ""


def test_damaged_checkpoints_are_skipped_and_reported(run):
    save(run, 10, 20, 30)
    damage(run.checkpoints()[2])
    damage(run.checkpoints()[1], "counters.json")
    newest, problems = run.latest()
    assert newest == "step-00000010"
    assert len(problems) == 2
    assert problems[0].startswith("checkpoint step-00000030 is not used: ")
    assert "weights.safetensors is damaged" in problems[0]
    assert "counters.json is damaged" in problems[1]
    assert run.weights()[1] == "step-00000010"


def test_there_is_no_latest_checkpoint_if_all_are_damaged(run):
    save(run, 10)
    damage(run.checkpoints()[0])
    newest, problems = run.latest()
    assert newest is None and len(problems) == 1


def test_damaged_final_weights_are_an_error_even_if_there_are_checkpoints(run):
    save(run, 10)
    run.finish(checkpoint(99))
    damage(run.path / "final")
    with pytest.raises(CheckpointError, match=r"final.weights\.safetensors is damaged"):
        run.weights()


def test_the_next_checkpoint_is_read_if_one_disappears(run, monkeypatch):
    save(run, 10, 20)
    found = iter([("step-00000015", []), ("step-00000020", [])])
    monkeypatch.setattr(run, "latest", lambda: next(found))
    assert run.weights()[1] == "step-00000020"


def test_a_checkpoint_is_found_by_its_step(run):
    save(run, 10, 20)
    assert run.checkpoint_at(10).counters == {"step": 10}


# The log


def test_events_are_read_in_the_order_of_logging(run):
    events = [{"event": "e", "step": 1, "loss": 0.5}, {"event": "e", "step": 2, "text": "é 年 \u2028 \n"}]
    for event in events:
        run.log(event)
    assert run.read_log() == events
    assert len((run.path / "log.jsonl").read_bytes().split(b"\n")) == 2 + 1


def test_a_run_without_a_log_file_has_no_events(run):
    assert run.read_log() == []


def test_a_last_line_cut_off_anywhere_is_left_out(run):
    run.log({"event": "e", "step": 1, "loss": 0.5})
    kept = (run.path / "log.jsonl").read_bytes()
    run.log({"event": "e", "step": 2, "loss": 0.25})
    complete = (run.path / "log.jsonl").read_bytes()
    for size in range(len(kept), len(complete)):
        (run.path / "log.jsonl").write_bytes(complete[:size])
        assert run.read_log() == [{"event": "e", "step": 1, "loss": 0.5}], size
    (run.path / "log.jsonl").write_bytes(complete)
    assert len(run.read_log()) == 2


def test_a_last_line_cut_off_inside_a_letter_is_left_out(run):
    run.log({"event": "e", "step": 1})
    line = json.dumps({"event": "e", "step": 2, "text": "é"}, ensure_ascii=False).encode()
    with (run.path / "log.jsonl").open("ab") as file:
        file.write(line[: line.index(b"\xc3") + 1])
    assert run.read_log() == [{"event": "e", "step": 1}]


def test_rewinding_removes_events_after_a_step(run):
    for step in (1, 2, 2, 3):
        run.log({"event": "e", "step": step})
    run.log({"event": "without a step"})
    run.rewind_log(2)
    assert run.read_log() == [
        {"event": "e", "step": 1},
        {"event": "e", "step": 2},
        {"event": "e", "step": 2},
        {"event": "without a step"},
    ]


def test_rewinding_removes_an_incomplete_line_so_that_the_next_event_has_its_own(run):
    run.log({"event": "e", "step": 1})
    with (run.path / "log.jsonl").open("a") as file:
        file.write('{"event": "e", "step": 2, "lo')
    run.rewind_log(1)
    run.log({"event": "e", "step": 2})
    assert run.read_log() == [{"event": "e", "step": 1}, {"event": "e", "step": 2}]


def test_rewinding_to_before_the_first_step_removes_all_events(run):
    run.log({"event": "e", "step": 0})
    run.log({"event": "e", "step": 1})
    run.rewind_log(-1)
    assert run.read_log() == []
