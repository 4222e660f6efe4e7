"""The result of a study: all numbers, derived from records and statistics of sentences, and the files for readers.

sentence_statistics.py   counts of every sentence, whose sums give a score
references.py            sentences counted against their references
significance.py          significance over seeds and over sentences
study_result.py          all numbers of a study
deriving.py              how they are derived
collected.py             records and statistics of sentences, read for deriving
tables.py, notes.py      tables, and the notes below them
figure.py                the figure
table_formats.py         tables as Markdown, LaTeX and text
result_files.py          its files
"""
