"""A bundle: the result of a study with all that it is derived from.

bundle_files.py     its files, and the manifest
bundle_writing.py   a bundle is written
bundle_records.py   its records, compared with what is in the bundle
bundle_check.py     scores of the tested metric, tests and tables derived again
"""
