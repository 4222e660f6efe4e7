"""A run that takes no step writes the stack of every thread to a file."""

import threading
import time

from regard.storage.folder import Folder
from regard.training.watchdog import Watchdog


def wait_for(path, words, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and words in path.read_text():
            return True
        time.sleep(0.02)
    return False


def test_a_stall_writes_the_stack_of_every_thread(tmp_path):
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="stuck")
    thread.start()
    with Watchdog(Folder(tmp_path), "stalled.txt", seconds=0.1):
        assert wait_for(tmp_path / "stalled.txt", "wait_for")  # this thread
        assert wait_for(tmp_path / "stalled.txt", "in wait\n")  # the other one
    stop.set()
    thread.join()


def test_a_run_that_makes_progress_leaves_no_file(tmp_path):
    with Watchdog(Folder(tmp_path), "stalled.txt", seconds=5) as watchdog:
        for _ in range(20):
            watchdog.step()
            time.sleep(0.01)
    assert not (tmp_path / "stalled.txt").exists()


def test_the_watchdog_can_be_disabled(tmp_path):
    with Watchdog(Folder(tmp_path), "stalled.txt", seconds=0) as watchdog:
        watchdog.step()
    assert not (tmp_path / "stalled.txt").exists()
