"""A real headless browser for tests, spoken to over its debugging pipe: no driver, no port.

Chromium is looked for on PATH under its usual names. Where there is none, ``find`` says None and
tests that need one are skipped with that reason.
"""

import base64
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = f"no browser on PATH under any of the names {', '.join(NAMES)} (Debian: chromium)"
# A browser that starts, or a page that draws, on a machine with much else to do.
ANSWER_SECONDS = 120.0
PATIENCE_SECONDS = 90.0

# Chromium reads commands from descriptor 3 and writes answers to 4.
_PLACE = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for descriptor, end in zip((3, 4), ends):
    os.dup2(end, descriptor)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """The browser's path, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Page:
    """One tab, and everything that it complained about or asked for."""

    _browser: "Browser"
    _session: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    loads: "queue.Queue[str]" = field(default_factory=queue.Queue)  # ids of loads that are over

    def close(self) -> None:
        """Closes the tab."""
        self._browser.forget(self._session)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the DevTools protocol."""
        return self._browser.call(method, params, self._session)

    def open(self, url: str) -> None:
        """Goes to a page, and waits until it and its modules are there."""
        load = self.call("Page.navigate", url=url)["loaderId"]
        while self.loads.get(timeout=PATIENCE_SECONDS) != load:
            pass  # that of the empty page before

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, as JSON."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = PATIENCE_SECONDS) -> Any:
        """Waits for an expression to be true in the page; its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            if time.monotonic() > deadline:
                text = self.evaluate("document.body.innerText")
                raise AssertionError(
                    f"not within {seconds:.0f} s: {expression}\n{self.complaints}\n{text}"
                )
            time.sleep(0.05)

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        """Sets the size of the window, and whether the system is dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def point(self, x: float, y: float) -> None:
        """Moves the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Presses and lets go of a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path: Path) -> None:
        """Writes what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


class Browser:
    """A running Chromium; made by ``running``."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._number = 0
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._pages: dict[str, Page] = {}
        self._targets: dict[str, str] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(
        self, method: str, params: dict[str, Any] | None = None, session: str = ""
    ) -> dict[str, Any]:
        """One command and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._answers.get(timeout=ANSWER_SECONDS)
            if answer["id"] == self._number:
                break
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def page(self) -> Page:
        """A new, empty tab."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"])
        self._pages[attached["sessionId"]] = page
        self._targets[attached["sessionId"]] = target
        for domain in ("Runtime", "Log", "Network", "Page"):
            page.call(f"{domain}.enable")
        page.call("Page.setLifecycleEventsEnabled", enabled=True)
        page.call("Page.bringToFront")
        return page

    def forget(self, session: str) -> None:
        """Closes a tab."""
        self._pages.pop(session)
        self.call("Target.closeTarget", {"targetId": self._targets.pop(session)})

    def join(self) -> None:
        """Waits until nothing more can come, after the process has ended."""
        self._reader.join(ANSWER_SECONDS)

    def _read(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while more := os.read(self._back, 1 << 16):
                *whole, rest = (rest + more).split(b"\0")
                for message in whole:
                    self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers.put(message)
            return
        page = self._pages.get(message.get("sessionId", ""))
        if page is None:
            return
        params = message["params"]
        if message["method"] == "Network.requestWillBeSent":
            page.requests.append(params["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            page.complaints.append(json.dumps(params["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded":
            entry = params["entry"]
            page.complaints.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")
        elif message["method"] == "Runtime.consoleAPICalled":
            page.complaints.append(f"console.{params['type']}: {params['args']}")
        elif message["method"] == "Page.lifecycleEvent" and params["name"] == "load":
            page.loads.put(params["loaderId"])


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Browser]:
    """Starts Chromium with a profile in ``folder``, and ends it."""
    program = find()
    if program is None:
        raise AssertionError(MISSING)
    down_read, down_write = os.pipe()
    up_read, up_write = os.pipe()
    flags = [
        "--headless=new",
        "--no-sandbox",  # the tests may run as root, on pages of our own
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder}",
        "about:blank",
    ]
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _PLACE, str(down_read), str(up_write), program, *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(down_read, up_write),
        start_new_session=True,
    )
    os.close(down_read)
    os.close(up_write)
    browser = Browser(down_write, up_read)
    try:
        yield browser
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        browser.join()  # its pipe has ended
        os.close(down_write)
        os.close(up_read)
