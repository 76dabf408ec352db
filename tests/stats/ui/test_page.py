"""The page in a real headless browser: what it shows, asks for, keeps, and never runs."""

import contextlib
import functools
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

import pytest
import ui_world
import uvicorn
from fastapi import FastAPI
from own_ports import own_ports
from playwright import sync_api as playwright

from contracts.endpoint import Arm
from measures.trust import Trust
from stats.evaluation import board
from stats.ui.app import router
from stats.ui.view import Links

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PROGRAM = next((path for name in NAMES if (path := shutil.which(name))), None)
TIMEOUT_SECONDS = 90.0  # a page that draws, on a machine with much else to do

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        PROGRAM is None,
        reason=f"no browser on PATH under any of the names {', '.join(NAMES)} (Debian: chromium)",
    ),
]

LINKS = Links("http://127.0.0.1:8080", "http://127.0.0.1:5000")
READY = "document.querySelector('#detail h1') && document.querySelector('.state.live') && true"

ASKED = (
    "performance.getEntriesByType('resource').filter((e) => e.name.includes('view.json')).length"
)

# axe-core, by the library that brings it to Playwright, which can't pass this page's policy itself.
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8") + ";0"
SERIOUS = """
(async () => (await axe.run(document, {resultTypes: ['violations']})).violations
  .filter((one) => ['serious', 'critical'].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 150))}`))()
"""

TIP_IS_SHOWN = "!document.querySelector('#tip').hidden"

# A frame later the event of a scroll has come, which puts away what is under the pointer.
AT_REST = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"


@functools.cache
def world(name: str) -> ui_world.World:
    """Worlds of one time, that of the first look at any: each takes a while to be made."""
    return ui_world.WORLDS[name](_now())


@functools.cache
def _now() -> float:
    return time.time()


@dataclass
class Served:
    """Where the page is, and what it shows."""

    url: str
    world: ui_world.World


@contextlib.contextmanager
def serving(world: ui_world.World, port: int | None = None) -> Iterator[Served]:
    """Serves a world until the block ends, on a port of its own or on one served before."""
    if port is None:
        (port,) = own_ports(1)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        served = Served(f"http://127.0.0.1:{port}", world)
        app = FastAPI()
        app.include_router(
            # As new as the evaluate role's, which makes one every second.
            router(
                lambda: served.world.endpoints,
                lambda: replace(served.world.board, at=time.time()),
                LINKS,
            )
        )
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        deadline = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.01)
        try:
            yield served
        finally:
            server.should_exit = True
            thread.join(30)


@dataclass
class Page:
    """One tab, and everything that it complained about or asked for."""

    tab: playwright.Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tab.set_default_timeout(1000 * TIMEOUT_SECONDS)
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("console", lambda line: self.complaints.append(f"{line.type}: {line.text}"))

    def open(self, url: str) -> None:
        self.tab.goto(url)

    def evaluate(self, expression: str) -> Any:
        return self.tab.evaluate(expression)

    def until(self, expression: str) -> None:
        """Waits for an expression to be true; Playwright's own way is against the page's policy."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                text = self.evaluate("document.body.innerText")
                raise AssertionError(f"not in time: {expression}\n{self.complaints}\n{text}")
            self.tab.wait_for_timeout(50)

    def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        self.tab.set_viewport_size({"width": width, "height": height})
        self.tab.emulate_media(color_scheme="dark" if dark else "light")


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as runs:
        # Without its sandbox: the tests may run as root, on pages of our own.
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        started = runs.chromium.launch(executable_path=PROGRAM, args=flags)
        yield started
        started.close()


@pytest.fixture
def page(browser: playwright.Browser) -> Iterator[Page]:
    made = Page(browser.new_page())
    made.look(width=1400)
    yield made
    made.tab.close()


@contextlib.contextmanager
def shown(page: Page, name: str) -> Iterator[Served]:
    """The page of a world, drawn."""
    with serving(world(name)) as served:
        page.open(f"{served.url}/ui")
        page.until(READY)
        yield served


def text(page: Page, selector: str = "main") -> str:
    return str(page.evaluate(f"document.querySelector({selector!r}).innerText"))


@pytest.mark.parametrize("name", sorted(ui_world.WORLDS))
def test_every_world_is_drawn_without_a_complaint_and_from_one_place(page: Page, name: str) -> None:
    with serving(world(name)) as served:
        page.open(f"{served.url}/ui")
        page.until("document.querySelector('#detail h1, .welcome h1') && true")
        page.until("document.querySelector('.state.live') && true")
        assert page.complaints == []
        assert all(url.startswith(f"{served.url}/ui") for url in page.requests), page.requests
        assert "undefined" not in text(page)
        assert "NaN" not in text(page)


def test_figures_of_an_endpoint_say_of_which_time_they_are(page: Page) -> None:
    with shown(page, "rolling"):
        told = text(page, ".head .figures")
        assert "requests now" in told
        span = text(page, ".spans [aria-current]")
        assert f"errors, {span}" in told


def test_what_users_name_is_text_and_never_markup(page: Page) -> None:
    with shown(page, "hostile"):
        assert "<img src=x onerror" in text(page)
        assert page.evaluate("document.querySelectorAll('main img, main b img').length") == 0
        assert page.evaluate("window.__broken === undefined")
        hrefs = page.evaluate("[...document.querySelectorAll('a')].map((a) => a.href)")
        assert all(href.startswith(("http://127.0.0.1", "#")) for href in hrefs)
        assert page.complaints == []


def test_changes_are_shown_without_losing_scroll_focus_or_what_was_opened(
    page: Page,
) -> None:
    with shown(page, "rolling") as served:
        assert "version 4 at 25 %" in text(page)
        page.evaluate("document.querySelector('#drift').scrollIntoView()")
        scrolled = page.evaluate("scrollY")
        page.evaluate("window.kept = document.querySelector('#drift .scroll')")
        page.evaluate("kept.focus({preventScroll: true})")
        served.world = world("gone-back")
        page.until("document.querySelector('.badge').innerText === 'Rolled back'")
        assert page.evaluate("document.activeElement === kept && kept.isConnected")
        assert abs(page.evaluate("scrollY") - scrolled) < 200
        assert "version 4 was rolled back" in text(page, "#list")


def test_the_figures_under_the_pointer_stay_while_the_page_is_drawn_again(
    page: Page,
) -> None:
    with shown(page, "rolling"):
        page.evaluate("document.querySelector('#traffic .area').scrollIntoView({block: 'center'})")
        page.evaluate(AT_REST)
        box = page.evaluate(
            "document.querySelector('#traffic .area').getBoundingClientRect().toJSON()"
        )
        page.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.until(TIP_IS_SHOWN)
        assert "v3 stable" in text(page, "#tip")
        asked = page.evaluate(ASKED)
        page.until(f"{ASKED} >= {asked + 2}")  # so the first of them was drawn
        assert page.evaluate(TIP_IS_SHOWN)
        assert "v3 stable" in text(page, "#tip")
        page.tab.mouse.move(2, 2)
        page.until("document.querySelector('#tip').hidden")


def test_figures_can_be_had_by_keyboard_alone(page: Page) -> None:
    with shown(page, "rolling"):
        page.evaluate("document.querySelector('#traffic .area').focus()")
        page.tab.keyboard.press("ArrowLeft")
        page.until(TIP_IS_SHOWN)
        first = text(page, "#tip b")
        for _ in range(10):
            page.tab.keyboard.press("ArrowLeft")
        page.until(f"document.querySelector('#tip b').innerText !== {first!r}")
        page.tab.keyboard.press("Escape")
        page.until("document.querySelector('#tip').hidden")


def test_an_endpoint_and_a_span_are_chosen_by_link_and_kept_in_the_address(
    page: Page,
) -> None:
    with shown(page, "many"):
        page.evaluate("document.querySelector('#list a[href*=ticket-triage-1]').click()")
        page.until("document.querySelector('h1').innerText === 'ticket-triage-1'")
        page.evaluate("[...document.querySelectorAll('.spans a')].at(3).click()")
        page.until("document.querySelector('.spans a[aria-current]').innerText === '6h'")
        assert "endpoint=ticket-triage-1" in page.evaluate("location.hash")
        current = "document.querySelector('#list a[aria-current=page] b').innerText"
        assert page.evaluate(current) == "ticket-triage-1"


def test_the_list_can_be_skipped_and_the_endpoint_stays(page: Page) -> None:
    with serving(world("many")) as served:
        page.open(f"{served.url}/ui/#endpoint=sentiment-2&span=15m")
        page.until(READY)
        page.evaluate("document.querySelector('.skip').click()")
        assert page.evaluate("document.activeElement.id") == "detail"
        asked = page.evaluate(ASKED)
        page.until(f"{ASKED} > {asked}")
        assert text(page, "h1") == "sentiment-2"


def test_an_outage_keeps_the_picture_says_so_and_ends_by_itself(page: Page) -> None:
    with shown(page, "quiet") as served:
        port = int(served.url.rpartition(":")[2])
    page.until("document.querySelector('.state.lost') && true")
    assert "does not answer" in text(page, "#notice")
    assert "serving version 3" in text(page)
    with serving(world("gone-back"), port=port):
        page.until("document.querySelector('.state.live') && true")
        assert text(page, "#notice") == ""
        assert "version 4 was rolled back" in text(page)


def test_where_nobody_asked_yet_the_page_says_how_to(page: Page) -> None:
    with shown(page, "untouched") as served:
        assert "headrace replay" in text(page)
        served.world = world("empty")
        page.until("document.querySelector('h1').innerText === 'No endpoint yet'")
        assert "Kafka does not answer" in text(page, "#notice")


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(page: Page, *, dark: bool) -> None:
    page.look(width=1400, dark=dark)
    with shown(page, "drifted"):
        faint = page.evaluate(CONTRAST)
        assert faint == []


@pytest.mark.parametrize(
    ("width", "dark"), [(320, False), (320, True), (1280, False), (1280, True), (2560, True)]
)
@pytest.mark.parametrize("name", ["rolling", "drifted", "hostile"])
def test_axe_finds_nothing_serious(page: Page, name: str, width: int, *, dark: bool) -> None:
    page.look(width=width, dark=dark)
    with shown(page, name):
        page.evaluate(AXE)
        found = page.evaluate(SERIOUS)
        assert found == []


@pytest.mark.parametrize("width", [320, 800, 1400, 2560])
def test_no_width_makes_the_page_scroll_sideways(page: Page, width: int) -> None:
    page.look(width=width)
    with shown(page, "hostile"):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", ["rolling", "drifted"])
def test_at_an_ordinary_width_no_table_is_cut(page: Page, name: str) -> None:
    page.look(width=1280)
    with shown(page, name):
        cut = page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth)"
            ".map((e) => `${e.innerText.slice(0, 20)}: ${e.scrollWidth} of ${e.clientWidth}`)"
        )
        assert cut == []


def test_everything_that_can_be_reached_by_keyboard_has_a_name(page: Page) -> None:
    with shown(page, "rolling"):
        nameless = page.evaluate(
            "[...document.querySelectorAll('a, button, summary, [tabindex=\"0\"]')]"
            ".filter((e) => !(e.innerText.trim() || e.getAttribute('aria-label')"
            " || e.getAttribute('aria-labelledby'))).map((e) => e.outerHTML.slice(0, 80))"
        )
        assert nameless == []
        assert page.evaluate("document.querySelectorAll('h1').length") == 1


# WCAG 2: relative luminance, 4.5 to 1 for text. Of elements that hold text themselves.
CONTRAST = """
(() => {
  const rgba = (css) => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return {r, g, b, a};
  };
  const light = ({r, g, b}) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = rgba(getComputedStyle(at).backgroundColor);
      if (found.a === 255) return found;
    }
    return rgba('white');
  };
  const faint = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || element.closest('svg, noscript, .skip') || !element.checkVisibility()) continue;
    const one = light(rgba(getComputedStyle(element).color)), other = light(ground(element));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) faint.push(`${element.className} ${element.innerText.slice(0, 30)} ${ratio}`);
  }
  return faint;
})()
"""


def test_links_are_told_by_more_than_their_colour(page: Page) -> None:
    with shown(page, "rolling"):
        bare = page.evaluate(
            "[...document.querySelectorAll('#bar > a, main a[href], #notice a')]"
            ".filter((e) => getComputedStyle(e).textDecorationLine !== 'underline')"
            ".map((e) => e.innerText)"
        )
        assert bare == []
        assert page.evaluate("document.querySelectorAll('main a[href]').length") > 0


@pytest.mark.parametrize("name", ["rolling", "drifted", "hostile"])
def test_no_two_landmarks_have_one_name(page: Page, name: str) -> None:
    with shown(page, name):
        names = page.evaluate(LANDMARKS)
        assert len(set(names)) == len(names), sorted(names)
        assert not any("\n" in each for each in names), names  # a title, and no legend


@pytest.mark.parametrize("name", ["rolling", "drifted"])
def test_a_table_that_is_cut_says_that_there_is_more(page: Page, name: str) -> None:
    page.look(width=400)
    with shown(page, name):
        page.until(f"{CUT}.length > 0")
        assert page.evaluate(f"{CUT}.filter((e) => !{HINT}.includes('sideways')).length") == 0
        page.look(width=1400)
        page.until(f"{CUT}.length === 0")
        page.until(
            f"[...document.querySelectorAll('.scroll')].every((e) => !{HINT}.includes('sideways'))"
        )


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", ["rolling", "many", "hostile"])
def test_no_name_is_cut(page: Page, name: str, width: int) -> None:
    page.look(width=width)
    with shown(page, name):
        cut = page.evaluate(
            "[...document.querySelectorAll('#list .name b, .legend > span, figcaption')]"
            ".filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)"
            ".map((e) => `${e.innerText}: ${e.scrollWidth} of ${e.clientWidth}`)"
        )
        assert cut == []


def test_what_is_measured_needs_no_estimate_and_what_was_refused_says_why(page: Page) -> None:
    seen = world("rolling")
    known = seen.board.by_endpoint["sentiment"]
    measured = board.Accuracy(
        version="3", arm=Arm.STABLE, estimated=None, texts=900, measured=0.84, feedback=1234,
        mean_score=0.93, trust=Trust.OFF,
    )  # fmt: skip
    held = replace(known, accuracy=(measured,), refusals={"503 overloaded": 200, "429 slow": 22})
    with serving(
        ui_world.World(seen.endpoints, replace(seen.board, by_endpoint={"sentiment": held}))
    ) as served:
        page.open(f"{served.url}/ui")
        page.until(READY)
        said = " ".join(text(page, ".head .figures").split())
    assert "accuracy 84 % of 1,234 answers with feedback" in said
    assert "estimated" not in said
    assert "refused 222 503 overloaded: 200, 429 slow: 22, since" in said
    assert "before any version saw them" in said


CUT = "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
HINT = "getComputedStyle(e, '::before').content"
# Role and name of what screen readers list as parts of the page.
LANDMARKS = """
[...document.querySelectorAll('body > header, nav, main, body > footer, section, [role=region]')]
  .map((e) => {
    const by = e.getAttribute('aria-labelledby');
    const name = by ? document.getElementById(by).innerText : e.getAttribute('aria-label') ?? '';
    const role = e.getAttribute('role') ?? (e.localName === 'section' ? 'region' : e.localName);
    return {role, name};
  })
  .filter(({role, name}) => role !== 'region' || name)
  .map(({role, name}) => role === 'region' ? `region: ${name}` : `${role}, ${name}.`)
"""
