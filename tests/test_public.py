"""The public surface: `import regard`, and what stands in `regard.__all__`."""

import pydoc
import subprocess
import sys

import pytest
import torch

import regard
from regard.errors import ConfigError

PUBLIC = [
    *("RegardError", "RegardWarning", "__version__", "nn"),
    *("Batch", "ByteNet", "Captioner", "Classifier", "Cmlm", "Column", "Columns", "ConvS2S", "Ctc", "EvaluateConfig"),
    *("Family", "Folder", "Han", "Indices", "Layout", "Loader", "MaskedLm", "Metric", "Model", "Nat", "Pair"),
    *("Pointer", "Position", "Ragged", "Request"),
    *("Rnn", "SearchOptions", "Struct", "Tagger", "Task", "TokenizerKind", "TrainConfig", "Trainer", "TrainingData"),
    *(
        "Transformer",
        "Translator",
        "adapt",
        "align",
        "calibrate",
        "card",
        "collate_pairs",
        "compare",
        "evaluate",
        "export",
    ),
    *("export_model", "export_page", "gather_rows", "import_model", "load", "load_model"),
    *(
        "look",
        "make_batch",
        "make_config",
        "make_shortlist",
        "pair_columns",
        "register_metric",
        "register_model",
        "register_task",
    ),
    *("register_tokenizer", "run_study", "search", "train", "train_tokenizer", "train_tokenizers", "verify"),
]
VERBS = [
    *("train", "load", "evaluate", "compare", "look", "card", "calibrate", "align", "make_shortlist", "adapt"),
    *("run_study", "export", "import_model"),
    *("export_model", "export_page", "verify", "load_model", "search"),
]
TEXT = {"source_size": 20, "target_size": 20}
LABELS = {"source_size": 20, "num_labels": 3}
LAYERS = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16}
MODELS = {
    "Transformer": {**TEXT, **LAYERS},
    "Nat": {**TEXT, **LAYERS},
    "Cmlm": {**TEXT, **LAYERS},
    "Ctc": {**TEXT, **LAYERS},
    "Rnn": {**TEXT, "width": 16, "hidden": 16},
    "ConvS2S": {**TEXT, "width": 16, "encoder": [[16, 3]], "decoder": [[16, 3]]},
    "ByteNet": {**TEXT, "width": 16, "sets": 1},
    "Tagger": {**LABELS, **LAYERS},
    "Classifier": {**LABELS, **LAYERS},
    "MaskedLm": {"source_size": 20, **LAYERS},
    "Pointer": {"input_width": 2, **LAYERS},
    "Han": {**LABELS, "width": 16, "hidden": 16, "attention": 8},
    "Captioner": {"image_height": 8, "image_width": 8, "target_size": 20, **LAYERS},
}


def in_new_process(code):
    """Run code in a new Python. Return what it prints."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_public_names_are_these():
    assert regard.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_importable_listed_and_documented(name):
    public = getattr(regard, name)
    assert name in dir(regard)
    if name != "__version__":
        assert public.__doc__ and len(public.__doc__.split()) > 2
        assert not public.__doc__.startswith(f"{name}("), "that is the docstring that dataclasses make"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_the_package_lists_the_verb_with_its_first_sentence(verb):
    sentence = " ".join(getattr(regard, verb).__doc__.split()).split(". ")[0].rstrip(".") + "."
    listed = " ".join(pydoc.splitdoc(pydoc.getdoc(regard))[1].split())
    assert f" {verb} {sentence}" in listed


def test_dir_shows_the_public_names_and_nothing_else():
    assert [name for name in dir(regard) if not name.startswith("_")] == sorted(set(PUBLIC) - {"__version__"})
    assert {"__doc__", "__file__", "__version__"} <= set(dir(regard))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'Transformr'"):
        regard.Transformr  # noqa: B018


def test_importing_regard_imports_no_torch_and_changes_no_environment():
    code = (
        "import os, sys; before = dict(os.environ); import regard; "
        "print('torch' in sys.modules, before == dict(os.environ))"
    )
    assert in_new_process(code) == "False True"


def test_importing_every_public_name_changes_no_global_switch_of_torch():
    code = """
import torch
def switches():
    return (torch.get_num_threads(), torch.get_default_dtype(), torch.get_float32_matmul_precision(),
            torch.is_grad_enabled(), torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled(),
            torch.backends.mkldnn.enabled, torch.initial_seed(), torch.get_rng_state().sum().item())
torch.manual_seed(5)
before = switches()
import regard
for name in regard.__all__:
    getattr(regard, name)
print(before == switches())
"""
    assert in_new_process(code) == "True"


def test_every_model_class_is_covered_here():
    from regard.models.base import Model

    public = [getattr(regard, name) for name in PUBLIC]
    classes = {one.__name__ for one in public if isinstance(one, type) and issubclass(one, Model)} - {"Model"}
    assert classes == MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_built_by_keywords_and_an_unknown_one_names_its_neighbour(name):
    model = getattr(regard, name)(**MODELS[name])
    assert isinstance(model, torch.nn.Module) and model.width == 16
    assert all(one.requires_grad for one in model.parameters())
    with pytest.raises(ConfigError, match=r"has no option 'widht'; did you mean 'width'\?"):
        getattr(regard, name)(**MODELS[name], widht=32)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_without_options_has_the_defaults_of_its_recipe_table(name):
    sizes = {key: MODELS[name][key] for key in MODELS[name] if key.endswith(("_size", "_labels", "_width", "_height"))}
    with torch.device("meta"):
        assert getattr(regard, name)(**sizes).width >= 200


OTHER_INPUTS = ("Tagger", "Classifier", "Pointer", "Captioner", "Han")  # than pairs of texts


@pytest.mark.parametrize("name", [name for name in MODELS if name not in OTHER_INPUTS])
def test_calling_a_model_of_text_with_a_batch_gives_a_loss_with_gradients(name):
    model = getattr(regard, name)(**MODELS[name])
    batch = regard.make_batch([[5, 6, 7], [8, 9]], [[9, 8], [7]])
    loss = model(batch, smoothing=0.1)
    assert loss.shape == () and loss.isfinite()
    loss.backward()
    assert any(one.grad is not None and one.grad.abs().sum() > 0 for one in model.parameters())


def test_load_model_returns_a_plain_module_that_can_be_trained():
    model = regard.load_model("en-de", device="cpu")
    assert isinstance(model, regard.Transformer) and not model.training
    batch = regard.make_batch([[50, 60, 70], [80, 90]], [[100, 110], [120]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    before = model(batch)
    before.backward()
    optimizer.step()
    assert model(batch).item() < before.item()
    other = regard.load_model("en-de", device="cpu")
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other(batch), model(batch))
