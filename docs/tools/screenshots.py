"""Takes the pictures of the documents from a real local stack: ``make screenshots``.

It starts a stack on free ports and a home of its own, and takes it through what the pictures show,
the first hour: an answer, a model of one's own, a version that is worse and is rolled back, a
better one that is promoted, and texts of another language. Needs a Chromium, and about ten minutes.
It writes ``docs/images`` again, and with ``--seconds FILE`` a table of how long each step took;
nothing else changes. ``tests/test_site.py`` asks that every picture is on a page, with a text for
those who can't see it.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import rolling_stack
from playwright import sync_api as playwright
from running_stack import EXAMPLE_ENDPOINT, HEADRACE, RunningStack, running_stack
from waiting import until

from contracts.endpoint import EndpointStatus, Phase
from contracts.rollout import Verdict
from registry.stores.endpoints import FileEndpointStore

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
SENTIMENT = ROOT / "examples" / "sentiment"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
Picture = Literal["ui", "ui-drift", "rollout-report", "mlflow", "api"]  # files without .png
OWN_MODEL = "your-classifier"
OTHER_LANGUAGES = (
    "Фильм был скучным, но актриса хороша.",
    "Der Film war lang, aber am Ende doch gut.",
    "Une comédie sans une seule idée.",
)
WIDTH = 1280
MARGIN = 12.0
# MLflow's table of tags is a window of 280 pixels, in which rows are cut.
ALL_TAGS = (
    "[class*=table-body] { max-height: none !important; height: auto !important }"
    "[data-assistant-ui] { visibility: hidden !important }"
)
TIMEOUT_SECONDS = 120.0
ROLLOUT_SECONDS = 900.0


class Steps:
    """How long each step took, in seconds, one after the other."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._took: list[tuple[str, float]] = []

    def end(self, name: str) -> None:
        """Ends a step, and begins the next."""
        now = time.monotonic()
        self._took.append((name, now - self._began))
        self._began = now

    def table(self) -> str:
        """In Markdown."""
        rows = [f"| {name} | {seconds:.0f} |" for name, seconds in self._took]
        return "\n".join(["| step | seconds |", "|---|---|", *rows, ""])


class Camera:
    """A browser that takes pictures of pages."""

    def __init__(self, browser: playwright.Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder

    @contextmanager
    def page(self, url: str, *, height: int, width: int = WIDTH) -> Iterator[playwright.Page]:
        """A page in a window of so many pixels."""
        size = playwright.ViewportSize(width=width, height=height)
        with self._browser.new_page(viewport=size, color_scheme="light") as page:
            page.set_default_timeout(1000 * TIMEOUT_SECONDS)
            page.goto(url)
            yield page

    def take(
        self, page: playwright.Page, name: Picture, *, of: str | None = None, margin: float = 0.0
    ) -> None:
        """Keeps what is in the window, or one element of the page with so many pixels around it."""
        path = self._folder / f"{name}.png"
        if of is None:
            page.screenshot(path=path, animations="disabled")
        else:
            page.locator(of).scroll_into_view_if_needed()
            box = page.locator(of).bounding_box()
            if box is None:
                raise LookupError(f"nothing is seen of {of} on {page.url}")
            clip = playwright.FloatRect(
                x=max(0.0, box["x"] - margin),
                y=max(0.0, box["y"] - margin),
                width=box["width"] + 2 * margin,
                height=box["height"] + 2 * margin,
            )
            page.screenshot(path=path, animations="disabled", clip=clip)
        print(f"{path}: {path.stat().st_size // 1000} kB", flush=True)


def main() -> int:
    """Reads the command line, plays the scenario, and takes the pictures."""
    parser = argparse.ArgumentParser(description="Takes the pictures of the documents.")
    parser.add_argument("--into", type=Path, default=IMAGES, help="the folder to write")
    parser.add_argument("--seconds", type=Path, help="a file for how long each step took")
    arguments = parser.parse_args()
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        print(f"There is no browser on PATH: {', '.join(BROWSERS)}.", file=sys.stderr)
        return 1
    steps = Steps()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-pictures-") as folder,
        running_stack(Path(folder) / "home", "--window-seconds", "5") as stack,
        playwright.sync_playwright() as runs,
    ):
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]  # pages of our own, maybe as root
        browser = runs.chromium.launch(executable_path=program, args=flags)
        try:
            play(stack, Camera(browser, arguments.into.resolve()), steps)
        finally:
            browser.close()
    if arguments.seconds is not None:
        arguments.seconds.write_text(steps.table(), encoding="utf-8")
    return 0


def play(stack: RunningStack, camera: Camera, steps: Steps) -> None:
    """Takes the stack through what is to be seen, with pictures on the way."""
    stack.until_answers(EXAMPLE_ENDPOINT)
    steps.end("an answer")
    rolling_stack.register(stack, "better", model=OWN_MODEL)
    stack.until_answers(OWN_MODEL)
    steps.end("a model of your own, which is ONNX already")
    stack.apply((SENTIMENT / "endpoint.yaml").read_text(encoding="utf-8"))
    with camera.page(f"{stack.gateways[0].operations_url}/docs", height=870) as page:
        page.locator("summary").first.wait_for()
        camera.take(page, "api")
    with replayed(stack, SENTIMENT / "texts" / "held_out.jsonl", "--feedback"):
        worse = rolling_stack.register(stack, "worse")
        until_rollout(stack, f"version {worse} is rolled back", is_rolled_back(worse))
        steps.end("a worse version is rolled back")
        rolling_stack.until_told(stack, worse, Phase.ROLLED_BACK.value, "1")
        with camera.page("about:blank", height=1380, width=900) as page:
            page.set_content(rolling_stack.report(stack, worse))
            camera.take(page, "rollout-report")
        mlflow(camera, f"{stack.mlflow}/#/models/{EXAMPLE_ENDPOINT}/versions/{worse}")
        steps.end("pictures")
        better = rolling_stack.register(stack, "better")
        until_rollout(stack, f"version {better} has callers, and checks pass", has_passed(better))
        steps.end("a better version has callers")
        with ui(stack, camera, height=1040) as page:
            page.get_by_text("5m", exact=True).click()
            page.get_by_text("errors, 5m").wait_for()
            camera.take(page, "ui")
        until_rollout(stack, f"version {better} is promoted", is_promoted(better))
        steps.end("it is promoted")
    languages = stack.home.parent / "languages.txt"
    languages.write_text("\n".join(OTHER_LANGUAGES * 20) + "\n", encoding="utf-8")
    with replayed(stack, languages), ui(stack, camera, height=900) as page:
        page.get_by_text("large, still learning").first.wait_for()
        camera.take(page, "ui-drift", of="#drift", margin=MARGIN)


def mlflow(camera: Camera, url: str) -> None:
    """Takes MLflow's page of a version, with all its tags and without the assistant beside it."""
    with camera.page(url, height=960) as page:
        page.get_by_text(f"headrace.{EXAMPLE_ENDPOINT}.verdict").wait_for()
        for button in page.get_by_role("button", name="Close").all():
            button.click()
        page.add_style_tag(content=ALL_TAGS)
        camera.take(page, "mlflow", of="main")


@contextmanager
def ui(stack: RunningStack, camera: Camera, *, height: int) -> Iterator[playwright.Page]:
    """The page of the example's endpoint, drawn and live."""
    with camera.page(f"{stack.stats}/ui/#endpoint={EXAMPLE_ENDPOINT}", height=height) as page:
        page.locator("#detail h1").wait_for()
        page.locator(".state.live").wait_for()
        yield page


@contextmanager
def replayed(stack: RunningStack, texts: Path, *flags: str) -> Iterator[None]:
    """With texts that are sent over and over, by 300 callers."""
    process = subprocess.Popen(
        [HEADRACE, "replay", str(texts), "--endpoint", EXAMPLE_ENDPOINT, "--rate", "30",
         "--callers", "300", *flags],
        env=stack.env, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_SECONDS)


def is_rolled_back(version: str) -> Callable[[EndpointStatus], bool]:
    """Whether a version was taken back."""
    return lambda status: any(
        (line.version, line.phase) == (version, Phase.ROLLED_BACK) for line in status.history
    )


def is_promoted(version: str) -> Callable[[EndpointStatus], bool]:
    """Whether a version has all callers."""
    return lambda status: status.stable is not None and status.stable.version == version


def has_passed(version: str) -> Callable[[EndpointStatus], bool]:
    """Whether a version answers callers, and some of its checks pass and some do not know yet."""

    def does(status: EndpointStatus) -> bool:
        rollout = status.rollout
        if rollout is None or rollout.candidate.version != version or rollout.step == 0:
            return False
        verdicts = {check.verdict for check in rollout.checks}
        return verdicts >= {Verdict.PASS, Verdict.UNKNOWN}

    return does


def until_rollout(stack: RunningStack, what: str, check: Callable[[EndpointStatus], bool]) -> None:
    """Waits until the endpoint's status is as it should be."""

    def holds() -> bool:
        stored = FileEndpointStore(stack.home / "endpoints").get(EXAMPLE_ENDPOINT)
        return stored is not None and check(stored.status)

    until(what, ROLLOUT_SECONDS, holds, every_seconds=0.5)


if __name__ == "__main__":
    sys.exit(main())
