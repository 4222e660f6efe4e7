"""Firefox for tests, driven over Marionette, its own protocol. Tests skip, and say why, where it is missing."""

import json
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

import pytest

NAMES = ("firefox-esr", "firefox")
STARTS_WITHIN = 60  # seconds
ANSWERS_WITHIN = 300
PREFERENCES = {
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.server": "",
    "app.update.enabled": False,
    # Nothing can be reached, whoever asks.
    "network.proxy.type": 1,
    "network.proxy.socks": "127.0.0.1",
    "network.proxy.socks_port": 9,
}


class Firefox:
    """A window of the browser."""

    def __init__(self, connection):
        self._socket, self._buffer, self._number = connection, b"", 0
        self._receive()
        self.command("WebDriver:NewSession", {})
        self.command("WebDriver:SetTimeouts", {"script": 1000 * ANSWERS_WITHIN, "pageLoad": 1000 * ANSWERS_WITHIN})

    def command(self, name, fields):
        self._number += 1
        message = json.dumps([0, self._number, name, fields]).encode()
        self._socket.sendall(b"%d:%s" % (len(message), message))
        _, number, error, result = self._receive()
        assert number == self._number and error is None, error
        return result

    def _receive(self):
        while b":" not in self._buffer:
            self._more()
        size, _, self._buffer = self._buffer.partition(b":")
        while len(self._buffer) < int(size):
            self._more()
        message, self._buffer = self._buffer[: int(size)], self._buffer[int(size) :]
        return json.loads(message)

    def _more(self):
        found = self._socket.recv(1 << 16)
        assert found, "Firefox has closed the connection"
        self._buffer += found

    def open(self, url):
        self.command("WebDriver:Navigate", {"url": url})

    def evaluate(self, expression, *arguments):
        """The value of an expression, or of the promise that it returns. Arguments are called a, b, ..."""
        names = "abcdef"[: len(arguments)]
        script = (
            f"const done = arguments[arguments.length - 1], [{', '.join(names)}] = arguments;"
            f"Promise.resolve({expression}).then((value) => done({{ value }}), (error) => done({{ error: String(error) }}));"
        )
        found = self.command("WebDriver:ExecuteAsyncScript", {"script": script, "args": list(arguments)})["value"]
        assert "error" not in found, found["error"]
        return found.get("value")


@contextmanager
def firefox(folder):
    """A browser with a new profile in this folder, for as long as the context lasts."""
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    if path is None:
        pytest.skip("there is no Firefox: apt-get install firefox-esr")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    preferences = {**PREFERENCES, "marionette.port": port}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in preferences.items()]
    (folder / "user.js").write_text("\n".join(lines), encoding="utf-8")
    command = [path, "--headless", "--marionette", "--no-remote", "--profile", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with _connection(port, process) as connection:
            yield Firefox(connection)
    finally:
        process.terminate()
        process.wait(STARTS_WITHIN)


def _connection(port, process):
    end = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=ANSWERS_WITHIN)
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                pytest.skip("Firefox does not start here")
            time.sleep(0.1)
