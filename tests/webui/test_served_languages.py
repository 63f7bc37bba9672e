"""What a browser gets is in its visitor's language: pages and their configuration, plain pages, files and refusals."""

from collections.abc import Iterator

import httpx
import pytest

from tests.webui.conftest import Site
from webui import texts
from webui.languages import COOKIE, DEFAULT, LANGUAGES, speaking

PAGES = (*texts.PAGES, texts.ABOUT_PATH)
CONFIGS = ("/config", "/config?page=chat", "/gradio_api/info")
#: The characters around a mark, as they are and as JSON may escape them.
MARK_ENDS = ("\ue000", "\ue001", "ue000", "ue001", "uE000")


@pytest.fixture
def client(site: Site) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, trust_env=False) as client:
        client.get("/")  # for the voter's cookie
        yield client


def get(client: httpx.Client, path: str, language: str, **headers: str) -> httpx.Response:
    return client.get(path, headers={"Accept-Language": f"{language}-XX,{language};q=0.9,en;q=0.5", **headers})


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_page_and_no_configuration_has_a_mark_in_it(client: httpx.Client, language: str) -> None:
    for path in (*PAGES, *CONFIGS, texts.HISTORY_PATH):
        answer = get(client, path, language)
        assert answer.status_code == 200, path
        assert not any(end in answer.text for end in MARK_ENDS), path


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_page_says_which_language_it_is_in(client: httpx.Client, language: str) -> None:
    for path in (*PAGES, texts.HISTORY_PATH, "/no/such/page", "/shared/unknown", "/join/nothing"):
        answer = get(client, path, language, Accept="text/html")
        assert answer.text.count("<html") == 1
        assert f'lang="{language}"' in answer.text.partition("<html")[2].partition(">")[0], path
        assert answer.headers["content-language"] == language
        assert {"Cookie", "Accept-Language"} <= {name.strip() for name in answer.headers["vary"].split(",")}


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_have_the_words_of_the_language(client: httpx.Client, language: str) -> None:
    with speaking(language):
        about = texts.ABOUT[0]["paragraphs"][0]
        expected = {
            "/": (texts.BATTLE_LEAD, texts.VOTES["both_bad"], texts.RECONNECTING, texts.PROMPT_FIRST),
            "/side-by-side": (texts.NAMED_TITLE, texts.TEMPERATURE_INFO),
            "/chat": (texts.DIRECT_LEAD, texts.NEW_CHAT),
            "/leaderboard": (texts.LEADERBOARD_LEAD, texts.FITS["rao_kupper"], texts.NO_VERSUS),
            "/workers": (texts.WORKERS_LEAD, texts.ADMIN_TOKEN_INFO),
            texts.ABOUT_PATH: (about,),
            texts.HISTORY_PATH: (texts.HISTORY_LEAD, texts.PAGE_NAMES["workers"]),
            "/shared/unknown": (texts.NOT_SHARED,),
            "/join/nothing": (texts.FAILURES["invitation_not_found"],),
            "/no/such/page": (texts.NOT_FOUND, texts.TO_BATTLE),
            "/notices": (texts.NOTICE_WORDS["accept"],),
        }
    for path, sentences in expected.items():
        page = get(client, path, language, Accept="text/html").text
        assert [sentence for sentence in sentences if sentence not in page] == [], path


def test_a_page_has_each_script_once(client: httpx.Client) -> None:
    for path, has_events in (("/", True), (texts.ABOUT_PATH, True), (texts.HISTORY_PATH, False), ("/admin", True)):
        page = get(client, path, DEFAULT).text
        assert page.count("window.agonConnection = ") == has_events, path
        assert page.count("const NOTICES = ") == 1, path


def test_the_operators_page_stays_in_english_and_says_so(client: httpx.Client) -> None:
    page = get(client, "/admin", "fr").text
    assert '<html lang="en">' in page
    assert '<details class="agon-language"' not in page


def test_the_language_that_was_chosen_goes_before_the_browsers(client: httpx.Client) -> None:
    for language in LANGUAGES:
        cookies = {COOKIE: language, **dict(client.cookies)}
        answer = httpx.get(f"{client.base_url}/", headers={"Accept-Language": "fr"}, cookies=cookies, trust_env=False)
        assert answer.headers["content-language"] == language
    answer = client.get("/", headers={"Accept-Language": "fr", "Cookie": f"{COOKIE}=klingon"})
    assert answer.headers["content-language"] == ("fr" if "fr" in LANGUAGES else DEFAULT)


def test_what_has_no_words_is_one_file_for_all(client: httpx.Client) -> None:
    page = client.get("/").text
    start = page.index("/assets/index-")
    for path in (page[start : page.index('"', start)], "/theme.css"):
        answer = client.get(path)
        assert "content-language" not in answer.headers
        assert "Accept-Language" not in answer.headers.get("vary", "")


def test_a_page_in_another_language_is_another_page_for_a_cache(client: httpx.Client) -> None:
    tags = {get(client, "/", language).headers["etag"] for language in LANGUAGES}
    assert len(tags) == len(LANGUAGES)
    known = get(client, "/", DEFAULT).headers["etag"]
    again = get(client, "/", DEFAULT, **{"If-None-Match": known})
    assert (again.status_code, again.headers["content-language"]) == (304, DEFAULT)
