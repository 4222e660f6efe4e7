"""Pointing: elements and positions, what is refused, and the laws that search relies on."""

import numpy as np
import pytest
import torch

import regard
from regard.config import SearchOptions
from regard.data.batch import shift_right
from regard.data.ragged import Layout, Ragged
from regard.errors import CheckpointError, ConfigError, DataError, DecodeError
from regard.explain.trace import TraceOptions
from regard.models.pointer import END
from regard.models.pointer_lstm import PointerLstm
from regard.recipe_files import load_recipe
from regard.storage.folder import Folder
from regard.tasks import task_of
from regard.tasks.corpus import TextPairs
from regard.tasks.pointing import ElementCodec, numbers_of
from regard.text.corpus import Pair
from regard.text.elements import parse_elements, parse_positions
from regard.text.generators import generate

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
SMALL = {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24}
VARIANTS = [
    {},
    {"norm_order": "pre"},
    {"positions": "rotary", "decoder_layers": 1},
    {"positions": "learned", "max_positions": 16},
    {"window": 1},
    {"positions": "none", "frequencies": 3},
]
LSTMS = [{"num_layers": 1}, {"num_layers": 2, "frequencies": 2}]


def task(*overrides):
    return task_of(load_recipe("sort-numbers", overrides))


def codec_of(one, *pairs):
    return one.fit(TextPairs([Pair(*pair) for pair in pairs]))


@pytest.fixture(params=[*VARIANTS, *LSTMS], ids=str)
def model(request):
    return small(request.param)


def small(options):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        if options in LSTMS:
            return PointerLstm(input_width=2, width=16, hidden=24, **options).eval()
        return regard.Pointer(input_width=2, **SMALL, **options).eval()


@pytest.fixture
def source():
    values = torch.rand(9, 2, generator=torch.Generator().manual_seed(1))
    return Ragged(values, Layout([4, 2, 3]))


def scores(model, source, target):
    with torch.no_grad():
        return model.decode(target, model.encode(source))


# Laws


@pytest.mark.parametrize("beams", [1, 3])
def test_one_position_at_a_time_equals_all_at_once(model, source, beams):
    # Positions 1 and 2 exist in every sentence.
    tokens = torch.randint(1, 3, (3 * beams, 4), generator=torch.Generator().manual_seed(5))
    tokens[:, 0] = END
    parts = [part for part in source.split() for _ in range(beams)]
    repeated = Ragged(torch.cat(parts), Layout([len(part) for part in parts]))
    expected = scores(model, repeated, Ragged.from_lists(tokens.tolist())).view(3 * beams, 4, -1)
    with torch.no_grad():
        state = model.start(model.encode(source), beams=beams)
        torch.testing.assert_close(model.step(tokens[::beams, 0], state), expected[::beams, 0], **CLOSE)
        state.expand_beams()
        for place in range(1, 4):
            torch.testing.assert_close(model.step(tokens[:, place], state), expected[:, place], **CLOSE)


def test_reordered_rows_continue_as_if_they_had_always_been_there(model, source):
    generator, beams = torch.Generator().manual_seed(7), 2
    prefixes, sentences = [[END] for _ in range(6)], [0, 0, 1, 1, 2, 2]
    with torch.no_grad():
        state = model.start(model.encode(source), beams=beams)
        model.step(torch.tensor([END] * 3), state)
        state.expand_beams()
        # The second sentence is dropped on the way.
        for rows in ([1, 0, 2, 2, 5, 5], [1, 1, 4, 5], [0, 1, 3, 2]):
            state.reorder(torch.tensor(rows))
            tokens = torch.randint(1, 3, (len(rows),), generator=generator)
            prefixes = [[*prefixes[row], token] for row, token in zip(rows, tokens.tolist(), strict=True)]
            sentences = [sentences[row] for row in rows]
            parts = [source.split()[number] for number in sentences]
            again = Ragged(torch.cat(parts), Layout([len(part) for part in parts]))
            target = Ragged.from_lists(prefixes)
            expected = torch.stack([one[-1] for one in Ragged(scores(model, again, target), target.layout).split()])
            torch.testing.assert_close(model.step(tokens, state), expected, **CLOSE)


def test_columns_that_a_sentence_does_not_have_are_impossible(model, source):
    found = Ragged(scores(model, source, Ragged.from_lists([[END]] * 3)), Layout([1] * 3)).split()
    possible = [torch.isfinite(one)[0].sum().item() for one in found]
    assert possible == [5, 3, 4]  # the elements and the end


def test_no_output_sees_its_future_and_neighbours_change_nothing(model, source):
    target = Ragged.from_lists([[END, 1, 4, 2], [END, 2], [END, 3, 1]])
    found = Ragged(scores(model, source, target), target.layout).split()
    changed = Ragged.from_lists([[END, 1, 3, 3], [END, 2], [END, 3, 1]])
    after = Ragged(scores(model, source, changed), target.layout).split()
    assert torch.equal(found[0][:2], after[0][:2]) and not torch.allclose(found[0][2:], after[0][2:])
    for number, (part, ids) in enumerate(zip(source.split(), target.split(), strict=True)):
        alone = scores(model, Ragged(part, Layout([len(part)])), Ragged.from_lists([ids.tolist()]))
        torch.testing.assert_close(found[number][:, : len(part) + 1], alone, **CLOSE)


@pytest.mark.parametrize("beam", [1, 4])
def test_search_does_not_depend_on_the_batch(model, source, beam):
    options = SearchOptions(beam=beam, max_length=6)
    together = regard.search(model, source, options=options)
    for number, part in enumerate(source.split()):
        (alone,) = regard.search(model, Ragged(part, Layout([len(part)])), options=options)
        assert [one.ids for one in together[number]] == [one.ids for one in alone]
        assert all(0 < id <= len(part) for id in alone[0].ids)


def test_the_loss_is_that_of_the_scores(model, source):
    labels = Ragged.from_lists([[1, 4, END], [2, END], [END]])
    batch = regard.Batch(source, shift_right(labels, END), labels, labels.layout.total)
    logp = scores(model, source, batch.target).log_softmax(dim=-1)
    torch.testing.assert_close(model(batch), -logp.gather(1, labels.values[:, None]).sum(), **CLOSE)


# Restricted outputs


@pytest.mark.parametrize("build", [regard.Pointer, PointerLstm])
@pytest.mark.parametrize("beam", [1, 3])
def test_search_finds_only_possible_outputs(build, beam, source):
    sizes = SMALL if build is regard.Pointer else {"width": 16, "hidden": 24}
    for outputs in ("distinct", "permutation"):
        for hypotheses in regard.search(
            build(input_width=2, outputs=outputs, **sizes).eval(), source, options=SearchOptions(beam=beam, nbest=beam)
        ):
            for ids in (one.ids for one in hypotheses):
                assert len(set(ids)) == len(ids)
        for part, hypotheses in zip(
            source.split(),
            regard.search(
                build(input_width=2, outputs=outputs, **sizes).eval(), source, options=SearchOptions(beam=beam)
            ),
            strict=True,
        ):
            least = len(part) if outputs == "permutation" else min(3, len(part))
            assert least <= len(hypotheses[0].ids) <= len(part)


@pytest.mark.parametrize("build", [regard.Pointer, PointerLstm])
def test_steps_exclude_what_decoding_at_once_excludes(build, source):
    sizes = SMALL if build is regard.Pointer else {"width": 16, "hidden": 24}
    model = build(input_width=2, outputs="permutation", **sizes).eval()
    target = Ragged.from_lists([[END, 2, 1, 4, 3], [END, 2, 1, 1, 2], [END, 3, 1, 2, 1]])
    expected = scores(model, source, target).view(3, 5, -1)
    # The first sentence has four elements: four are left, then three, and after all of them the end.
    assert [torch.isfinite(row).nonzero()[:, 0].tolist() for row in expected[0]] == [
        [1, 2, 3, 4],
        [1, 3, 4],
        [3, 4],
        [3],
        [0],
    ]
    with torch.no_grad():
        state = model.start(model.encode(source), beams=1)
        for place in range(5):
            tokens = target.values.view(3, 5)[:, place]
            torch.testing.assert_close(model.step(tokens, state), expected[:, place], **CLOSE)


def test_training_examples_that_are_no_possible_output_are_refused():
    one = task("model.outputs=permutation")
    codec = codec_of(one, ("0.5 0.1", "1 0"))
    model = regard.Pointer(input_width=1, outputs="permutation", **SMALL)
    one.check(one.encode([Pair("0.5 0.1", "1 0"), Pair("0.5", "0")], codec), model, print)
    for wrong in ("0 0", "1"):
        columns = one.encode([Pair("0.5 0.1", "1 0"), Pair("0.5 0.1", wrong)], codec)
        with pytest.raises(
            DataError, match=r"^the target of example 2 is not a valid output for model\.outputs=permut"
        ):
            one.check(columns, model, print)


# Elements and positions


@pytest.mark.parametrize("options", [{"input_order": False}, {"positions": "none"}], ids=str)
def test_without_the_order_of_the_input_its_elements_can_be_in_any_order(options):
    """The scores of a permuted input are those of the input, permuted; the first column is the end."""
    order = torch.tensor([2, 0, 3, 1])
    points = torch.rand(4, 2, generator=torch.Generator().manual_seed(1))
    read = Ragged.from_lists([[END]])

    def scores(model, points):
        return model.decode(read, model.encode(Ragged(points, Layout([4]))))[0]

    model = small(options)
    first, permuted = scores(model, points), scores(model, points[order])
    torch.testing.assert_close(permuted[1:], first[1:][order], **CLOSE)
    model = small({})
    assert not torch.allclose(scores(model, points[order])[1:], scores(model, points)[1:][order], **CLOSE)


def test_every_triangulation_of_the_corpus_is_short_enough_to_be_found():
    one = task("evaluate.positions=triangles")
    options = {"min_points": 31, "max_points": 32, "count": 20}
    pairs = list(generate("delaunay/test", options))
    predictor = one.predictor(small({}), ElementCodec(2, None))
    longest = max(len(pair.target.split()) for pair in pairs)
    # Three of 32 points at the corners of the square would have 2 * 32 - 5 triangles.
    assert 31 + 50 < longest <= 3 * (2 * 32 - 5)
    assert predictor.options.limit(3) >= longest
    assert one.predictor(small({}), ElementCodec(2, None), greedy=True).options.beam == 1


def test_dev_examples_that_the_model_cannot_output_are_refused(tmp_path):
    (tmp_path / "train.tsv").write_text("0.5 0.1\t1 0\n")
    (tmp_path / "dev.tsv").write_text("0.5 0.1\t1 0\n0.5 0.1\t1 1\n")
    files = [
        f"data.{part}={{ pairs = '{tmp_path}/{name}.tsv' }}" for part, name in (("train", "train"), ("valid", "dev"))
    ]
    with pytest.raises(DataError, match="in the dev set, the target of example 2 is not a valid output"):
        regard.train("sort-numbers", out=tmp_path / "run", overrides=[*files, "model.outputs=permutation"])
    assert not (tmp_path / "run").exists()


def test_many_lines_are_parsed_as_each_of_them():
    one, pairs = task(), [Pair("0.25,5e-1 -1,2", "1 0"), Pair("1,2", "0"), Pair("3,4 5,6 7,8", "2")]
    codec = codec_of(one, *pairs)
    columns = one.encode(pairs, codec)
    assert columns["source"].values.dtype == np.float32 and columns["labels"].values.dtype == np.int32
    assert [columns["source"][row] for row in range(3)] == [codec.encode(pair.source).tolist() for pair in pairs]
    assert [columns["labels"][row] for row in range(3)] == [[2, 1], [1], [3]]
    # Two spaces are not the plain form, but mean the same.
    again = one.encode([Pair(pairs[0].source.replace(" ", "  "), "1  0"), *pairs[1:]], codec)
    assert np.array_equal(again["source"].values, columns["source"].values)
    for odd in ("1 2,3,4", "1,2 3", "1,2,", "1,2 x,y", "1,2 nan,1", "1,2 1e300,0"):
        assert parse_elements([odd], 2) is None
    for odd in ("1  2", "-1", "1.0", "", "0" * 10):
        assert parse_positions([odd]) is None


def test_positions_outside_the_input_are_refused():
    one = task()
    codec = codec_of(one, ("0.5 0.1", "1 0"))
    for wrong in ("0 2", "-1", "0 x", "1.0", "99999999999999999999"):
        with pytest.raises(DataError, match=r"example 2 has positions '.*'; they must be numbers from 0 to 1"):
            one.encode([Pair("0.5 0.1", "1 0"), Pair("0.5 0.1", wrong)], codec)


def test_labels_are_positions_plus_one_and_end():
    one = task()
    codec = codec_of(one, ("0.5 0.1", "1 0"))
    batch = one.collate(one.encode([Pair("0.5 0.1 0.3", "1 2 0"), Pair("0.2", "0")], codec), np.arange(2))
    assert batch.labels.as_lists() == [[2, 3, 1, END], [1, END]]
    assert batch.target.as_lists() == [[END, 2, 3, 1], [END, 1]]
    assert batch.source.values.shape == (4, 1) and batch.num_tokens == 6


def test_elements_are_numbers_points_or_words():
    assert numbers_of("0.25") == [0.25] and numbers_of("1,-2e3") == [1.0, -2000.0]
    assert numbers_of("nan") is numbers_of("inf") is numbers_of("word") is numbers_of("1,") is None
    one = task()
    assert one.sizes(codec_of(one, ("1 2", "0"))) == {"input_width": 1}
    points = codec_of(one, ("1,2 3,4", "0"))
    assert one.sizes(points) == {"input_width": 2}
    assert points.encode("1,2 3,4").tolist() == [[1.0, 2.0], [3.0, 4.0]]
    words = codec_of(one, ("b a", "0"))
    assert one.sizes(words) == {"source_size": words.tokenizer.size} and words.encode("a b").shape == (2,)


def test_elements_that_do_not_fit_are_refused():
    one = task()
    numbers = codec_of(one, ("1 2", "0"))
    for wrong in ("1 a", "1,2 3,4", "1 nan"):
        with pytest.raises(DataError, match="not a line of elements of 1 numbers each"):
            numbers.encode(wrong)
    with pytest.raises(DataError, match="too large for float32"):
        numbers.encode("1 1e300")
    subwords = codec_of(task("tokenizer.kind=char"), ("ab c", "0"))
    with pytest.raises(DataError, match=r"set tokenizer\.kind=word"):
        subwords.encode("ab c")


def test_a_pointer_reads_ids_or_vectors():
    with pytest.raises(ConfigError, match="either ids"):
        regard.Pointer(**SMALL)
    with pytest.raises(ConfigError, match="either ids"):
        regard.Pointer(source_size=5, input_width=1, **SMALL)


# In use


def test_an_output_may_be_as_long_as_the_input():
    one = task("decode.max_extra=0")
    codec = codec_of(one, ("0.5 0.1", "1 0"))

    class Forward(regard.Pointer):
        """Points at each element in turn, and ends after the last."""

        def step(self, tokens, state):
            scores = super().step(tokens, state)
            following = (tokens + 1) % scores.size(1)
            return torch.full_like(scores, -50.0).scatter(1, following[:, None], 0.0)

    predictor = one.predictor(Forward(input_width=1, **SMALL).eval(), codec)
    assert predictor.predict(["0.5 0.1 0.7", "", "0.5 0.1 0.9"]) == ["0 1 2", "", "0 1 2"]


def test_options_that_a_call_does_not_give_are_those_of_the_recipe(monkeypatch):
    one, used = task("decode.length_penalty=0.3", "decode.beam=2"), []
    codec = codec_of(one, ("0.5 0.1", "1 0"))
    monkeypatch.setattr("regard.tasks.predictor.search_all", lambda *parts, options: used.append(options) or iter(()))
    predictor = one.predictor(regard.Pointer(input_width=1, **SMALL).eval(), codec)
    for options in (None, SearchOptions(beam=3)):
        predictor.predict(["0.5 0.1"], options=options)
    assert [(each.beam, each.length_penalty) for each in used] == [(2, 0.3), (3, 0.3)]


@pytest.mark.parametrize("options", [{"mbr": "chrf"}, {"coverage_penalty": 0.1}])
def test_options_that_choose_among_translations_are_refused(options):
    one = task()
    predictor = one.predictor(regard.Pointer(input_width=1, **SMALL).eval(), codec_of(one, ("0.5 0.1", "1 0")))
    with pytest.raises(DecodeError, match="choose among translations; this task has none"):
        predictor.predict(["0.5 0.1"], options=SearchOptions(**options))


def test_an_input_that_is_too_long_is_cut_with_a_warning():
    one, warnings = task(), []
    codec = codec_of(one, ("0.5 0.1", "1 0"))
    model = regard.Pointer(input_width=1, positions="learned", max_positions=4, **SMALL).eval()
    predictor = one.predictor(model, codec, warn=warnings.append)
    (output,) = predictor.predict(["0.1 0.2 0.3 0.4 0.5"])
    assert {int(position) for position in output.split()} <= {0, 1, 2}
    assert warnings == ["line 1 has 5 elements; only the first 3 are used"]
    with pytest.raises(DecodeError, match="the input has 5 elements; this model takes at most 3"):
        one.trace(predictor, "0.1 0.2 0.3 0.4 0.5", TraceOptions())


def test_a_codec_is_loaded_as_it_was_saved_and_damage_is_reported(tmp_path):
    one = task()
    codec_of(one, ("1,2 3,4", "0")).save(Folder(tmp_path))
    assert one.load_codec(Folder(tmp_path)).width == 2
    for damaged in ('{"width": 100000}', '{"width": "2"}', "[]"):
        (tmp_path / "elements.json").write_text(damaged)
        with pytest.raises(CheckpointError, match=r"elements\.json is damaged"):
            one.load_codec(Folder(tmp_path))


@pytest.mark.parametrize("positions", ["0000000009", "0" * 5000, "3", "-1", "1.0", "\u0663"])
def test_positions_that_are_none_are_refused(positions):
    one = task()
    codec = codec_of(one, ("0.1 0.2 0.3", "0 1 2"))
    with pytest.raises(DataError, match="example 1 has positions"):
        one.encode([Pair("0.1 0.2 0.3", positions)], codec)


def test_a_model_that_has_diverged_is_one_sentence():
    one = task()
    codec = codec_of(one, ("0.1 0.2", "0 1"))
    broken = regard.Pointer(input_width=1, **SMALL).eval()
    with torch.no_grad():
        broken.query.weight.fill_(float("nan"))
    with pytest.raises(DecodeError, match="not finite"):
        one.predictor(broken, codec).predict(["0.1 0.2"], options=SearchOptions(beam=3))
