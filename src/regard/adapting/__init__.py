"""Adapt a translation run to text of one domain (`regard adapt`), and prove what it gained and lost.

splitting.py    which pairs are trained on, which choose the model, and which test it
general.py      text of the general domain: given, or that of the base run
replay.py       the base model's own translations, as text against forgetting
candidates.py   the recipes that are tried
scoring.py      dev scores of a model
choosing.py     which rate, method and length is taken, by dev scores: successive halving
comparing.py    scores before and after, with paired significance, and the sentences that changed most
verdict.py      what follows from them
work.py         the work in a folder from which it resumes: replay text, search, comparison
report.py       the adaptation as JSON, as a page and as a table
adapt.py        the verb
"""
