"""A process of these tests: it trains several runs one after another, since starting takes longest.

runs_worker.py RECIPE OUT KEY=VALUE... [-- OUT KEY=VALUE...]...
"""

import os
import sys
from itertools import groupby

import regard

recipe, *words = sys.argv[1:]
runs = [list(group) for separates, group in groupby(words, lambda word: word == "--") if not separates]
for number, (out, *overrides) in enumerate(runs):
    # Processes find each other by this number, and must not find the addresses of the run before.
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)
    regard.train(recipe, out=out, overrides=overrides)
