"""The page in a real browser: ask, why, teach, undo, forget; by keyboard, on a phone, in the dark, with a token."""

import re
import shutil
import threading
import time

import pytest
import uvicorn

from masil.studio import AccessPolicy, Limits, create_app
from masil.studio.server import bind

play = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = play.expect


@pytest.fixture(scope="module")
def browser():
    place = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if place is None:
        pytest.skip("there is no Chromium on this machine; on Debian: apt-get install chromium")
    flags = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with play.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=place, args=flags)
        yield opened
        opened.close()


@pytest.fixture
def served(model_file):
    """Serve the model on a free port; takes what `create_app` takes, gives the address."""
    running = []

    def start(**settings):
        listener = bind("127.0.0.1", 0)
        app = create_app(model_file, device="cpu", limits=Limits(seconds=60), **settings)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join()


@pytest.fixture
def visit(browser, served):
    """Open the page, and see at the end that nothing was wrong in it and nothing was fetched from elsewhere."""
    contexts, wrong = [], []

    def go(where=None, hash_="", expected=(), **settings):
        where = where or served()
        context = browser.new_context(**settings)
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda line: (
                wrong.append(line.text)
                if line.type == "error" and not any(each in line.text for each in expected)
                else None
            ),
        )
        page.on(
            "request",
            lambda request: None if request.url.startswith((where, "data:", "blob:")) else wrong.append(request.url),
        )
        page.goto(f"{where}{hash_}")
        return page

    expect.set_options(timeout=30_000)
    yield go
    for context in contexts:
        context.close()
    assert wrong == []


def files(photo, kind, n=1):
    return [{"name": f"{seed}.png", "mimeType": "image/png", "buffer": photo(kind, 100 + seed)} for seed in range(n)]


def test_ask_and_see_why_then_teach_undo_and_forget(visit, photo):
    page = visit(viewport={"width": 1440, "height": 900})
    expect(page.locator("#figure-classes")).to_have_text("5")
    page.set_input_files("#ask-tray input", files(photo, 2) + files(photo, 7))
    expect(page.locator("#verdict")).to_have_text("k2")
    expect(page.locator("#bars li")).to_have_count(5)
    expect(page.locator("#announcer")).to_contain_text("Photo 1: k2")
    expect(page.locator("#why")).to_have_attribute("aria-busy", "false")
    first = page.locator("#evidence button").first
    expect(page.locator("#canvas .heat").first).to_be_visible()
    first.click()
    expect(first).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#canvas .heat").first).to_be_hidden()

    page.get_by_label("Photo 2").first.click()
    page.get_by_label("Name of the class").fill("<img src=x onerror=alert(1)>")
    page.get_by_label("Taught by").fill("Grace")
    page.set_input_files("#teach-tray input", files(photo, 7, 5))
    page.get_by_role("button", name="Learn from 5 photos").click()
    expect(page.locator("#lesson-line")).to_contain_text("is known: 5 of 5 photos recognised")
    expect(page.locator("#lesson")).to_be_focused()
    expect(page.locator("#lesson-near li")).to_have_count(3)
    expect(page.locator("#verdict")).to_have_text("<img src=x onerror=alert(1)>")
    expect(page.locator("#history li").first).to_contain_text("Grace")
    expect(page.locator("#figure-classes")).to_have_text("6")

    page.get_by_role("button", name="Undo this session").click()
    expect(page.locator("#figure-classes")).to_have_text("5")
    expect(page.locator("#verdict")).to_have_text(re.compile("k.|Unknown"))
    page.get_by_label("Forget k3", exact=True).click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.locator("#figure-classes")).to_have_text("5")
    page.get_by_label("Forget k3", exact=True).click()
    page.get_by_role("button", name="Forget", exact=True).click()
    expect(page.locator("#figure-classes")).to_have_text("4")
    expect(page.locator("#history li").first).to_contain_text("forgotten")


def test_the_keyboard_is_enough_and_mistakes_are_sentences(visit, photo):
    page = visit(expected=["422"])
    expect(page.locator("#figure-classes")).to_have_text("5")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to asking")).to_be_focused()
    page.locator("#learn").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#teach-problem")).to_have_text("The class has no name yet; type one.")
    expect(page.locator("#class-name")).to_be_focused()
    page.keyboard.type("k2")
    expect(page.locator("#name-note")).to_have_text("Known from 12 photos; what you add makes it surer.")
    page.keyboard.press("Enter")
    expect(page.locator("#teach-problem")).to_contain_text("There are no photos yet")
    page.set_input_files("#teach-tray input", [{"name": "x.png", "mimeType": "image/png", "buffer": b"<svg/>"}])
    page.locator("#learn").press("Enter")
    expect(page.locator("#teach-problem")).to_contain_text("Image 1 (x.png) is an SVG drawing")
    page.get_by_label("Remove photo 1").press("Enter")
    expect(page.locator("#teach-tray input")).to_be_focused()
    page.get_by_label("Forget k1", exact=True).press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("#figure-classes")).to_have_text("5")
    outline = page.get_by_label("Forget k1", exact=True).evaluate("each => getComputedStyle(each).outlineStyle")
    assert outline == "solid"  # the focus came back to where it was, and is seen


def test_everything_that_can_be_used_has_a_name(visit, photo):
    page = visit()
    page.set_input_files("#ask-tray input", files(photo, 2))
    page.set_input_files("#teach-tray input", files(photo, 7, 2))
    expect(page.locator("#why")).to_have_attribute("aria-busy", "false")
    nameless = page.locator("button, input, img, dialog, section").evaluate_all(
        """all => all.filter((each) => {
            const by = each.getAttribute("aria-labelledby");
            const named = each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.length
                || (by && document.getElementById(by)) || (each.tagName === "IMG" && each.hasAttribute("alt"));
            return !named;
        }).map((each) => each.outerHTML)"""
    )
    assert nameless == []
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_it_fits_in_the_light_and_in_the_dark(visit, photo, width):
    where, grounds = None, set()
    for scheme in ("light", "dark"):
        page = visit(where, viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce")
        where = page.url
        page.set_input_files("#ask-tray input", files(photo, 2))
        expect(page.locator("#why")).to_have_attribute("aria-busy", "false")
        assert page.locator("html").evaluate("each => each.scrollWidth <= innerWidth")
        grounds.add(page.locator("body").evaluate("each => getComputedStyle(each).backgroundColor"))
        assert page.locator(".fill").first.evaluate("each => getComputedStyle(each).transitionDuration") == "0s"
    assert len(grounds) == 2


def test_a_token_in_the_address_opens_and_is_gone_from_it(visit, served):
    where = served(access=AccessPolicy(token="sesame-sesame"))
    page = visit(where, "#token=sesame-sesame")
    expect(page.locator("#figure-classes")).to_have_text("5")
    assert page.url == where
    page.reload()
    expect(page.locator("#figure-classes")).to_have_text("5")


def test_without_it_the_page_asks_for_the_token(visit, served):
    page = visit(served(access=AccessPolicy(token="sesame-sesame")), expected=["401"])
    page.get_by_label("Token", exact=True).fill("sesame-sesame")
    page.keyboard.press("Enter")
    expect(page.locator("#figure-classes")).to_have_text("5")


def test_the_camera_takes_photos_until_it_is_closed(visit):
    page = visit(permissions=["camera"])
    page.get_by_role("button", name="Use the camera").click()
    take = page.get_by_role("button", name="Take photo")
    expect(take).to_be_focused()
    page.wait_for_timeout(500)
    take.click()
    expect(page.locator("#camera-count")).to_have_text("1 photo taken.")
    page.get_by_role("button", name="Done").click()
    expect(page.locator("#verdict")).not_to_be_empty()
    expect(page.locator("#ask-tray .thumb")).to_have_count(1)


def test_a_studio_that_has_gone_is_a_sentence(visit, served, photo):
    page = visit(expected=["ERR_"])
    expect(page.locator("#figure-classes")).to_have_text("5")
    page.context.set_offline(True)
    page.set_input_files("#ask-tray input", files(photo, 2))
    expect(page.locator("#ask-problem")).to_have_text("The studio does not answer; is `masil serve` still running?")
