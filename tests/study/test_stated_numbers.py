"""Numbers that the documents state of our studies are those of their bundles, each of the row that the sentence names."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADAM, ADAMW, MUON = "Adam, inverse square root", "AdamW, warm-up stable decay", "Muon, warm-up stable decay"
UNCHANGED = ("pre-norm", "RMSNorm", "QK-norm")
DEEP = [("mean", "N 8"), ("mean", "N 8, gain 0.5"), ("mean", "N 8, pre-norm")]


def mean(*rows):
    return [("mean", row) for row in rows]


# The numbers with decimals of a line, in its order: what they are, and of which row.
GUIDE = {
    "table3": [*mean("N 2", "base", "half of d_model", "twice d_model", "big", "P_drop 0.0"), ("change", "N 8")],
    "modern": [
        *(("change", row) for row in ("Adam, WSD", "Muon", "rotary", "SwiGLU")),
        ("low", *UNCHANGED),
        ("high", *UNCHANGED),
        ("change", "10 and 2 layers"),
        ("change", "all"),
    ],
    "optimizers": [*mean(ADAM, ADAMW, MUON), ("change", MUON), ("change", ADAM)],
    "initialization": DEEP,
    "rivals": mean(
        "Transformer",
        "ConvS2S",
        "RNN, additive attention",
        "RNN, general attention",
        "RNN, no attention",
        "ByteNet, characters",
    ),
    "parallel": mean("CTC", "mask-predict, 10 iterations", "NAT with fertilities", "Transformer"),
    "multi30k-en-fr": mean("Transformer"),
}
BENCHMARKS = [
    (
        "**The paper's Table 3.**",
        "Deep models",
        "table3",
        [
            *mean("N 2", "N 4", "base", "N 8", "half of d_model", "twice d_model", "big"),
            ("published", "N 8"),
        ],
    ),
    ("Deep models need smaller initial weights", "([table]", "initialization", DEEP),
    (
        "**Changes since 2017.**",
        "**Optimizers.**",
        "modern",
        mean("base", "Muon", "Adam, WSD", "rotary", "SwiGLU", "10 and 2 layers", "all"),
    ),
    (
        "**Optimizers.**",
        "The recipes use",
        "optimizers",
        [*mean(ADAM, ADAMW, MUON), ("p_sentences_corrected", MUON), ("p_seeds_corrected", MUON)],
    ),
]


def study_of(name):
    return json.loads((ROOT / "studies" / name / "study.json").read_text(encoding="utf-8"))


def rows_of(name):
    return {row["name"]: row for row in study_of(name)["rows"]}


def value(rows, what, *names):
    """One number on the first test set; of several rows the lowest or highest bound."""
    found = [rows[name]["sets"][0] for name in names]
    if what == "mean":
        return found[0]["scores"]["bleu"]["mean"]
    if what == "published":
        return found[0]["published"]["bleu"]["change"]
    pick = max if what == "high" else min
    return pick(one["compared"][what] for one in found)


def decimals(text):
    return re.findall(r"(?<![\d.,])[-+]?\d+\.\d+(?!\d|\.\d)", text)


def assert_stated(text, rows, expected):
    stated = decimals(text)
    assert len(stated) == len(expected), stated
    for number, what in zip(stated, expected, strict=True):
        digits, sign = len(number.partition(".")[2]), "+" if number.startswith("+") else ""
        assert number == f"{value(rows, *what):{sign}.{digits}f}", what


@pytest.mark.parametrize("name", GUIDE)
def test_the_guide_states_what_a_study_found(name):
    text = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    (said,) = re.findall(rf"^\| \[[^|]*studies/{name}/table.md\) \| (.*) \|$", text, flags=re.M)
    assert_stated(said, rows_of(name), GUIDE[name])


def test_every_bundle_is_in_the_guide():
    assert {path.parent.name for path in (ROOT / "studies").glob("*/MANIFEST")} == set(GUIDE)


@pytest.mark.parametrize(("begins", "ends", "name", "expected"), BENCHMARKS)
def test_the_page_of_benchmarks_states_what_a_study_found(begins, ends, name, expected):
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    _, _, after = text.partition(begins)
    said, _, _ = after.partition(ends)
    assert_stated(said, rows_of(name), expected)


@pytest.mark.parametrize(("file", "name"), [("English-German", "rivals"), ("English-French", "multi30k-en-fr")])
def test_the_scores_of_multi30k_are_those_of_the_studies(file, name):
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| {file} \| (.*)$", text, flags=re.M)
    cells = [cell.strip() for cell in line.split("|")]
    assert [cells[0], cells[2]] == [spread(one) for one in rows_of(name)["Transformer"]["sets"]]


def spread(one):
    found = one["scores"]["bleu"]
    return f"{found['mean']:.2f} ± {found['deviation']:.2f}"


VERDICTS = {"same": "no difference found", "worse": "worse", "better": "better", "unclear": "unclear"}


def rival_cells():
    """The cells of the table of rivals that studies have: by row, the number of a column and its text."""
    for name in ("rivals", "parallel"):
        study = study_of(name)
        lengths = study["by_length"]["test2016"]
        for row in study["rows"]:
            found = row["sets"][0]
            compared = found["compared"]
            change = f"{compared['change']:+.2f}, {VERDICTS[compared['verdict']]}" if compared else "baseline"
            yield (
                row["name"],
                [
                    (1, spread(found)),
                    (2, change),
                    (3, f"{row['parameters'] / 1e6:.1f} M"),
                    *((8 + number, f"{group['scores'][row['name']]:.1f}") for number, group in enumerate(lengths)),
                ],
            )


def speed_cells():
    """Those that were measured alone, by `benchmarks/rival_speed.py`."""
    path = ROOT / "benchmarks" / "results" / "rival-speed-h200.json"
    for line in json.loads(path.read_text(encoding="utf-8"))["lines"]:
        to_30 = line["seconds_to_30"]
        yield (
            line["row"],
            [
                (4, f"{line['seconds']:.0f}"),
                (5, "not reached" if to_30 is None else f"{to_30:.0f}"),
                (6, f"{line['speed']['batch 1, beam 5']:,.0f}"),
                (7, f"{line['speed']['batch 64, beam 5']:,.0f}"),
            ],
        )


def test_the_table_of_rivals_has_the_numbers_of_studies_and_of_the_measured_speeds():
    text = (ROOT / "docs" / "rivals.md").read_text(encoding="utf-8")
    table = text.partition("| | BLEU | change | parameters |")[2].partition("\n\n")[0]
    lines = [[cell.strip().replace("**", "") for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    shown = {cells[0]: cells for cells in lines}
    assert shown.keys() == {row for row, _ in rival_cells()} and len(shown) == 10
    for row, cells in [*rival_cells(), *speed_cells()]:
        for column, expected in cells:
            assert shown[row][column] == expected, (row, column)
    measured = {row for row, _ in speed_cells()}
    assert all(set(cells[4:8]) == {"–"} for row, cells in shown.items() if row not in measured)
