"""Translating more text than one machine should, on a Ray cluster or on a Ray of this machine's own.

Plain actors, not Ray Data: a shard here is what is handed out, tried again, written in one step and skipped by a second
run, and line N out is line N in. Ray Data's readers drop empty lines or lose their numbers, its writers name files by
task, and it has no notion of work that is already done; all of that would have to be built around it.

The command reads and writes all text itself and sends it to the workers, as it sends the model: nobody but the command needs
to see the files, and no two machines need to share a disk.
"""
