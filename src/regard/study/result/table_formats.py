"""The tables of a study as Markdown, LaTeX, and text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from regard.comparing.text import aligned
from regard.study.result.notes import notes
from regard.study.result.study_result import StudyResult
from regard.study.result.tables import Table, score_tables

LONG_NAME = 28  # of a row: longer ones are wrapped in LaTeX


def as_text(result: StudyResult) -> str:
    """Return the tables for a terminal."""
    lines = [result.question]
    for table in score_tables(result):
        lines += ["", table.title, "", *aligned([table.head, *table.rows], texts=[text for _, text in table.columns])]
    return "\n".join([*lines, "", *notes(result)]) + "\n"


def as_markdown(result: StudyResult) -> str:
    """Return the tables as Markdown."""
    lines = [f"# {_markdown(result.question)}"]
    for table in score_tables(result):
        lines += ["", f"## {_markdown(table.title)}", "", _markdown_row(table.head)]
        lines.append("|" + "".join("---|" if text else "---:|" for _, text in table.columns))
        lines += [_markdown_row(row) for row in table.rows]
    return "\n".join([*lines, "", *(f"- {_markdown(note)}" for note in notes(result))]) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_markdown, cells))} |"


def _markdown(text: str) -> str:
    """Return text in one line, with the characters escaped that Markdown or HTML would interpret."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", re.sub(r"\s+", " ", text))


def as_latex(result: StudyResult) -> str:
    """Return the tables as a LaTeX document that needs no packages; its tables can be copied into a paper."""
    lines = [r"\documentclass[a4paper]{article}", r"\addtolength{\textwidth}{6.4cm}\addtolength{\hoffset}{-3.2cm}"]
    lines += [r"\begin{document}\sloppy", latex(result.question)]
    for table in score_tables(result):
        columns = "".join(_latex_columns(table))
        lines += ["", r"\begin{table}[p]", r"\centering\scriptsize\setlength{\tabcolsep}{2pt}"]
        lines += [rf"\caption{{{latex(table.title)}}}", rf"\begin{{tabular}}{{{columns}}}"]
        lines += [r"\hline", _latex_row(table.head), r"\hline"]
        for number, row in enumerate(table.rows):
            lines += [r"\hline"] if number in table.groups else []
            lines.append(_latex_row(row))
        lines += [r"\hline", r"\end{tabular}", r"\end{table}"]
    lines += ["", *(f"{latex(note)}\n" for note in notes(result)), r"\end{document}"]
    return "\n".join(lines) + "\n"


def _latex_columns(table: Table) -> list[str]:
    """Return the kinds of columns. Changes may be long, and so may names of rows: they are wrapped."""
    long = max((len(row[0]) for row in table.rows), default=0) > LONG_NAME
    widths = {"changes": ".7", "row": ".11" if long else ""}
    return [
        rf"p{{{width}\textwidth}}" if (width := widths.get(name)) else "l" if text else "r"
        for name, text in table.columns
    ]


def _latex_row(cells: Sequence[str]) -> str:
    # The braces keep a cell that begins with a star or a bracket from being an argument of the row before.
    return "{}" + " & ".join(map(latex, cells)) + r" \\"


_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$",
    "±": r"$\pm$", "×": r"$\times$", "→": r"$\rightarrow$", "≥": r"$\geq$", "≤": r"$\leq$", "µ": r"$\mu$", "β": r"$\beta$",
    "α": r"$\alpha$", "ε": r"$\epsilon$", "λ": r"$\lambda$", "…": r"\ldots{}", "–": "--", "—": "---", "−": "$-$",
    "“": "``", "”": "''", "‘": "`", "’": "'", "\"": "''", "[": "{[}", "]": "{]}", "`": "{`}",
}  # fmt: skip


def latex(text: str) -> str:
    """Return text for LaTeX. Letters that pdfLaTeX may not have are written as their code points."""
    found = []
    for letter in re.sub(r"\s+", " ", text):
        if letter in _LATEX:
            found.append(_LATEX[letter])
        elif _is_plain(letter):
            found.append(letter)
        else:
            found.append(f"{{[}}U+{ord(letter):04X}{{]}}")
    # A minus before a number, unlike a hyphen between words.
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", "".join(found))


def _is_plain(letter: str) -> bool:
    """Return whether pdfLaTeX sets a letter as it is: ASCII, and Latin letters with accents."""
    return (letter.isascii() and letter.isprintable()) or (
        "À" <= letter <= "ÿ" and letter.isalpha() and letter not in "ÐÞðþ"
    )
