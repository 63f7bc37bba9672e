"""The web UI under a path prefix, without a browser: every address that its answers name begins with the prefix."""

import re
from collections.abc import Iterator

import httpx
import pytest
from pydantic import SecretStr

from tests.webui.conftest import PROXY_TOKEN
from tests.webui.fake_controller import FakeArena, create_fake
from tests.webui.server_thread import ServerThread
from webui import texts
from webui.__main__ import main
from webui.app import UnusableRootPath, create_app
from webui.config import Settings
from wire.voters import VoterCookies

PREFIX = "/lab/arena"
PAGES = (*texts.PAGES, texts.ABOUT_PATH, texts.HISTORY_PATH, "/admin", "/terms", "/check", "/no-such-page")
#: Of markup, and of markup in the JSON of Gradio's configuration.
_ADDRESS = re.compile(r"""(?:href|src|action|data-feedback)=\\?["'](?!data:)([^"'\\#]+)""")


def settings_of(controller: str) -> Settings:
    return Settings(
        controller_url=controller,
        proxy_token=SecretStr(PROXY_TOKEN),
        webui_root_path=f"{PREFIX}/",
        captcha_script_url="https://captcha.example/api.js",
        captcha_site_key="key",
    )


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    headers = {"Accept": "text/html", "X-Forwarded-Proto": "https", "Host": "localhost:7860"}
    with (
        ServerThread(lambda: create_fake(FakeArena())) as controller,
        ServerThread(lambda: create_app(settings_of(controller))) as url,
        httpx.Client(base_url=url, headers=headers, trust_env=False, verify=False, timeout=30) as client,
    ):
        yield client


def passed() -> dict[str, str]:
    """A cookie of a visitor who has solved the captcha."""
    cookies = VoterCookies(PROXY_TOKEN)
    return {"Cookie": f"{cookies.name}={cookies.new('p')}"}


@pytest.mark.parametrize("path", PAGES)
def test_every_address_in_a_page_has_the_prefix(client: httpx.Client, path: str) -> None:
    answer = client.get(f"{PREFIX}{path}", headers=passed())
    addresses = {address for address in _ADDRESS.findall(answer.text) if not address.startswith("https://")}
    relative = {address for address in addresses if address.startswith("./")}  # of the page, by its <base>
    assert all(address.startswith(f"{PREFIX}/") for address in addresses - relative), addresses
    if path in texts.PAGES:
        assert f'"root":"https://localhost:7860{PREFIX}"' in answer.text  # Gradio's own requests follow it
        assert relative
    assert f'name="agon-root" content="{PREFIX}"' in answer.text or path in ("/terms", "/check", "/no-such-page")


def test_redirects_and_cookies_have_the_prefix(client: httpx.Client) -> None:
    to_check = client.get(f"{PREFIX}/chat")
    assert to_check.headers["location"] == f"{PREFIX}/check"
    spelling = client.get(f"{PREFIX}/chat/", headers=passed())
    assert spelling.headers["location"] == f"{PREFIX}/chat"
    token = VoterCookies(PROXY_TOKEN).new("i")
    joined = client.get(f"{PREFIX}/join/{token}")
    assert joined.headers["location"] == f"{PREFIX}/"
    assert f"Path={PREFIX};" in joined.headers["set-cookie"]


def test_probes_need_not_know_the_prefix(client: httpx.Client) -> None:
    assert (client.get("/ready")).status_code == (client.get(f"{PREFIX}/ready")).status_code == 200


async def test_a_prefix_that_is_an_own_path_is_refused() -> None:
    """A coroutine, because Gradio needs a loop."""
    with pytest.raises(UnusableRootPath, match="itself has the path '/gradio_api"):
        create_app(Settings(webui_root_path="/gradio_api"))


def test_a_value_that_is_no_prefix_ends_the_process_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGON_WEBUI_ROOT_PATH", "arena")
    with pytest.raises(SystemExit) as ended:
        main(["--port", "1"])
    assert ended.value.code == 2
    assert "AGON_WEBUI_ROOT_PATH" in capsys.readouterr().err
