"""Chromium without a window, by the DevTools protocol over two pipes: no library is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import pytest


class Navigated(Exception):
    """What was asked for has no answer: the page has given way to another one."""


class Page:
    """A page of a browser; `complaints` are the errors of scripts and of the page's policy."""

    def __init__(self, sent: FileIO, got: FileIO) -> None:
        self._sent, self._got = sent, got
        self._number, self._left = 0, b""
        self._session: str | None = None
        self.complaints: list[Any] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._sent.write(json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._left:
                self._left += self._got.read(1 << 16)
            text, self._left = self._left.split(b"\0", 1)
            found = json.loads(text)
            if found.get("id") == self._number:
                if "result" not in found:
                    raise Navigated(found["error"])
                return found["result"]
            if found["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(found["params"])

    def run(self, code: str) -> Any:
        """Return the value of JavaScript, awaited."""
        found = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, place: Path | str, width: int, height: int) -> None:
        """Load a file or an address in a window of this size, and wait until it is drawn."""
        url = place.as_uri() if isinstance(place, Path) else place
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        self.call("Page.navigate", url=url)
        while self.run("document.readyState + location.href") != f"complete{url}":
            pass
        self.settle()

    def settle(self) -> None:
        """Wait for two frames."""
        frame = "requestAnimationFrame"
        self.run(f"new Promise((done) => {frame}(() => {frame}(done)))")

    def until(self, code: str, frames: int = 1000) -> None:
        """Wait until JavaScript is true: what comes into view is drawn some frames later."""
        for _ in range(frames):
            with suppress(Navigated):
                if self.run(code):
                    return
                self.settle()
        raise AssertionError(f"never true: {code}")

    def press(self, *keys: str) -> None:
        """Press keys and let them go, one after another."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Give a page of Chromium, whose profile is kept in a folder; skips where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium")
    commands, answers = os.pipe(), os.pipe()
    # it reads from handle 3 and writes to handle 4
    line = (
        f'exec "$0" --headless=new --no-sandbox --disable-gpu --remote-debugging-pipe '
        f'--user-data-dir="$1" about:blank 3<&{commands[0]} 4>&{answers[1]}'
    )
    process = subprocess.Popen(
        ["/bin/bash", "-c", line, program, str(folder / "profile")],
        pass_fds=(commands[0], answers[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands[0])
    os.close(answers[1])
    with os.fdopen(commands[1], "wb", 0) as sent, os.fdopen(answers[0], "rb", 0) as got:
        try:
            yield Page(sent, got)
        finally:
            process.terminate()
            process.wait(60)
