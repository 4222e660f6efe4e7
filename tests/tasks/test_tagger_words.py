"""A tagger that reads characters and tags, with a conditional random field."""

import msgspec
import pytest
import torch

from regard.config import Bitext
from regard.errors import ConfigError, DataError
from regard.explain.trace import TraceOptions
from regard.models.tagger import Tagger
from regard.recipe_files import load_recipe
from regard.storage.folder import Folder
from regard.tasks import task_of
from regard.tasks.corpus import TextPairs
from regard.tasks.recipe_checks import resolve
from regard.tasks.setup import fresh_model
from regard.text.corpus import Pair

TRAIN = TextPairs([Pair("The|D dog|N barks|V", "B-NP I-NP B-VP"), Pair("Cats|N sleep|V", "B-NP B-VP")])


def task(*overrides):
    small = ["model.width=16", "model.num_heads=2", "model.hidden=16", "model.num_layers=1"]
    options = ["model.characters=4", "model.crf=true", "model.word_dropout=0.5", *overrides]
    recipe = load_recipe("runs", [*small, *options])
    bitext = Bitext(source="a", target="b", tags="c")
    data = msgspec.structs.replace(recipe.data, train=bitext)
    return task_of(resolve(msgspec.structs.replace(recipe, data=data)))


def test_words_are_lower_cased_and_characters_are_not(tmp_path):
    one = task()
    codec = one.fit(TRAIN)
    assert "the" in codec.tokenizer.tokens(range(codec.tokenizer.size)) and {"T", "C"} <= set(codec.words.characters)
    codec.save(Folder(tmp_path))
    loaded = one.load_codec(Folder(tmp_path))
    assert loaded.words == codec.words and one.sizes(loaded)["num_tags"] == 3
    columns = one.encode([Pair("the|D Dog|N", "B-NP I-NP")], codec)
    assert columns["characters"].values.shape == (2, 4) and columns["tags"][0] == [0, 1]


def test_outputs_do_not_depend_on_the_other_texts_and_are_the_best_sequence():
    one = task()
    codec = one.fit(TRAIN)
    model = fresh_model(one.recipe, one.sizes(codec), added=0).eval()
    with torch.no_grad():
        for parameter in model.crf.parameters():
            parameter.normal_()
    predictor = one.predictor(model, codec)
    texts = ["The|D dog|N barks|V", "", "Unknown|N", "dogs|N bark|V"]
    outputs = predictor.predict(texts)
    assert [len(output.split()) for output in outputs] == [3, 0, 1, 2]
    assert outputs == [predictor.predict([text])[0] for text in texts]
    trace = one.trace(predictor, texts[0], TraceOptions(alternatives=2))
    assert trace.target.text == outputs[0] and [picture.name for picture in trace.pictures] == ["transitions"]
    for probability, others in zip(trace.probabilities, trace.alternatives, strict=True):
        # There are three labels.
        assert probability + sum(other.probability for other in others) == pytest.approx(1, abs=1e-5)


def test_mistakes_are_refused():
    with pytest.raises(ConfigError, match=r"set tokenizer\.kind=word"):
        task("tokenizer.kind=bpe").fit(TRAIN)
    one = task()
    codec = one.fit(TRAIN)
    with pytest.raises(DataError, match="has none that it knows"):
        one.predictor(fresh_model(one.recipe, one.sizes(codec), added=0).eval(), codec).predict(["dogs bark"])


def test_a_conditional_random_field_over_too_many_labels_is_refused():
    with pytest.raises(ConfigError, match="2,000 labels; a conditional random field takes at most 1,000"):
        Tagger(source_size=5, num_labels=2000, width=8, num_layers=1, num_heads=1, hidden=8, crf=True)
