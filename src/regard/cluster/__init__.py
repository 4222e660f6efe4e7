"""Translation of large corpora on a Ray cluster, or on a local Ray instance.

This uses plain actors instead of Ray Data. A shard is the unit that is assigned, retried, written atomically and skipped
by a second run, and output line N is the translation of input line N. Ray Data's readers drop empty lines or lose line
numbers, its writers name files by task, and it does not know about finished work; all of that would have to be built
around it.

The command reads and writes all text itself and sends text and model to the workers. Only the command needs access to the
files, and machines need no shared disk.
"""
