"""The result of a study whose cells are made up, its tables and its figure."""

import re
import shutil
import subprocess
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from regard.errors import ConfigError, DataError
from regard.explain.figures import pyplot
from regard.metrics.significance import Sampling
from regard.study.cells import OUTPUTS, Cell, cell_of, outputs_name, read_record
from regard.study.result.collected import collect
from regard.study.result.deriving import rounded, spread
from regard.study.result.figure import draw_study, make_figure
from regard.study.result.notes import notes
from regard.study.result.sentence_statistics import SENTENCE_METRICS, WIDTHS, sentence_metric
from regard.study.result.table_formats import as_latex, as_markdown, as_text, latex
from regard.study.result.tables import show_p
from regard.study.same_text import refuse_other_text
from tests.study.synthetic import STUDY, make_cells, write_study

QUICK = Sampling(trials=200)
needs_pdflatex = pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed (Debian: texlive-latex-base)"
)
ODD = "N_{1} & <x> 100 % ~^# \\\\"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a study and its cells, whose records have all metrics."""
    folder = tmp_path_factory.mktemp("study")
    make_cells(write_study(folder)[1], folder / "out")
    return folder


def with_metric(folder, metric):
    """What there is of the study if another metric is tested."""
    return collect(write_study(folder, STUDY.replace('metric = "bleu"', f'metric = "{metric}"'))[1], folder / "out")


@pytest.fixture(scope="module")
def collected(folder):
    return with_metric(folder, "bleu")


@pytest.fixture(scope="module")
def result(collected):
    return collected.result(QUICK)


# Numbers


def test_the_deviation_is_that_of_a_sample():
    assert spread([1.0, 2.0, 3.0]).deviation == 1.0
    assert spread([5.0]).deviation is None


def test_a_row_is_the_mean_of_its_seeds_and_is_compared_with_the_baseline(collected, result):
    records = {(one.row, one.seed): one for one in collected.records if one.seed in collected.study.seeds}
    scores = {row: [records[row, seed].score("test", "bleu") for seed in (1, 2, 3)] for row in ("base", ODD)}
    found = result.row(ODD).sets[1]
    assert found.test == "test"
    assert found.scores["bleu"].mean == pytest.approx(np.mean(scores[ODD]), rel=1e-5)
    assert found.compared.change == pytest.approx(np.mean(scores[ODD]) - np.mean(scores["base"]), rel=1e-5)
    assert result.row("base").sets[1].compared is None


def test_many_wrong_tokens_are_significant_and_a_second_try_is_not(result):
    assert [one.compared.verdict for one in result.row(ODD).sets] == ["worse", "worse"]
    assert [one.compared.verdict for one in result.row("same | again").sets] == ["same", "same"]
    worse = result.row(ODD).sets[1].compared
    assert worse.p_sentences == pytest.approx(1 / 201, rel=1e-4)
    assert worse.p_sentences_corrected == pytest.approx(3 / 201, rel=1e-4)  # Holm: the smallest of three


def test_scores_by_length_are_those_of_the_sentences_with_such_references(folder, collected, result):
    references = [line.split("\t")[1] for line in (folder / "test.tsv").read_text(encoding="utf-8").splitlines()]
    groups = result.by_length["test"]
    assert (
        sum(group.sentences for group in groups) == len(references) == 40 and len(groups) == 4
    )  # of 10 or about so many
    for group in groups:
        part = [n for n, text in enumerate(references) if group.shortest <= len(text.split()) <= group.longest]
        assert len(part) == group.sentences
        scores = []
        for record in (one for one in collected.records if one.row == ODD and one.seed in (1, 2, 3)):
            outputs = (cell_of(record).folder(folder / "out") / OUTPUTS).load_text(outputs_name("test")).splitlines()
            mine = [outputs[n] for n in part], [[references[n] for n in part]]
            scores.append(BLEU(force=True).corpus_score(*mine).score)
        assert group.scores[ODD] == pytest.approx(np.mean(scores), rel=1e-5)
    assert "BLEU on test by tokens of the reference (sentences)" in as_text(result)


def test_without_one_length_for_each_sentence_there_are_no_scores_by_length(folder, collected):
    """chrF has no lengths; of several references, each output has the length of the nearest one."""
    assert with_metric(folder, "chrf").result(QUICK).by_length == {"valid": [], "test": []}
    other = {place: counted.copy() for place, counted in collected.statistics.items()}
    other["base", 1, "test"][0, 1] += 1
    found = replace(collected, statistics=other).result(QUICK).by_length
    assert found["test"] == [] and found["valid"]


def test_a_candidate_whose_seed_joins_those_of_the_study_has_not_ended(folder, collected):
    """It was scored on the dev set alone; with its seed in the means, it needs scores on the test set."""
    cell = Cell("same | again", {"train.lr": 0.002}, 0)
    assert [one.name for one in read_record(collected.study, cell, folder / "out").tests] == ["valid"]
    joined = msgspec.structs.replace(collected.study, seeds=(0, 1))
    assert read_record(joined, cell, folder / "out") is None
    assert read_record(joined, replace(cell, seed=1), folder / "out") is not None


def test_a_chosen_value_at_an_edge_of_those_tried_is_named(result):
    edges = [note for note in notes(result) if note.startswith("Chosen values at the edge")]
    assert len(edges) == 1 and edges[0].endswith("may score higher: same | again lr 0.002 (largest).")


def test_candidates_are_shown_with_their_scores_on_the_dev_set(result):
    first, second = result.row("same | again").candidates
    assert (first.settings, first.chosen) == ({"train.lr": 0.001}, False)
    assert (second.settings, second.chosen) == ({"train.lr": 0.002}, True)
    assert second.score > first.score
    assert result.row("base").candidates == []
    assert result.row("alike").candidates == []
    assert result.row("alike").chosen == {"train.lr": 0.002}


def test_the_direction_of_published_scores_is_compared(result):
    found = result.row(ODD).sets[1].published["bleu"]
    assert found.change == pytest.approx(24.1 - 25.8)
    assert found.same_direction
    assert result.row("base").sets[1].published["perplexity"].change is None


def test_a_direction_is_called_opposite_only_if_ours_is_significant(result, tmp_path):
    # Another try of the same is published as better; ours differs by chance.
    same = result.row("same | again").sets
    assert [one.published["bleu"].same_direction for one in same] == [None, None]
    assert "opposite" not in as_text(result)
    _, study = write_study(tmp_path, STUDY.replace("bleu = 24.1 }", "bleu = 26.9, perplexity = 4.0 }"))
    make_cells(study, tmp_path / "out")
    found = collect(study, tmp_path / "out").result(QUICK)
    assert found.row(ODD).sets[1].published["bleu"].same_direction is False
    assert found.row(ODD).sets[1].published["perplexity"].same_direction is None, "it is not tested"
    assert "26.9 (+1.1) opposite" in as_text(found)


def test_the_cost_counts_all_cells_and_divides_what_they_shared(result):
    assert result.cost.cells == 14
    assert result.cost.hours == pytest.approx(14 * 90 / 3600, rel=1e-5)
    assert result.cost.device_hours == pytest.approx(14 * 45 / 3600, rel=1e-5)
    assert "Device hours are an estimate" in as_text(result)


def test_an_unfinished_study_shows_what_there_is(tmp_path):
    _, study = write_study(tmp_path)
    make_cells(study, tmp_path / "out", states={(ODD, 2): "diverged"})
    lost = Cell("base", {}, 3).folder(tmp_path / "out")
    shutil.rmtree(lost.path)
    found = collect(study, tmp_path / "out").result(QUICK)
    assert not found.complete
    assert found.row(ODD).sets[1].scores["bleu"].seeds == 2
    # The baseline has seeds 1 and 2, the row 1 and 3: one in common is too few for a test over seeds.
    assert found.row(ODD).sets[1].compared.p_seeds is None
    assert found.row(ODD).sets[1].compared.verdict == "unclear"
    text = as_text(found)
    assert "seed 2 diverged: the loss is not finite" in text
    assert "base: seed 3 is missing" in text


def test_candidates_that_have_all_diverged_are_final_and_those_that_failed_are_not(folder):
    collected = with_metric(folder, "bleu")

    def problems(*states):
        left = iter(states)
        records = [
            msgspec.structs.replace(one, state=next(left)) if one.seed == 0 else one
            for one in collected.records
            if one.row == "base" or one.seed == 0
        ]
        found = replace(collected, records=records).result(Sampling(trials=1))
        return {row: found.row(row).problems[-1] for row in ("same | again", "alike")}

    final = "no candidate can be chosen, because none has finished with a score on the dev set"
    assert problems("diverged", "diverged") == {"same | again": final, "alike": final}
    failed = "no candidate is chosen yet, because lr 0.002 failed"
    assert problems("finished", "failed") == {"same | again": failed, "alike": failed}


def test_a_study_is_complete_although_a_candidate_diverged(collected):
    assert collected.result(Sampling(trials=1)).complete

    def complete(state):
        records = [
            msgspec.structs.replace(one, state=state, tests=[])
            if one.seed == 0 and one.candidate == {"train.lr": 0.001}
            else one
            for one in collected.records
        ]
        return replace(collected, records=records).result(Sampling(trials=1)).complete

    assert complete("diverged")
    assert not complete("failed"), "a later command tries it again"


def test_a_result_has_no_more_trials_than_a_check_repeats(collected):
    with pytest.raises(ConfigError, match="trials is 500,000; at most 100,000 are possible in a study"):
        collected.result(Sampling(trials=500_000))


@pytest.mark.slow
def test_statistics_are_kept_and_counted_again_if_they_are_damaged(tmp_path):
    _, study = write_study(tmp_path)
    make_cells(study, tmp_path / "out")
    told = []
    first = collect(study, tmp_path / "out", tell=told.append)
    assert collect(study, tmp_path / "out", tell=told.append).statistics.keys() == first.statistics.keys()
    assert len(told) == 1
    kept = Cell("base", {}, 1).folder(tmp_path / "out") / "statistics"
    kept.save_bytes("test.bleu.tsv.gz", b"nothing")
    again = collect(study, tmp_path / "out", tell=told.append)
    assert len(told) == 2
    assert (again.statistics["base", 1, "test"] == first.statistics["base", 1, "test"]).all()


@pytest.mark.parametrize("name", SENTENCE_METRICS)
def test_sums_over_sentences_give_the_score_of_the_record(name, folder):
    found = with_metric(folder, name)
    metric = sentence_metric(name)
    record = next(one for one in found.records if (one.row, one.seed) == ("base", 2))
    statistics = found.statistics["base", 2, "test"]
    assert metric.score(statistics) == pytest.approx(record.score("test", name))
    assert metric.scores_of_sums(statistics.sum(axis=0, keepdims=True)) == pytest.approx(record.score("test", name))
    assert statistics.shape == (40, WIDTHS[name])
    assert metric.higher_is_better == found.result(Sampling(trials=1)).higher_is_better


def test_a_metric_without_sentences_is_tested_over_seeds_alone(folder):
    found = with_metric(folder, "perplexity").result(QUICK)
    compared = found.row(ODD).sets[1].compared
    assert compared.p_sentences is None
    assert compared.verdict == "worse"  # a higher perplexity


def test_numbers_keep_six_digits():
    assert rounded({"a": [1 / 3, 1e-9 / 3], "b": "x", "c": 1234567}) == {
        "a": [0.333333, 3.33333e-10],
        "b": "x",
        "c": 1234567,
    }


# Tables


def test_the_tables_show_means_changes_and_verdicts(result):
    text = as_text(result)
    base = result.row("base").sets[1].scores["bleu"]
    assert f"{base.mean:.2f} ± {base.deviation:.2f}" in text
    assert "no difference found" in text
    assert "24.1 (-1.7)" in text
    assert "lr 0.002" in text
    assert re.search(r"alike +D +dropout 0.3\n", text)
    assert "which are therefore optimistic" in text
    assert "0.35 hours" in text


def notes_of(result, *, p_seeds=True, p_sentences=True):
    """The notes of a result as if some tests were not possible."""

    def without(one):
        changes = {} if p_seeds else {"p_seeds": None, "pooled": None}
        changes |= {} if p_sentences else {"p_sentences": None}
        compared = None if one.compared is None else msgspec.structs.replace(one.compared, **changes)
        return msgspec.structs.replace(one, compared=compared)

    rows = [msgspec.structs.replace(row, sets=[without(one) for one in row.sets]) for row in result.rows]
    return "\n".join(notes(msgspec.structs.replace(result, rows=rows)))


def test_only_tests_that_were_made_are_explained(result):
    assert "Both are corrected" in notes_of(result)
    alone = notes_of(result, p_sentences=False)
    assert "p, seeds: row + seed" in alone and "p, sentences" not in alone and "a verdict needs it below 0.05" in alone
    alone = notes_of(result, p_seeds=False)
    assert (
        "p, seeds" not in alone and "p, sentences: approximate randomization" in alone and "is unclear without" in alone
    )
    assert "Changes are against base" in notes_of(result)
    one_row = "\n".join(notes(msgspec.structs.replace(result, rows=result.rows[:1])))
    assert "Changes are against" not in one_row and "Holm" not in one_row


def test_a_row_that_is_compared_alone_is_named(result):
    assert "of its own" not in notes_of(result)
    first, second, *others = result.rows
    one, other = second.sets
    alone = msgspec.structs.replace(other, compared=msgspec.structs.replace(other.compared, pooled=False))
    changed = msgspec.structs.replace(result, rows=[first, msgspec.structs.replace(second, sets=[one, alone]), *others])
    assert f"because it varies significantly more, has {ODD} on test." in notes_of(changed)


def test_tests_of_a_set_that_share_no_noise_are_named(result):
    """As if the baseline varied significantly more on this test set alone."""
    rows = [
        msgspec.structs.replace(
            row,
            sets=[
                one
                if one.test != "valid" or one.compared is None
                else msgspec.structs.replace(one, compared=msgspec.structs.replace(one.compared, pooled=False))
                for one in row.sets
            ],
        )
        for row in result.rows
    ]
    text = notes_of(msgspec.structs.replace(result, rows=rows))
    assert "On valid every row has a paired t-test of its own." in text and "varies significantly more" not in text


def test_without_other_rows_or_seeds_the_tables_say_nothing_of_them(result):
    alone = msgspec.structs.replace(result, rows=result.rows[:1])
    assert "baseline" not in as_text(alone) and "Means ± standard deviations over 3 seeds" in as_text(alone)
    assert "Scores of 1 seed (1); BLEU" in "\n".join(notes(msgspec.structs.replace(alone, seeds=[1])))


def test_settings_of_the_study_are_in_the_notes_by_their_keys(result):
    assert "Recipe toy.toml, with train.label_smoothing = 0.1." in notes_of(result)


def test_perplexities_of_rows_with_other_tokenizers_or_models_come_with_a_note(result):
    note = "Perplexities are comparable only between rows with the same tokenizer"
    assert note not in notes_of(result)
    first, *others = result.rows
    for settings in ({"recipe": "bytenet.toml"}, {"tokenizer.size": 300}, {"model.kind": "rnn"}):
        for odd in (msgspec.structs.replace(first, settings=settings), msgspec.structs.replace(first, chosen=settings)):
            assert note in notes_of(msgspec.structs.replace(result, rows=[odd, *others]))
    alike = [msgspec.structs.replace(row, settings={"model.kind": "rnn"}) for row in result.rows]
    assert note not in notes_of(msgspec.structs.replace(result, rows=alike))


def test_texts_begin_at_the_left_of_their_column_and_numbers_end_at_the_right(result):
    text = as_text(result)
    head = next(line for line in text.splitlines() if line.startswith("row ") and "verdict" in line)
    base = next(line for line in text.splitlines() if line.startswith("base ") and "baseline" in line)
    assert head.index("verdict") == base.index("baseline")
    assert head.index("BLEU") + len("BLEU") == re.search(r" ± \d+\.\d\d", base).end()
    markdown = as_markdown(result).splitlines()
    assert "|---|---:|---:|---:|---:|---:|---|---:|---:|" in markdown
    assert r"\begin{tabular}{lrrrrrlrr}" in as_latex(result)
    assert r"\begin{tabular}{llp{.7\textwidth}}" in as_latex(result), "settings, which may be long"


def test_a_name_cannot_break_out_of_a_cell_of_markdown(result):
    lines = as_markdown(result).splitlines()
    [row] = [line for line in lines if line.startswith("| same")][:1]
    head = lines[lines.index(next(line for line in lines if line.startswith("|---"))) - 1]
    assert row.replace("\\|", "").count("|") == head.count("|")


def test_small_p_values_are_bounds():
    assert [show_p(p) for p in (None, 0.0004, 0.05, 1.0)] == ["", "< 0.001", "0.050", "1.000"]


def test_latex_escapes_what_means_something_to_it():
    assert latex("a_b & 5 % -1.5 to-do {x}") == r"a\_b \& 5 \% $-$1.5 to-do \{x\}"
    assert latex("Ünü 中") == "Ünü {[}U+4E2D{]}"
    assert latex("\\input") == r"\textbackslash{}input"


@needs_pdflatex
def test_the_latex_compiles(result, tmp_path):
    everything = "".join(map(chr, [*range(32, 127), *range(0xA0, 0x180), 0x4E2D, 0x2212, 0x1F600]))
    rows = [
        msgspec.structs.replace(row, name=f"{start}{row.name}")
        for start, row in zip("中*[", result.rows[:3], strict=True)
    ]
    odd = msgspec.structs.replace(result, question=everything, rows=rows, baseline=rows[0].name)
    (tmp_path / "table.tex").write_text(as_latex(odd), encoding="utf-8")
    compile_latex(tmp_path)
    assert (tmp_path / "table.pdf").stat().st_size > 10_000


@needs_pdflatex
def test_long_names_of_rows_stay_on_the_page(result, tmp_path):
    first, *others = result.rows
    long = msgspec.structs.replace(
        first, name=" ".join(["word"] * 20), settings={"train.note": " ".join(["text"] * 80)}
    )
    tables = as_latex(msgspec.structs.replace(result, rows=[long, *others], baseline=long.name))
    (tmp_path / "table.tex").write_text(tables, encoding="utf-8")
    assert "Overfull" not in compile_latex(tmp_path)


def compile_latex(folder):
    """Compile table.tex, and return what pdflatex says of it."""
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


# Figure


def pixels(result):
    """The figure as an array [height, width, 3] of bytes."""
    plt = pyplot()
    figure = make_figure(plt, result)
    figure.canvas.draw()
    found = np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()
    plt.close(figure)
    return found


def with_verdict(result, verdict):
    """The result with another verdict of the second row on every test set."""
    first, second, *others = result.rows
    sets = [
        msgspec.structs.replace(one, compared=msgspec.structs.replace(one.compared, verdict=verdict))
        for one in second.sets
    ]
    return msgspec.structs.replace(result, rows=[first, msgspec.structs.replace(second, sets=sets), *others])


def test_the_figure_says_nothing_by_colour(result):
    pytest.importorskip("matplotlib")
    drawn = pixels(result).astype(int)
    assert (drawn.max(axis=2) == drawn.min(axis=2)).all()


@pytest.mark.slow
def test_verdicts_differ_in_a_grey_figure(result):
    pytest.importorskip("matplotlib")
    # The mark alone, without the legend, which has other words.
    greys = {}
    for verdict in ("better", "worse", "unclear", "same"):
        drawn = pixels(with_verdict(result, verdict)).mean(axis=2)
        greys[verdict] = drawn[: len(drawn) // 2]
    for one in greys:
        for other in greys:
            # At least a few pixels differ by more than half the range from black to white.
            differ = (np.abs(greys[one] - greys[other]) > 127).sum() if greys[one].shape == greys[other].shape else 0
            assert one == other or differ > 10, (one, other)


@pytest.mark.slow
def test_the_figure_is_the_same_bytes_each_time_and_has_both_formats(result):
    pytest.importorskip("matplotlib")
    found = draw_study(result)
    assert found["svg"].startswith(b"<?xml") and found["pdf"].startswith(b"%PDF")
    assert draw_study(result) == found


def test_cells_that_were_scored_on_other_pairs_are_refused(folder):
    collected = with_metric(folder, "bleu")
    first, *others = collected.records
    [one, *rest] = first.tests
    changed = msgspec.structs.replace(first, tests=[msgspec.structs.replace(one, sha256="0" * 64), *rest])
    refuse_other_text(collected.study, collected.records, collected.tests)
    with pytest.raises(DataError, match=f"have different pairs of {one.name}; put the data back"):
        refuse_other_text(collected.study, [changed, *others], collected.tests)


def test_cells_that_were_trained_on_other_text_are_refused_unless_their_rows_say_so(folder):
    collected = with_metric(folder, "bleu")
    study = collected.study

    def check(study=study, **corpora):
        """Rows with hashes of their training text, and the settings of data that a row has."""
        records = [
            msgspec.structs.replace(one, corpus={"train": digest}, settings={**one.settings, **settings})
            for one in collected.records
            for row, digest, settings in [(one.row, *corpora.get(one.row, ("a", {})))]
        ]
        refuse_other_text(study, records, collected.tests)

    check()
    refuse_other_text(study, collected.records, collected.tests)  # of an earlier version, without hashes
    check(alike=("b", {"data.max_length": 10}))
    with pytest.raises(DataError, match="do not have the same training text and dev set; put the data back, or"):
        check(alike=("b", {}))
    with_recipe = msgspec.structs.replace(study.rows["alike"], recipe="other.toml")
    check(msgspec.structs.replace(study, rows={**study.rows, "alike": with_recipe}), alike=("b", {}))


def test_dev_sets_that_are_not_reported_are_compared_within_a_row(folder):
    """Rows that train on other text may hold out other pairs of it."""
    collected = with_metric(folder, "bleu")
    records = collected.records

    def with_other_dev_set(record):
        return msgspec.structs.replace(record, tests=[msgspec.structs.replace(record.tests[0], sha256="0" * 64)])

    assert records[0].tests[0].name == "valid"
    refuse_other_text(
        collected.study, [with_other_dev_set(one) if one.row == "base" else one for one in records], ["test"]
    )
    with pytest.raises(DataError, match="have different pairs of valid"):
        refuse_other_text(collected.study, [with_other_dev_set(records[0]), *records[1:]], ["test"])


def test_a_chosen_value_that_is_no_number_is_at_no_edge(result):
    row = result.row("same | again")
    tried = [msgspec.structs.replace(one, settings={"model.tie": one.chosen}) for one in row.candidates]
    row = msgspec.structs.replace(row, candidates=tried, chosen={"model.tie": True})
    assert not any("edge" in note for note in notes(msgspec.structs.replace(result, rows=[row])))
