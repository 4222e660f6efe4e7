"""regard card, regard export, and the pretrained models."""

import json

import pytest

import regard
from regard import api, evaluating, loading
from regard.run.finding import pretrained_models
from regard.run.folder import RunFolder
from regard.text.bitext import pairs_fingerprint
from regard.text.corpus import Pair
from tests.commands import regard as call


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card") / "copy"
    api.train(
        "copy",
        out=folder,
        overrides=[
            "train.steps=4",
            "train.checkpoint_every=2",
            "train.log_every=1",
            "train.validate_pairs=4",
            "train.device=cpu",
            'data.test={test={generate="copy/valid"}}',
        ],
    )
    return folder


def test_a_card_has_the_recipe_the_data_the_time_and_the_scores(run):
    result = call("card", run)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("# copy\n") and "## Results" in result.stdout
    card = json.loads((run / "card.json").read_text())
    assert card["steps"] == 4 and card["seed"] == 1 and card["training_seconds"] > 0
    assert card["corpus"]["train"]["sha256"] and card["machine"]["torch"]
    assert card["target_tokens_per_second"] > 0 and card["recipe"]["train"]["steps"] == 4
    (scores,) = [one["scores"] for one in card["results"]]
    (bleu,) = [score for score in scores if score["name"] == "bleu"]
    assert "version:" in bleu["signature"]
    expected = {score.name: score.value for score in evaluating.evaluate(run)[0].scores}
    assert bleu["value"] == expected["bleu"]


OWN = """
[data]
train = { source = "train.en", target = "train.de" }
test = { dev = { source = "train.en", target = "train.de" } }
[tokenizer]
kind = "word"
[model]
kind = "transformer"
width = 16
num_layers = 1
num_heads = 2
hidden = 16
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A run of a recipe file that is named by its absolute path, with data next to it and a dev set named absolutely."""
    folder = tmp_path_factory.mktemp("secret-place")
    (folder / "mine.toml").write_text(OWN)
    (folder / "train.en").write_text("a b\nc d\n")
    (folder / "train.de").write_text("b a\nd c\n")
    overrides = ["train.steps=2", "train.checkpoint_every=2", "train.device=cpu", "train.threads=1"]
    overrides.append(f'data.valid={{source="{folder}/train.en", target="{folder}/train.de"}}')
    api.train(str(folder / "mine.toml"), out=folder / "run", overrides=overrides)
    return folder


def test_a_card_has_no_paths_of_the_machine_and_the_command_as_it_was_given(own):
    page = api.card(own / "run", data=own, device="cpu").read_text()
    as_json = (own / "run" / "card.json").read_text()
    assert str(own) not in page + as_json and "secret-place" not in page + as_json
    card = json.loads(as_json)
    assert card["recipe"]["data"]["train"] == {"source": "train.en", "target": "train.de"}
    assert card["command"] == (
        "regard train mine.toml train.steps=2 train.checkpoint_every=2 train.device=cpu train.threads=1 "
        """'data.valid={source="train.en", target="train.de"}' --out run"""
    )
    assert f"| command | `{card['command']}` |" in page


def test_the_command_of_a_card_names_the_folder_of_the_run(run, monkeypatch):
    given = {"event": "command", "recipe": "mine.toml", "overrides": ["train.steps=2"]}
    for out, named in ((None, ""), ("runs/a", " --out runs/a"), ("/home/me/a", " --out a")):
        monkeypatch.setattr(RunFolder, "read_log", lambda self, out=out: [{**given, "out": out}])
        card = json.loads(api.card(run, evaluated=False).with_name("card.json").read_text())
        assert card["command"] == f"regard train mine.toml train.steps=2{named}"


def test_a_card_has_the_size_and_the_hash_of_each_test_set(own):
    page = api.card(own / "run", data=own, device="cpu").read_text()
    card = json.loads((own / "run" / "card.json").read_text())
    expected = pairs_fingerprint([Pair("a b", "b a"), Pair("c d", "d c")])
    (result,) = card["results"]
    assert {"pairs": result["num_pairs"], "sha256": result["sha256"]} == expected
    assert f"| test set dev | pairs 2, sha256 `{expected['sha256']}` |" in page


def test_a_card_has_notes_on_what_was_tried(run):
    page = api.card(run, evaluated=False, notes=["A rate of 0.1\ndiverged.", "Published: 3 %."]).read_text()
    assert "## Notes\n\n- A rate of 0.1 diverged.\n- Published: 3 %.\n\n## Recipe" in page
    assert "## Notes" not in api.card(run, evaluated=False).read_text()


def test_the_command_of_a_shipped_recipe_has_its_name_and_every_override(run):
    api.card(run, evaluated=False)
    card = json.loads((run / "card.json").read_text())
    assert card["command"].startswith("regard train copy train.steps=4 train.checkpoint_every=2")


def test_an_export_translates_like_its_run_and_int8_is_smaller(run, tmp_path):
    result = call("export", run, "--out", tmp_path / "small", "--weights", "int8")
    assert result.returncode == 0, result.stderr
    text = ["a b c", "d e"]
    small, original = (
        dict(loading.load(folder, device="cpu").model.named_parameters()) for folder in (tmp_path / "small", run)
    )
    for name, weight in original.items():
        step = weight.abs().amax() / 127 if weight.dim() > 1 else weight.abs().amax() / 1000
        assert (small[name] - weight).abs().max() <= step
    same = api.export(run, tmp_path / "same")
    assert loading.load(same.path, device="cpu").translate(text) == loading.load(run, device="cpu").translate(text)
    assert not (same.path / "checkpoints").exists()
    sizes = [(folder / "final" / "weights.safetensors").stat().st_size for folder in (same.path, tmp_path / "small")]
    assert sizes[1] < 0.4 * sizes[0]


@pytest.mark.slow
def test_an_export_overwrites_nothing(run, tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    result = call("export", run, "--out", tmp_path)
    assert result.returncode == 1 and "not an empty folder" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_pretrained_models_are_small_and_name_the_origin_of_their_text():
    assert set(pretrained_models()) == {"de-en", "en-de", "zh-en"}
    for folder in pretrained_models().values():
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 12e6
        card = json.loads((folder / "card.json").read_text())
        assert card["license"] == "CC BY 2.0" and "tatoeba.org" in card["attribution"]
        assert card["command"].startswith(f"regard train tatoeba-{folder.name}")


def test_a_pretrained_model_translates():
    result = call("translate", "de-en", text="Wo ist der Bahnhof?\nIch habe Hunger.\n")
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert "station" in first and first.startswith("Where") and "hungry" in second
    assert "Bahnhof" in regard.load("en-de", device="cpu").translate(["Where is the train station?"])[0]
    assert regard.load("zh-en", device="cpu").translate(["我喜欢你。"]) == ["I like you."]


@pytest.mark.slow
def test_a_name_that_is_neither_a_run_nor_a_pretrained_model_is_refused():
    result = call("translate", "de-eng", text="x\n")
    assert result.returncode == 1
    assert "de-eng is not a run folder" in result.stderr and "did you mean 'de-en'?" in result.stderr
