"""What is made once for all processes of a test run: a fixture of a module is made again in each process that needs it."""

import fcntl
import os


def make_once(tmp_path_factory, name, make):
    """Return a folder that the first process to ask for it has filled by `make(folder)`. Others wait for it."""
    base = tmp_path_factory.getbasetemp()
    # The processes of pytest-xdist have folders of their own in a shared one.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = shared / name, shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            done.touch()
    return folder
