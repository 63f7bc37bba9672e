"""What a browser shows of both models after a vote."""

from collections.abc import Generator

import pytest

from tests.webui.conftest import Site, Visit
from tests.webui.fake_answers import MODELS
from tests.webui.fake_controller import some_votes
from webui import texts
from webui.ranking import words


def test_a_vote_side_by_side_tells_its_reason_and_no_change_of_rating(visit: Visit) -> None:
    """The fake's board moves between its two readings, as a real one does by the votes of others."""
    visit.site.arena.votes.extend(some_votes())
    page = visit.open("/side-by-side")
    page.wait_for_function(f"document.querySelector('#model-b input')?.value === '{MODELS[1]}'")
    visit.ask_and_wait("Hello!")
    page.click("#vote-left")
    page.wait_for_selector(".agon-reveal")
    assert page.inner_text(".agon-unrated") == words.not_rated(["named"])
    page.locator(".agon-standing", has_text=" of ").nth(1).wait_for()
    shown = page.locator(".agon-standing").all_inner_texts()
    assert page.locator(".agon-standing b").count() == 0, shown
    assert not any(texts.NEW_TO_BOARD in text for text in shown)


@pytest.fixture
def full_board(site: Site) -> Generator[None, None, None]:
    """A board whose models have cards."""
    site.arena.has_full_board = True
    yield
    site.arena.has_full_board = False


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
ZOOMED = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}


@pytest.mark.usefixtures("full_board")
@pytest.mark.parametrize("visit", [PHONE, ZOOMED, {}], indirect=True, ids=["phone", "200-percent", "wide"])
def test_the_reveal_shows_the_cards_of_both_models_also_after_a_reload(visit: Visit) -> None:
    page = visit.open("/side-by-side")
    page.wait_for_function(f"document.querySelector('#model-b input')?.value === '{MODELS[1]}'")
    visit.ask_and_wait("Hello!")
    assert page.locator(".agon-plate-facts").count() == 0
    page.click("#vote-left")
    for _ in range(2):
        facts = page.locator(".agon-plate-facts")
        facts.nth(1).wait_for()
        for known in ("Heron Lab", "Apache-2.0", "1,024 tokens of context", "a Xeon in Lyon", "0.42 J a token"):
            assert known in facts.nth(0).inner_text()
        for known in ("parameters", texts.RUNS_ON["cpu"]):
            assert known in facts.nth(1).inner_text()
        cut = facts.evaluate_all("found => found.filter((one) => one.scrollHeight > one.clientHeight + 1).length")
        assert cut == 0
        page.reload()
