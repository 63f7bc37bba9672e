"""What a browser shows of both models after a vote."""

from tests.webui.conftest import Visit
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
