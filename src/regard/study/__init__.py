"""Studies (`regard study`): settings varied over rows and seeds, trained, scored and compared with a baseline.

study_file.py   the study as a TOML file: rows, seeds, candidates, and the recipe of each cell
records.py      the record of a cell that has ended
cells.py        the cells of a study, and their folders on disk
choices.py      the choice among candidates on the dev set, and which cells there are
checks.py       what is refused before anything is trained
same_text.py    whether cells that are compared have the same text
state.py        how far a study is, as its folder says
test_sets.py    the dev set and the test sets, read for scoring
running/        the cells that are missing, trained and scored
result/         all numbers, derived from records and statistics of sentences; tables and figures
bundle/         the result with all that it is derived from, written and checked
tuning/         a search for settings (`regard tune`), as a study
"""
