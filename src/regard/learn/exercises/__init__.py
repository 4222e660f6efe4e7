"""The exercises: a folder each, with what the learner starts from, a solution, and the tests that check both.

The tasks are on the page pages/en/exercises.md: the section of an exercise includes its stub.py.
"""
