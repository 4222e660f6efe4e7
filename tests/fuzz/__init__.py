"""A fuzzer for folders and requests: `make fuzz`, or python -m tests.fuzz --help.

A case is a valid folder (`bases`), some mutations of it (`mutate`, `apply`), hashes computed again afterwards (`seal`), and
a command that is given the folder (`targets`); or a request (`request_cases`) to the server (`application`). A case may
succeed or be refused with a RegardError. Anything else is a finding: another exception, a crash, a hang, too much memory,
or a file outside the folder that is read or changed. Workers (`worker`) run in a mount namespace in which only their
sandbox is writable (`isolation`, `sandbox`).

    python -m tests.fuzz --cases 100000 --seed 1 --out fuzz.json --save cases     writes a file per finding to cases/
    python -m tests.fuzz --cases 0 --case cases/FILE.json                         repeats one case

A finding becomes a test by moving its file to fixtures/.
"""
