"""Studies (`regard study`): settings varied over rows and seeds, trained, scored and compared with a baseline.

study_file.py   the study as a TOML file: rows, seeds, candidates, and the recipe of each cell
cells.py        the cells of a study, their records on disk, and the choice of candidates on the dev set
checks.py       what is refused before anything is trained
job.py          what the process of a cell needs to know, and its exit status
train_cell.py   the process that trains one cell
cell_record.py  its record, made from the log of its run
score_cell.py   its scores on the dev set and the test sets
state.py        how far a study is, as its folder says
workers.py      processes of cells on this machine
ray_cells.py    cells on a Ray cluster
slurm.py        a batch script for Slurm
running.py      all cells, several at a time
grid_page.py    the page of the grid

collected.py             records and statistics of sentences, read for the result
references.py            test sets, and sentences counted against their references
sentence_statistics.py   counts of every sentence, whose sums give a score
significance.py          significance over seeds and over sentences
results.py               all numbers of a study
deriving.py              how they are derived
tables.py, figure.py     the result for readers
table_formats.py         tables as Markdown, LaTeX and text
result_files.py          its files
bundle.py                the files of a bundle: the result with all that it is derived from
bundle_writing.py        a bundle is written
bundle_records.py        its records, compared with what is in the bundle
bundle_check.py          every number of a bundle derived again

tuning_file.py           a search as a TOML file (`regard tune`)
proposals.py             settings that Optuna proposes
trials.py                trials as rows of a study
tuning.py                the search
"""
