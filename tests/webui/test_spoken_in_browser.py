"""The pages for those who hear them or use the keyboard alone: axe-core, names and announcements."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import axe_playwright_python
import pytest
from playwright.sync_api import Page

from tests.webui.conftest import Visit
from tests.webui.states import walk
from webui import texts

_AXE = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")).read_text(encoding="utf-8")
#: WCAG 2.2 AA and axe's best practices; the size of targets is not among its defaults.
_RUN = """(only) => axe.run(document, {
  resultTypes: ["violations"],
  ...(only ? {runOnly: only} : {}),
  rules: {"target-size": {enabled: true}},
}).then((found) => found.violations.flatMap(
  (rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 140)}`)
))
"""
#: Rules whose outcome depends on colours.
_OF_COLOURS = ["color-contrast", "link-in-text-block"]
_Theme = Literal["light", "dark"]
_THEMES: tuple[_Theme, _Theme] = ("light", "dark")
_SHOW_THEME = """(name) => {
  const root = document.documentElement;
  for (const element of [root, document.body]) element.classList.toggle("dark", name === "dark");
  root.style.colorScheme = name;
}"""
_NOTHING_FADES = """document.getAnimations().every(
  (one) => one.playState !== "running" || one.effect.getTiming().iterations === Infinity
)"""  #: fading text has no contrast


@pytest.fixture
def full(visit: Visit) -> Iterator[None]:
    """A controller whose boards have everything that a view can hold."""
    visit.site.arena.has_full_board = True
    yield
    visit.site.arena.has_full_board = False


@pytest.mark.slow
@pytest.mark.parametrize("visit", [{"reduced_motion": "reduce"}], indirect=True, ids=["still"])  # nothing to wait for
@pytest.mark.usefixtures("full")
def test_axe_finds_nothing_on_any_page_in_any_state_and_theme(visit: Visit) -> None:
    page = visit.page
    found: dict[str, list[str]] = {}
    themes = _THEMES
    for state in walk(page, visit.site):
        if page.evaluate("typeof axe") == "undefined":
            page.evaluate(_AXE)
        for theme in themes:
            _show(page, theme)
            if violations := page.evaluate(_RUN, _OF_COLOURS if theme == "dark" else None):
                found[f"{state}, {theme}"] = violations
        themes = themes[::-1]  # the walk goes on in the theme that is shown
    assert found == {}


def _show(page: Page, theme: _Theme) -> None:
    page.emulate_media(color_scheme=theme)
    page.evaluate(_SHOW_THEME, theme)
    page.wait_for_function(_NOTHING_FADES)


def test_each_answer_has_a_name_and_no_text_is_read_out_while_it_streams(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    assert page.get_by_role("log").count() == 0
    assert page.locator("#thread [aria-live]:not([aria-live=off])").count() == 0
    for side, beginning in (("a", "Hello!"), ("b", "Good day")):
        page.get_by_role("group", name=texts.ANSWER_OF_SIDE[side]).get_by_text(beginning).wait_for()  # type: ignore[index]
    assert page.locator("#thread [aria-label*='message:']").count() == 0, "no label repeats the text"
    assert page.locator("h1").count() == 1


def test_the_reveal_is_announced_in_a_region_that_was_there_before(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    region = page.locator("body > [role=status]", has_text=texts.BOTH_DONE)
    region.wait_for(state="attached")
    page.evaluate("document.querySelector('body > [role=status]').dataset.old = ''")
    page.click("#vote-left")
    page.wait_for_selector(".agon-reveal")
    names = page.locator(".agon-reveal .agon-name").all_inner_texts()
    said = page.locator("body > [role=status][data-old]", has_text=texts.VOTED["a"])
    said.wait_for(state="attached")
    assert all(name in (said.text_content() or "") for name in names)
