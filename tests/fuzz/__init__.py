"""Damaged folders and requests, and what is done with them: `make fuzz`, or python -m tests.fuzz --help.

A case is a valid folder (`bases`), some mutations of it (`mutate`, `apply`), hashes computed again after them (`seal`),
and a command that is given the folder (`targets`); or a request (`request_cases`) to the server (`application`). It may
succeed or be refused by a RegardError; anything else is a finding: another exception, a crash, a hang, too much memory, a
file outside the folder read or changed. Workers (`worker`) run in a mount namespace in which only their sandbox can be
written to (`isolation`, `sandbox`).

    python -m tests.fuzz --cases 100000 --seed 1 --out fuzz.json --save cases     a file for each finding goes to cases/
    python -m tests.fuzz --cases 0 --case cases/FILE.json                         runs one again

A finding becomes a test by moving its file to fixtures/.
"""
