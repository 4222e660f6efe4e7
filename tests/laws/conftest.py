"""Small models of every family and variant, for laws that must hold for all. A new family is tested by being listed."""

import functools
import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_model, save_model

from regard.data.batch import SENTENCES, Batch, make_batch, shift_right
from regard.data.ragged import Layout, Ragged
from regard.decoding.search import search
from regard.models import MODELS, build_model
from regard.models.base import Model, NonAutoregressive, Seq2Seq
from regard.models.binary import BinaryModel
from regard.models.captioner import Captioner
from regard.models.decoder import Decoder
from regard.models.han import Han
from regard.models.masked_lm import MaskedLm
from regard.models.pointer import END, PointingModel
from regard.models.story_model import StoryModel
from regard.models.tagger import Classifier, Tagger
from regard.nn.device import own_blas
from regard.tasks.questions import EncodedStory, QuestionAnsweringTask, story_columns
from regard.text.tokenizer import BOS, EOS
from tests.shared import make_once

SMALL = {
    "transformer": {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24, "dropout": 0.1},
    "rnn": {"width": 16, "hidden": 24, "num_layers": 2, "dropout": 0.1},
    "convs2s": {"width": 16, "encoder": [[16, 3], [24, 3]], "decoder": [[16, 3], [24, 2]], "dropout": 0.1},
    "bytenet": {"width": 16, "dilations": [1, 2], "sets": 2, "dropout": 0.1},
    "pointer-lstm": {"width": 16, "hidden": 24, "dropout": 0.1},
    "han": {"width": 16, "hidden": 12, "attention": 8, "dropout": 0.1},
}
SMALL |= dict.fromkeys(("nat", "cmlm", "ctc", "tagger", "classifier", "pointer", "masked-lm"), SMALL["transformer"])
SMALL |= dict.fromkeys(("reader", "binary-transformer", "decoder"), SMALL["transformer"])
SMALL |= {
    "captioner": {**SMALL["transformer"], "patch": 2},
    "entnet": {"width": 16, "slots": 3, "init_std": 0.3, "max_words": 3},
    "ntm": {"width": 16, "locations": 6, "location_width": 4},
    "binary-lstm": {"width": 16, "num_layers": 2, "dropout": 0.1},
}
VARIANTS = {
    "transformer": {
        "paper": {},
        "pre-norm": {"norm_order": "pre"},
        "rms": {"norm": "rms"},
        "learned": {"positions": "learned"},
        "rotary": {"positions": "rotary"},
        "gelu": {"feed_forward": "gelu"},
        "swiglu": {"feed_forward": "swiglu"},
        "conv": {"feed_forward": "conv"},
        "qk-norm": {"qk_norm": True},
        "window": {"window": 1},
        "untied": {"tie": "none"},
        "wide values": {"key_width": 4, "value_width": 12},
        "shallow decoder": {"decoder_layers": 1},
        "explicit": {"attention": "explicit"},
        "tensor2tensor": {"attention_dropout": 0.1, "activation_dropout": 0.1, "norm_order": "pre"},
        "copy": {"copy": True},
        "marian": {
            "attention_bias": True,
            "output_bias": True,
            "feed_forward": "silu",
            "positions": "sinusoid-halves",
            "norm_eps": 1e-5,
        },
        "fairseq": {
            "attention_bias": True,
            "positions": "sinusoid-log",
            "first_position": 2,
            "start_id": 2,
            "norm_order": "pre",
            "scale_embeddings": False,
        },
        "opennmt": {
            "attention_bias": True,
            "output_bias": True,
            "tie": "none",
            "norm_order": "pre",
            "final_norm": False,
            "feed_forward": "silu",
            "decoder_layers": 1,
            "source_eos": False,
        },
        "final norm": {"final_norm": True},
    },
    "rnn": {
        "additive": {},
        "lstm": {"cell": "lstm"},
        "none": {"attention": "none"},
        "none lstm": {"attention": "none", "cell": "lstm"},
        "dot": {"attention": "dot"},
        "general": {"attention": "general", "cell": "lstm"},
        "concat": {"attention": "concat"},
        "local": {"attention": "general", "window": 1, "cell": "lstm"},
        "local additive": {"window": 2},
        "no feeding": {"attention": "dot", "input_feeding": False},
        "concat no feeding": {"attention": "concat", "input_feeding": False, "cell": "lstm", "window": 1},
        "one layer tied": {"num_layers": 1, "tie": "all"},
        "wide encoder": {"encoder_hidden": 32},
        "one direction": {"bidirectional": False, "attention": "general", "encoder_hidden": 14},
        "copy": {"copy": True, "cell": "lstm", "encoder_hidden": 32},
    },
    "convs2s": {"plain": {}, "tied": {"tie": "all"}},
    "bytenet": {
        "plain": {},
        "longer": {"extra": 3, "stretch": 1.5},
        "tied": {"tie": "target"},
        "far": {"dilations": [1, 16]},
    },
    "nat": {
        "paper": {},
        "biases": {"attention_bias": True, "output_bias": True, "feed_forward": "silu"},
        "few fertilities": {"fertilities": 3, "tie": "target"},
    },
    "cmlm": {
        "paper": {},
        "pre-norm": {"norm_order": "pre"},
        "learned untied": {"positions": "learned", "tie": "none"},
        "biases": {"attention_bias": True, "output_bias": True},
    },
    "ctc": {"paper": {}, "two places": {"places": 2, "tie": "target"}},
    "tagger": {
        "plain": {},
        "pre-norm rotary": {"norm_order": "pre", "positions": "rotary"},
        "crf": {"crf": True},
        "spelled conv": {"characters": 3, "character_width": 4, "word_dropout": 0.3, "feed_forward": "conv"},
    },
    "masked-lm": {"plain": {}, "spelled": {"characters": 3, "character_width": 4, "norm_order": "pre"}},
    "classifier": {"plain": {}},
    "han": {"plain": {}},
    "pointer": {
        "plain": {},
        "pre-norm": {"norm_order": "pre"},
        "rotary": {"positions": "rotary"},
        "window": {"window": 1, "decoder_layers": 1},
    },
    "entnet": {"paper": {}, "one slot": {"slots": 1, "max_words": 1}},
    "reader": {"plain": {}, "pre-norm rotary": {"norm_order": "pre", "positions": "rotary"}},
    "captioner": {
        "plain": {},
        "pre-norm untied": {"norm_order": "pre", "tie": "none"},
        "rotary": {"positions": "rotary", "decoder_layers": 1},
    },
    "pointer-lstm": {"plain": {}, "two layers": {"num_layers": 2}},
    "ntm": {
        "feed-forward": {},
        "lstm": {"controller": "lstm"},
        "learned heads": {"memory": "learned", "start": "learned", "read_heads": 2, "write_heads": 2},
    },
    "binary-lstm": {"plain": {}},
    "binary-transformer": {"plain": {}, "rotary": {"positions": "rotary"}},
    "decoder": {
        "plain": {},
        "pre-norm rotary": {"norm_order": "pre", "positions": "rotary"},
        "learned swiglu": {"positions": "learned", "feed_forward": "swiglu"},
        "window": {"window": 1},
    },
}
assert VARIANTS.keys() == set(MODELS.names()), "a new family needs its variants here"
ALL = {
    f"{kind}-{name}": {"kind": kind, **SMALL[kind], **keys}
    for kind in VARIANTS
    for name, keys in VARIANTS[kind].items()
}


def tables_of(contract):
    """The `[model]` tables of the models that keep a contract. Variants after the first of a family are slow."""
    return [
        pytest.param(
            table,
            id=name,
            marks=[] if name == f"{table['kind']}-{next(iter(VARIANTS[table['kind']]))}" else pytest.mark.slow,
        )
        for name, table in ALL.items()
        if issubclass(MODELS.get(table["kind"], where="kind").build, contract)
    ]


def tables_with(contract, values, *, every):
    """Tables with values: those of `every` with each table, others with the first of a family and with those that copy."""

    def is_chosen(kind, name):
        return name in (f"{kind}-{next(iter(VARIANTS[kind]))}", f"{kind}-copy")

    return [
        pytest.param(
            *one.values, value, id=f"{one.id}-{value}", marks=one.marks if value in every else pytest.mark.slow
        )
        for one in tables_of(contract)
        for value in values
        if value in every or is_chosen(one.values[0]["kind"], one.id)
    ]


VOCABULARY = 11
LABELS = 5
SIZES = {
    "translation": {"source_size": VOCABULARY, "target_size": VOCABULARY},
    "tagging": {"source_size": VOCABULARY, "num_labels": LABELS},
    "classification": {"source_size": VOCABULARY, "num_labels": LABELS},
    "pointing": {"source_size": VOCABULARY},
    "question-answering": {"source_size": VOCABULARY, "num_labels": LABELS},
    "captioning": {"image_height": 8, "image_width": 6, "target_size": VOCABULARY},
    "masked-lm": {"source_size": VOCABULARY},
    "binary-sequences": {"input_width": 4, "output_width": 3},
    "language-modelling": {"source_size": VOCABULARY},
}
CHARACTERS = 7


class CaptionerOfIds(Captioner):
    """A captioner whose sources are ids, as those of the laws are: each stands for a patch."""

    def encode(self, source):
        width = self.patches.weight.size(1)
        patches = torch.rand(VOCABULARY, width, generator=torch.Generator().manual_seed(4))
        return super().encode(Ragged(patches.to(source.values.device)[source.values], source.layout))


def build(table):
    """A small model with random weights, in training mode."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        more = {"num_characters": CHARACTERS} if table.get("characters") else {}
        model = build_model(table, **SIZES[MODELS.get(table["kind"], where="kind").task], **more)
        if table.get("attention_bias"):
            # Biases are zero at first, which would hide a path that leaves them out.
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    torch.nn.init.normal_(parameter, std=0.5)
    if isinstance(model, Captioner):
        model.__class__ = CaptionerOfIds
    return model


def small(table):
    """The same model in evaluation mode."""
    return build(table).eval()


def shared(table):
    """The same model for all tests of this process: for those that do not change it."""
    return _shared(json.dumps(table))


@functools.cache
def _shared(table):
    return small(json.loads(table))


_found = {}


def found_once(model, sources, options):
    """What search finds with a shared model. Tests that compare with it do not search again."""
    key = model, str(sources), options
    if key not in _found:
        _found[key] = search(model, Ragged.from_lists(sources), options=options)
    return _found[key]


def trained_to_copy(table, tmp_path_factory):
    """A small model that has been trained to copy its source, in evaluation mode, and its last loss."""
    name = f"trained-{hashlib.sha256(json.dumps(table).encode()).hexdigest()[:16]}"
    folder = make_once(tmp_path_factory, name, lambda folder: _train_to_copy(table, folder))
    model = small(table)
    load_model(model, folder / "weights.safetensors")
    return model, float((folder / "loss.txt").read_text())


def _train_to_copy(table, folder):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = small(table)  # without dropout, it learns in half of the steps
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
        generator = np.random.default_rng(1)
        for _ in range(36):
            # Successive tokens, since a model learns in a few steps how these continue.
            firsts, lengths = generator.integers(8, size=16), generator.integers(2, 6, size=16)
            pairs = zip(firsts.tolist(), lengths.tolist(), strict=True)
            lines = [[3 + (first + place) % 8 for place in range(length)] for first, length in pairs]
            memory = model.encode(Ragged.from_lists([[*line, EOS] for line in lines]))
            logits = model.decode(Ragged.from_lists([[BOS, *line] for line in lines]), memory)
            labels = torch.tensor([token for line in lines for token in [*line, EOS]])
            loss = torch.nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    save_model(model, str(folder / "weights.safetensors"))
    (folder / "loss.txt").write_text(str(float(loss.detach())))


def fitting(model, ids, length):
    """Turn ids of a vocabulary into outputs that the model can give for a source of this length."""
    return [1 + one % length for one in ids] if isinstance(model, PointingModel) else list(ids)


def extras_for(model, source):
    """Characters of the words, if the model reads them: the same ones for the same word."""
    if "characters" not in model.extras:
        return {}
    spelled = torch.stack([source.values % CHARACTERS, source.values % 3, source.values % 2], dim=1)
    return {"characters": Ragged(spelled, source.layout)}


def batch_for(model, sources, targets):
    """Return a batch of the model's task, made of pairs of sequences of ids."""
    if isinstance(model, Tagger | Classifier | MaskedLm):
        source = Ragged.from_lists(sources)
        if isinstance(model, Tagger | MaskedLm):
            labels = Ragged(source.values % LABELS, source.layout)
        else:
            labels = Ragged(torch.tensor([sum(ids) % LABELS for ids in targets]), Layout([1] * len(targets)))
        return Batch(source, None, labels, labels.layout.total, extras_for(model, source))
    if isinstance(model, Han):
        return documents([[ids[:2], ids[2:]] if ids[2:] else [ids] for ids in sources], targets)
    if isinstance(model, BinaryModel):
        source = Ragged.from_lists(sources)
        return Batch(source, None, Ragged(source.values % 2, source.layout), source.layout.total)
    if isinstance(model, PointingModel):
        outputs = [[*fitting(model, t, len(s)), END] for s, t in zip(sources, targets, strict=True)]
        labels = Ragged.from_lists(outputs)
        return Batch(Ragged.from_lists(sources), shift_right(labels, END), labels, labels.layout.total)
    if isinstance(model, StoryModel):
        # Sentences of two words; the last one is the question.
        stories = [[ids[at : at + 2] for at in range(0, len(ids), 2)] for ids in sources]
        return story_batch(stories, [sum(ids) % LABELS for ids in targets])
    if isinstance(model, Decoder):
        labels = Ragged.from_lists([[*ids, EOS] for ids in targets])
        read = shift_right(labels, BOS)
        return Batch(read, read, labels, labels.layout.total)
    return make_batch(sources, targets)


def story_batch(stories, answers=None):
    """Return a batch of stories, given as the ids of sentences of which the last is the question."""
    columns = story_columns(
        [EncodedStory([], ids) for ids in stories], [[one] for one in answers or [0] * len(stories)]
    )
    return QuestionAnsweringTask.collate(None, columns, np.arange(len(stories)))


def documents(sentences, targets):
    """Return a batch of documents, given as lists of sentences."""
    source = Ragged.from_lists([ids for document in sentences for ids in document])
    labels = Ragged(torch.tensor([sum(ids) % LABELS for ids in targets]), Layout([1] * len(targets)))
    lengths = Ragged.from_lists([[len(ids) for ids in document] for document in sentences])
    return Batch(source, None, labels, len(targets), {SENTENCES: lengths})


@pytest.fixture(scope="package", autouse=True)
def one_blas():
    """Products of one BLAS: on an Arm CPU the other one takes most of the time of so small products."""
    with own_blas(torch.device("cpu"), torch.float32):
        yield


@pytest.fixture(params=tables_of(Model), scope="module")
def any_table(request):
    """The `[model]` table of any model. The tests of a file with the same one follow each other."""
    return request.param


@pytest.fixture
def any_model(any_table):
    return small(any_table)


@pytest.fixture(params=VARIANTS)
def family(request):
    """One model per family, for what does not depend on the variant."""
    return small(next(table for table in ALL.values() if table["kind"] == request.param))


@pytest.fixture(params=tables_of(Seq2Seq), scope="module")
def model(request):
    """A model that outputs one token after another. Tests share it, so none may change it, and follow each other."""
    made = shared(request.param)
    before = [one._version for one in made.state_dict(keep_vars=True).values()]
    yield made
    assert before == [one._version for one in made.state_dict(keep_vars=True).values()] and not made.training


@pytest.fixture(params=tables_of(NonAutoregressive))
def non_autoregressive(request):
    return small(request.param)


SOURCES = [[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2]]


@pytest.fixture
def source():
    return Ragged.from_lists(SOURCES)


@pytest.fixture
def target(model):
    """What the decoder reads: the first token, and outputs that fit the sources."""
    outputs = [[4, 9, 3], [7, 7, 7, 8, 3], [5]]
    return Ragged.from_lists(
        [[model.bos, *fitting(model, ids, len(source))] for source, ids in zip(SOURCES, outputs, strict=True)]
    )
