"""The admin page as the operator uses it, in Chromium, over the fake controller."""

from collections.abc import Generator
from datetime import UTC, datetime

import httpx
import pytest
from playwright.sync_api import Page

from tests.webui.conftest import Site, Visit
from tests.webui.fake_admin import ADMIN_TOKEN, FakeAdmin
from tests.webui.fake_answers import MODELS
from webui.admin import words
from wire.model_cards import BoardCard

DARK_PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}


@pytest.fixture(autouse=True)
def admin(site: Site) -> Generator[FakeAdmin, None, None]:
    """What the fake controller was told. The next test finds it as it was."""
    admin = site.arena.admin
    yield admin
    for part in (admin.switches, admin.drained, admin.notices, admin.actions, admin.voided):
        part.clear()
    admin.terms_text = ""


def sign_in(visit: Visit, token: str = ADMIN_TOKEN) -> Page:
    page = visit.page
    page.goto(f"{visit.site.url}/admin")
    page.get_by_label(words.TOKEN, exact=True).fill(token)
    page.get_by_role("button", name=words.SIGN_IN).click()
    return page


def opened(visit: Visit) -> Page:
    page = sign_in(visit)
    page.get_by_role("heading", name=words.MODELS, exact=True).wait_for()
    return page


def done(page: Page) -> None:
    page.get_by_text(words.DONE).wait_for()


def test_without_the_token_the_page_shows_nothing(visit: Visit) -> None:
    page = sign_in(visit, "guessed")
    page.get_by_text(words.WRONG_TOKEN).wait_for()
    assert page.locator("#desk").inner_html() == ""
    assert not any(name in page.content() for name in MODELS)


def test_the_token_stays_in_the_tab_until_the_operator_signs_out(visit: Visit) -> None:
    page = opened(visit)
    page.reload()
    page.get_by_role("heading", name=words.MODELS, exact=True).wait_for()
    page.get_by_role("button", name=words.SIGN_OUT).click()
    page.get_by_label(words.TOKEN, exact=True).wait_for()
    page.reload()
    page.get_by_label(words.TOKEN, exact=True).wait_for()
    assert ADMIN_TOKEN not in page.content()


def test_a_model_is_switched_off_and_weighed_with_a_reason(visit: Visit, admin: FakeAdmin) -> None:
    page = opened(visit)
    row = page.get_by_role("form", name=MODELS[0], exact=True)
    row.get_by_label(words.IS_ON, exact=True).uncheck()
    row.get_by_label(words.WEIGHT).fill("2.5")
    row.get_by_label(words.REASON).fill("too slow <today>")
    row.get_by_role("button", name=words.SAVE).click()
    done(page)
    assert admin.switches[MODELS[0]].model_dump() == {"is_on": False, "weight": 2.5}
    assert not row.get_by_label(words.IS_ON, exact=True).is_checked()
    log = page.locator("section", has=page.get_by_role("heading", name=words.ACTIONS)).locator("tbody tr").first
    assert "too slow <today>" in log.inner_text()
    assert words.ACTION_NAMES["set_model"] in log.inner_text()


def test_a_model_is_added_by_its_card_retired_and_put_back(visit: Visit, admin: FakeAdmin) -> None:
    arena = visit.site.arena
    cards, arena.cards = arena.cards, [BoardCard(model=MODELS[1], provider="Tit Works", joules_per_token=0.5)]
    try:
        page = opened(visit)
        form = page.get_by_role("form", name=words.NEW_MODEL, exact=True)
        form.get_by_label(words.NEW_MODEL).fill("lab/finch-2")
        form.get_by_label(words.PROVIDER).fill("Lab & Sons")
        form.get_by_label(words.REASON).fill("asked for")
        form.get_by_role("button", name=words.ADD).click()
        done(page)
        new = arena.cards[-1]
        assert (new.model, new.provider, new.licence, new.retired) == ("lab/finch-2", "Lab & Sons", None, None)
        assert admin.actions[0].reason == "asked for"

        form = page.get_by_role("form", name=words.RETIREMENT, exact=True)
        form.get_by_label(words.RETIREMENT).select_option(f"{words.RETIRE}: {MODELS[1]}")
        form.get_by_role("button", name=words.SAVE).click()
        back = f"{words.PUT_BACK}: {MODELS[1]}"
        form.locator("option", has_text=back).wait_for(state="attached")
        today = datetime.now(UTC).date().isoformat()
        assert arena.cards[-1].model_dump(exclude_none=True, exclude={"starter_prompts", "languages"}) == {
            "model": MODELS[1],
            "provider": "Tit Works",
            "joules_per_token": 0.5,
            "retired": today,
        }
        form.get_by_label(words.RETIREMENT).select_option(back)
        form.get_by_role("button", name=words.SAVE).click()
        form.locator("option", has_text=f"{words.RETIRE}: {MODELS[1]}").wait_for(state="attached")
        assert arena.cards[-1].retired is None
    finally:
        arena.cards = cards


def test_a_worker_is_drained_and_resumed(visit: Visit, admin: FakeAdmin) -> None:
    page = opened(visit)
    row = page.get_by_role("form", name="w-1", exact=True)
    row.get_by_role("button", name=words.DRAIN).click()
    done(page)
    assert admin.drained == {"w-1"}
    row.get_by_role("button", name=words.RESUME).click()
    row.get_by_role("button", name=words.DRAIN).wait_for()
    assert admin.drained == set()


def test_a_notice_is_shown_until_it_is_removed(visit: Visit, admin: FakeAdmin) -> None:
    page = opened(visit)
    page.get_by_label(words.NOTICE_TEXT, exact=True).fill("Back at <noon>.")
    page.get_by_label(words.SEVERITY).select_option("critical")
    page.get_by_label(words.ENDS).fill("2035-01-01T12:00")
    page.get_by_role("button", name=words.SHOW_NOTICE).click()
    done(page)
    [notice] = admin.notices
    assert (notice.text, notice.severity, notice.ends is not None) == ("Back at <noon>.", "critical", True)
    row = page.get_by_role("form", name="Back at <noon>.", exact=True)
    assert words.NOTICE_STATES["now"] in row.inner_text()
    row.get_by_role("button", name=words.REMOVE).click()
    row.wait_for(state="detached")
    assert admin.notices == []


def test_the_terms_are_set(visit: Visit, admin: FakeAdmin) -> None:
    page = opened(visit)
    page.get_by_text(words.NO_TERMS).wait_for()
    form = page.locator("[data-act=set_terms]")
    form.get_by_label(words.TERMS_TEXT).fill("Be kind.\n\nAnd brief.")
    form.get_by_role("button").click()
    done(page)
    assert admin.terms_text == "Be kind.\n\nAnd brief."
    assert page.locator("[data-act=set_terms] textarea").input_value() == "Be kind.\n\nAnd brief."
    assert str(admin.version) in page.locator("#desk").inner_text()


def test_a_vote_is_voided_with_a_reason_and_counts_again(visit: Visit, admin: FakeAdmin) -> None:
    page = opened(visit)
    row = page.locator("[data-act=judge_votes]").first
    row.get_by_role("button", name=words.VOID).click()
    assert admin.voided == set()  # the browser asks for a reason first
    row.get_by_label(words.REASON).fill("a test of mine")
    row.get_by_role("button", name=words.VOID).click()
    done(page)
    assert admin.voided == {"battle-60"}
    assert admin.actions[0].reason == "a test of mine"
    row.get_by_label(words.REASON).fill("a mistake")
    row.get_by_role("button", name=words.RESTORE).click()
    row.get_by_role("button", name=words.VOID).wait_for()
    assert admin.voided == set()


def test_older_votes_are_a_page_further(visit: Visit) -> None:
    page = opened(visit)
    fields = page.locator("[data-act=judge_votes] [name=battle_id]")
    assert fields.first.input_value() == "battle-60"
    page.get_by_role("button", name=words.OLDER).click()
    page.wait_for_function("document.querySelector('[data-act=judge_votes] [name=battle_id]').value === 'battle-35'")
    page.get_by_role("button", name=words.NEWEST).click()
    page.wait_for_function("document.querySelector('[data-act=judge_votes] [name=battle_id]').value === 'battle-60'")


def test_a_model_is_put_to_sleep_and_another_is_added(visit: Visit, admin: FakeAdmin) -> None:
    page = opened(visit)
    section = page.get_by_role("region", name=words.SERVED)
    assert words.RESIDENCES["resident"] in section.inner_text()
    row = section.locator("[data-act=act_served]").first
    name = row.locator("[name=name]").input_value()
    row.get_by_label(words.ACTION).select_option("sleep")
    row.get_by_role("button", name=words.DO).click()
    done(page)
    assert admin.residences == {name: "asleep"}
    section.get_by_text(words.RESIDENCES["asleep"]).wait_for()
    form = section.locator("[data-act=add_served]")
    form.get_by_label(words.ADD_MODEL).fill("mine")
    form.get_by_label(words.SOURCE).fill("/models/mine")
    form.get_by_role("button", name=words.ADD).click()
    section.get_by_role("form", name=f"{words.MEMORY_OF} mine", exact=True).wait_for()
    assert (admin.actions[0].action, admin.actions[0].values) == ("add_model", {"source": "/models/mine"})


def test_failures_and_limits_are_shown_and_the_log_is_exported(visit: Visit, admin: FakeAdmin) -> None:
    admin.note("invite_voter", "ada", {}, "a new colleague")
    page = opened(visit)
    assert "worker vanished" in page.get_by_role("region", name=words.FAILURES).inner_text()
    assert words.RATE_KINDS["battle"] in page.get_by_role("region", name=words.RATES).inner_text()
    with page.expect_download() as download:
        page.get_by_role("button", name=words.EXPORT).click()
    assert "a new colleague" in download.value.path().read_text()


def test_a_value_out_of_bounds_is_refused_in_words(visit: Visit, admin: FakeAdmin) -> None:
    page = opened(visit)
    page.locator("[data-act=set_model] [name=weight]").first.evaluate("box => (box.type = 'text', box.value = 'heavy')")
    page.locator("[data-act=set_model] button").first.click()
    page.locator("#said.agon-admin-failure").get_by_text("out of bounds").wait_for()
    assert admin.switches == {}


@pytest.mark.parametrize("visit", [DARK_PHONE], indirect=True, ids=["dark phone"])
def test_the_page_fits_a_phone(visit: Visit) -> None:
    page = opened(visit)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.body.classList.contains('dark')")


def test_the_routes_of_the_page_answer_nothing_without_the_token(site: Site) -> None:
    with httpx.Client(base_url=site.url, timeout=60, trust_env=False, verify=False) as client:
        asked = [client.get("/admin/desk"), client.get("/admin/actions")]
        asked.append(client.post("/admin/act", json={"act": "set_terms", "fields": {"text": "x"}}))
        assert [answer.status_code for answer in asked] == [401, 401, 401]
        assert site.arena.admin.terms_text == ""
        bad = [
            {"act": "format_disk", "fields": {}},
            {"act": "set_model", "fields": {}},
            {"act": "set_model", "fields": {"model": "../../votes/import", "weight": "1"}},
            {"act": "drain_worker", "fields": {"worker_id": "../models/x", "is_drained": "yes"}},
            {"fields": 1},
        ]
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        for body in bad:
            assert client.post("/admin/act", json=body, headers=headers).status_code == 400
            assert site.arena.admin.actions == []
