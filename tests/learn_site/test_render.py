"""Markdown of chapters as HTML: directives, formulas, pairs of blocks."""

import re

import pytest

from regard.errors import ConfigError
from regard.learn.html_parts import formula_html
from regard.learn.render import render, split_blocks
from regard.learn.sources import excerpt, read


def page(text, **options):
    return render(text, link=lambda href: f"to:{href}", name="some.md", **options)


def test_lines_of_a_source_are_included_by_name():
    made = page("```include examples/paper.py lrate\n```\n").html
    assert "to:/examples/paper.py" in made
    assert "warmup_steps" in made
    assert "def smoothed_loss" not in made.replace('<span class="c-k">def</span> ', "def ")


def test_an_excerpt_is_the_lines_of_the_file():
    found = excerpt("examples/paper.py", "Transformer.embed")
    lines = read("examples/paper.py").splitlines()[found.first - 1 : found.last]
    assert [line.strip() for line in lines] == [line.strip() for line in found.text.splitlines()]
    assert found.text.startswith("def embed(")


def test_a_name_that_the_source_does_not_have_is_an_error():
    with pytest.raises(ConfigError, match=r"examples/paper.py has no Attention"):
        page("```include examples/paper.py Attention\n```\n")


def test_blocks_of_two_languages_are_paired():
    made = page("# One\n\nText.\n", translation="# 一\n\n文字。\n")
    assert made.headings[0].texts == {"en": "One", "zh": "一"}
    assert '<div class="pair"><div class="en" lang="en"><p>Text.</p>' in made.html
    assert '<div class="zh" lang="zh-CN"><p>文字。</p>' in made.html
    assert made.html.count("<h1") == 1


def test_a_translation_repeats_no_code():
    made = page("A.\n\n```run\nprint(1)\n```\n", translation="甲。\n\n```same\n```\n")
    assert made.html.count("<pre") == 1


def test_code_that_a_translation_repeats_is_shown_once():
    made = page("```sh\nls\n```\n\n```sh\nls  # all\n```\n", translation="```sh\nls\n```\n\n```sh\nls  # 全部\n```\n")
    assert made.html.count("<pre") == 3


@pytest.mark.parametrize(
    ("translation", "message"),
    [
        ("# 一\n\n文字。\n", r"some.md: en has 3 blocks and zh 2; block 3 is in en alone: 'More.'"),
        ("# 一\n\n- 文字。\n\n更多。\n", r"some.md: block 2 is paragraph in en and bullet_list in zh"),
        ("# 一\n\n文字。\n\n更多。\n\n还有。\n", r"block 4 is in zh alone: '还有。'"),
    ],
)
def test_an_unpaired_block_is_named(translation, message):
    with pytest.raises(ConfigError, match=message):
        page("# One\n\nText.\n\nMore.\n", translation=translation)


def test_a_formula_has_indices():
    assert formula_html("d_k^2 < 10000^{2i/d}") == "d<sub>k</sub><sup>2</sup> &lt; 10000<sup>2i/d</sup>"
    assert '<span class="formula">d<sub>k</sub></span>' in page("Divide by $d_k$.\n").html
    assert "formula" not in page("It costs $5 or $6.\n", formulas=False).html


def test_markup_in_text_is_shown_and_not_run():
    assert "<script>" not in page("<script>alert(1)</script>\n\n`<b>`\n").html


def test_headings_of_the_same_text_have_different_anchors():
    assert [one.anchor for one in page("## A b\n\n## A b\n").headings] == ["a-b", "a-b-1"]


def test_a_line_of_chinese_continues_without_a_space():
    made = page("One\ntwo.\n", translation="注意力\n是平均，\nBLEU 和\n**值**，\n*键* 与 GPU\n同。\n")
    assert "注意力是平均，BLEU 和<strong>值</strong>，<em>键</em> 与 GPU\n同。" in made.html
    assert "One\ntwo." in made.html
    assert "<strong>快。</strong>它" in page("**快。** 它\n").html
    assert "注意力是平均" in made.sections[-1][1]


def test_a_live_figure_has_its_options():
    made = page('```live attention\nlayer = 6\ntext = "a < b"\n```\n')
    assert made.figures == ["attention"]
    assert 'data-live="attention" data-layer="6" data-text="a &lt; b"' in made.html


def test_a_block_is_one_of_the_top_level():
    assert [one.kind for one in split_blocks("# A\n\n- a\n\n  b\n\n> c\n\n| a |\n|---|\n| b |\n")] == [
        *("h1", "bullet_list", "blockquote", "table"),
    ]


def test_a_hint_is_opened_by_a_click():
    made = page("```hint\nUse `tril` and $d_k$: [a](b.md).\n```\n").html
    assert re.sub(r"<span class=.zh.*?</span>|</?span[^>]*>", "", made).startswith(
        "<details><summary>Hint</summary><p>Use <code>tril</code>"
    )
    assert "提示" in made
    assert '<a href="to:b.md">' in made
    assert "<sub>k</sub>" in made


def test_a_whole_file_is_included_without_its_docstring():
    found = excerpt("src/regard/learn/exercises/masks/stub.py", "*")
    assert found.text.startswith("import torch\n")
    assert "def decoder_mask" in found.text
    assert found.first == 3


def test_a_table_of_results_is_read_from_its_file():
    made = page(
        "```results benchmarks/results/distance.md\n"
        'columns = { "letters right, %, in rows of" = "family", "40" = "score" }\n```\n'
    ).html
    assert "to:/benchmarks/results/distance.md" in made
    assert "<th>family</th>" in made
    row = next(line for line in read("benchmarks/results/distance.md").splitlines() if "RNN, no" in line)
    assert f'<td>RNN, no attention</td>\n<td class="right">{row.split("|")[6].strip()}</td>' in made


def test_a_table_of_json_has_the_chosen_columns():
    options = 'list = "rows"\ncolumns = { layer = "layer", path = "path" }\n'
    made = page(f"```results benchmarks/results/table1-h200.json\n{options}```\n").html
    assert made.count("<tr>") == 5
    assert "<td>self-attention</td>" in made


def test_cells_are_translated_and_must_be_in_the_table():
    columns = 'list = "rows"\ncolumns = { layer = "层" }\n'
    start = "```results benchmarks/results/table1-h200.json\n"
    made = page(f'{start}{columns}cells = {{ "self-attention" = "自注意力" }}\n```\n').html
    assert "<td>自注意力</td>" in made and "<td>recurrent</td>" in made
    with pytest.raises(ConfigError, match=r"table1-h200.json has no cell 'self attention'"):
        page(f'{start}{columns}cells = {{ "self attention" = "自注意力" }}\n```\n')


def test_a_column_that_results_do_not_have_is_an_error():
    with pytest.raises(ConfigError, match=r"distance.md has no column 'speed'"):
        page('```results benchmarks/results/distance.md\ncolumns = { speed = "speed" }\n```\n')
