"""Studies (`regard study`): settings varied over rows and seeds, trained, scored and compared with a baseline.

study_file.py   the study as a TOML file: rows, seeds, candidates, and the recipe of each cell
cells.py        the cells of a study, their records on disk, and the choice of candidates on the dev set
testing.py      significance over seeds and over sentences
"""
