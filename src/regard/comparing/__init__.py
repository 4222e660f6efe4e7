"""Compare systems on the same test sets (`regard compare`): runs, or files of translations.

systems.py    what the arguments name: runs and files of outputs
test_sets.py  sources and references: files, or the test sets of a recipe
outputs.py    outputs for one test set: scores with paired tests, scores by length
sentences.py  the sentences that differ most
comet.py      COMET, if its package is installed
result.py     the result, and its words
text.py       the result as tables for a terminal
page.py       the result as an HTML page
report.py     all of it in one object, and as JSON
compare.py    the verb
"""
