"""A search for settings (`regard tune`): trials that Optuna proposes, trained as a study.

tuning_file.py   a search as a TOML file
proposals.py     settings that Optuna proposes
trials.py        trials as rows of a study
search.py        the search
"""
