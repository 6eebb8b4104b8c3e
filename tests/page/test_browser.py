"""The page in Chromium, by clicks and keys. For the pictures of the docs: `LUDUS_PICTURES=docs pytest tests/page`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.gateway.client import GameClient
from ludus.league import config as configs
from ludus.league.running import make_service
from ludus.models.versions.store import VersionStore

from .leagues import make_league
from .running import publish_versions, running_trial
from .runs import make_run
from .test_server import start

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGS = [
    "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
DESKTOP, PHONE = {"width": 1100, "height": 820}, {"width": 390, "height": 844}
VIEWS = ("standings", "payoff", "ratings", "lineage", "matches", "play")
PICTURED = ("standings", "payoff", "ratings", "lineage")  # and the board
WAIT_MS = 60_000

# Of all texts that can be seen: those whose contrast is below what WCAG asks for (AA).
FAINT = """() => {
  const parts = (text) => {
    const numbers = text.match(/[\\d.]+/g).map(Number);
    const scale = text.startsWith("color") ? 255 : 1;
    return [...numbers.slice(0, 3).map((n) => scale * n), numbers[3] ?? 1];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((n) => (n /= 255) <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest("svg, option") || element.matches(".skip")) continue;
    const style = getComputedStyle(element);
    let at = element;
    while (at && parts(getComputedStyle(at).backgroundColor)[3] === 0) at = at.parentElement;
    const [one, two] = [parts(style.color), parts(getComputedStyle(at ?? document.body).backgroundColor)].map(light);
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push([element.outerHTML.slice(0, 120), ratio]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: `apt-get install chromium` has it, and as root so does `make test`")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        args = [*ARGS, "--no-sandbox"] if os.geteuid() == 0 else ARGS
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=args)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("trials")
    make_league(project, "four")
    for number, name in enumerate(("slow", "usual", "fast")):
        make_run(project, name, seed=number)
    return project


@pytest.fixture
def server(project: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process, said = start(project)
    with process:
        yield process, said["url"].rstrip("/")
        process.kill()


@pytest.fixture
def open_page(browser, server):
    """Opens a page and sees to it that nothing fails in it and that it asks nobody else for anything."""
    pages, problems, asked = [], [], []

    def open_page(path: str, *, phone: bool = False, dark: bool = False):
        context = browser.new_context(viewport=PHONE if phone else DESKTOP, color_scheme="dark" if dark else "light")
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(server[1] + path)
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.context.close()
    assert asked
    assert all(url.startswith((server[1] + "/", "data:")) for url in asked)
    open_page.problems = problems
    assert [problem for problem in problems if "ERR_CONNECTION" not in problem and " 503 " not in problem] == []


def keep_picture(page, name: str, tmp_path: Path) -> None:
    path = tmp_path / f"page-{name}.png"
    page.screenshot(path=path)
    if folder := os.environ.get("LUDUS_PICTURES"):
        from PIL import Image

        Image.open(path).convert("RGB").quantize(64).save(Path(folder) / path.name, optimize=True)


def test_every_view_is_readable_at_both_widths_and_in_both_themes(open_page, tmp_path: Path) -> None:
    for is_phone in (False, True):
        page = open_page("/", phone=is_phone, dark=is_phone)
        page.click("text=four")
        for view in VIEWS:
            page.get_by_role("link", name=view, exact=False).first.click()
            page.wait_for_url(f"**/four/{view}")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            assert page.evaluate(FAINT) == [], view
            assert page.locator("nav[aria-label=views] [aria-current]").inner_text().lower() == view
            assert page.locator("main :is(table, svg, form)").count() > 0
            if view in PICTURED:
                keep_picture(page, f"{view}-{'phone' if is_phone else 'desktop'}", tmp_path)
        page.click("#theme")
        page.click("#theme" if not is_phone else "h1")
        theme = "light" if is_phone else "dark"
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        page.goto(page.url.replace("play", "payoff"))
        assert page.evaluate("document.documentElement.dataset.theme") == theme  # it is remembered
        page.get_by_role("link", name="as first").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#sides [aria-current]:text('as first')")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(FAINT) == []


def test_a_person_plays_by_mouse_and_by_keys_and_the_result_counts(open_page, tmp_path: Path) -> None:
    page = open_page("/trials/four/play")
    page.select_option("#opponent", "random")
    page.select_option("#side", "0")
    page.fill("#person", "alice")
    page.focus("#person")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Start"
    page.keyboard.press("Enter")
    page.wait_for_selector("#turn.playing")
    assert page.evaluate("document.activeElement !== document.body")  # focus is not lost with the form
    for number in range(21):
        page.wait_for_function(
            "n => document.querySelector('#turn.over') || document.querySelectorAll('.cell:not(.v0)').length >= 2 * n",
            arg=number,
        )
        page.wait_for_selector("#turn:is(.playing, .over)")
        if page.locator("#turn.over").count():
            break
        if number == 2:
            keep_picture(page, "board-desktop", tmp_path)
            page.set_viewport_size(PHONE)
            page.emulate_media(color_scheme="dark")
            keep_picture(page, "board-phone", tmp_path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        free = page.locator(".cell:not([aria-disabled])[data-key]")
        column = free.nth(0)
        match number % 3:
            case 0:
                page.keyboard.press(column.get_attribute("data-key"))
            case 1:
                column.click()
            case 2:  # by Tab's order and the arrows
                page.locator(".cell").nth(6).focus()
                while not page.evaluate("document.activeElement.matches('.cell:not([aria-disabled])')"):
                    page.keyboard.press("ArrowLeft")
                page.keyboard.press("Enter")
    result = page.wait_for_selector("#turn:has-text('ounted')").inner_text()
    assert "Counted: your rating is" in result
    assert page.locator("#turn").get_attribute("role") == "status"  # it is read out
    page.click("text=Play again")
    page.wait_for_selector("#turn.playing")
    assert page.locator(".cell.v1").count() == 1  # the other side: the opponent has moved first
    page.click("text=Leave the game")
    page.wait_for_selector("#start")
    page.goto(page.url.replace("play", "standings"))
    assert "alice" in page.inner_text("main")


def test_a_page_left_open_shows_what_changes_does_not_grow_and_says_when_it_is_alone(
    open_page, server, project
) -> None:
    page = open_page("/trials/four/standings")
    other = open_page("/trials/four/matches", phone=True)
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').some(each => each.name.endsWith('standings'))"
    )
    elements = "document.querySelectorAll('*').length"
    before, shown = page.evaluate(elements), page.inner_text("main")
    other.select_option("#player", "main")
    other.wait_for_function("() => !document.querySelector('tbody').innerText.includes('random\\n')")
    folder = project / "four"
    service = make_service(configs.load(folder), folder)
    match = service.request_named(["main", "random"])
    service.report_result(match["id"], [1.0, -1.0])
    service.close()
    page.wait_for_function("text => document.querySelector('main').innerText !== text", arg=shown)
    other.wait_for_function("id => document.querySelector('tbody').innerText.includes(id)", arg=match["id"])
    assert other.evaluate("document.querySelector('#player').value") == "main"  # what was chosen stays chosen
    assert page.evaluate(elements) == before
    page.route("**/standings", lambda route: route.fulfill(status=503))  # an answer, but none of the view
    page.wait_for_selector("#state:has-text('Not connected')")
    page.unroute("**/standings")
    page.wait_for_function("() => document.querySelector('#state').innerText === ''")
    server[0].kill()
    page.wait_for_selector("#state:has-text('Not connected')")
    assert "main" in page.inner_text("main")  # what was known stays


def keep_both(page, name: str, tmp_path: Path, *, height: int | None = None) -> None:
    """Pictures at both widths; nothing may be too wide or too faint."""
    for size, theme in (("desktop", "light"), ("phone", "dark")):
        window = DESKTOP if size == "desktop" else PHONE
        page.set_viewport_size(window | {"height": height or window["height"]})
        page.emulate_media(color_scheme=theme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, size)
        assert page.evaluate(FAINT) == [], (name, size)
        keep_picture(page, f"{name}-{size}", tmp_path)
    page.set_viewport_size(DESKTOP)


def test_runs_are_read_and_compared_by_mouse_and_keys(open_page, tmp_path: Path) -> None:
    page = open_page("/trials/usual/training")
    page.wait_for_selector("text=Bottleneck, when it ran: Inference.")
    keep_both(page, "training", tmp_path, height=1640)
    page.focus("#smooth")
    page.keyboard.press("ArrowDown")  # a list that is chosen from is sent at once
    page.wait_for_selector("#smooth option[value=some][selected]", state="attached")
    page.get_by_role("link", name="Metrics").click()
    page.select_option("#group", "train/")
    page.wait_for_selector(".multiples section:nth-child(3):last-child")
    keep_both(page, "metrics", tmp_path)
    page.click("text=ludus")
    for name in ("slow", "usual", "fast"):
        page.focus(f"[aria-label='compare {name}']")
        page.keyboard.press("Space")
        page.wait_for_selector(f"[value={name}][checked]")
    page.get_by_role("button", name="Compare").press("Enter")
    page.wait_for_url("**/compare?*")
    assert page.locator(".wide-chart polyline").count() == 3
    keep_both(page, "compare", tmp_path)
    page.select_option("#metric", "lag/mean")
    page.wait_for_selector("svg[aria-label^='lag/mean']")
    assert page.url.count("trial=") == 3


def test_a_running_trial_is_commanded_and_its_games_are_seen_live(open_page, project: Path, tmp_path: Path) -> None:
    with running_trial(project) as url:
        publish_versions(project / "monday")
        page = open_page("/trials/monday/workers")
        page.get_by_role("button", name="pause idle/0").press("Enter")
        page.wait_for_selector("text=pause idle/0: done")
        page.wait_for_selector("[aria-label='resume idle/0']")
        keep_both(page, "workers", tmp_path)
        with contextlib.ExitStack() as stack:
            games = [stack.enter_context(GameClient(url, f"game-{number}")) for number in range(4)]
            for game in games:
                game.start()
            page.get_by_role("link", name="Sessions").click()
            page.wait_for_selector("text=game-3")
            for number in range(8):
                games[number % 4].tick(b"[0.1, 0.25, -1.5]")
            keep_both(page, "sessions", tmp_path)
            page.get_by_role("link", name="game-3").click()
            page.wait_for_selector("text=Its last steps")
            for number in range(3):
                games[3].tick(b'{"obs": [%d, 0.5]}' % number)
                page.wait_for_selector(f'text={{"obs": [{number}, 0.5]}}')
            keep_both(page, "session", tmp_path)
            for game in games:
                game.end()
        page.get_by_role("link", name="Versions").click()
        page.locator("summary", has_text="Promote").first.press("Enter")
        keep_both(page, "versions", tmp_path)
        page.get_by_role("button", name="version 3").press("Enter")
        page.wait_for_selector("text=Roll back")
        assert VersionStore(project / "monday" / "models").tags("policy")["production"] == 3
