"""The web UI's settings, read once at start; nothing else of the web UI reads the environment."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, FilePath, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from service_kit.origins import ALLOWED_HOSTS_HELP, AllowedHosts
from service_kit.path_prefix import ROOT_PATH_HELP, RootPath
from service_kit.settings import ServiceSettings
from webui.languages import DEFAULT, LANGUAGES


class Settings(ServiceSettings):
    """Settings of one web UI. A field is set by the variable AGON_ plus its name in capitals; the first three also by
    flags of `python -m webui`."""

    model_config = SettingsConfigDict(env_prefix="AGON_", frozen=True, extra="ignore")

    webui_host: str = Field(default="127.0.0.1", description="Address to listen on.")
    webui_port: int = Field(default=7860, description="Port to listen on.")
    controller_url: str = Field(
        default="http://127.0.0.1:8100",
        description="URL of the controller. With several, separated by commas, requests go to the next one when one "
        "does not answer.",
    )
    webui_root_path: RootPath = Field(default="", description=f"{ROOT_PATH_HELP}.")
    api_key: str | None = Field(
        default=None, repr=False, description="Sent as a bearer token to a controller that asks for one."
    )
    allowed_hosts: AllowedHosts = Field(default=(), description=f"{ALLOWED_HOSTS_HELP}.")
    proxy_token: SecretStr = Field(
        default=SecretStr(""),
        description="Token that makes the controller believe the visitors' addresses that the web UI forwards; the "
        "same as the controller's. Without it all visitors count as one.",
    )
    webui_peers: str = Field(
        default="",
        description="URLs of all web UIs of the arena as they reach one another, separated by commas; of a name in an "
        "http URL every address counts. With several web UIs behind a proxy without sticky sessions, a request that "
        "comes to the wrong one is passed on. Needs the proxy token.",
    )
    identity: Literal["cookie", "invite", "header"] = Field(
        default="cookie",
        description="How a voter is known, the same as the controller's. cookie: the web UI gives each browser a "
        "signed cookie. header: proxies in AGON_WEBUI_TRUSTED_PROXIES name the visitor; that setting must not be `*`.",
    )
    captcha_script_url: str = Field(
        default="",
        pattern="^(https?://.+)?$",
        description="Script of the captcha's widget, such as `https://challenges.cloudflare.com/turnstile/v0/api.js`. "
        "With it the page `/check` is shown to new visitors; the controller verifies what it gives.",
    )
    captcha_site_key: str = Field(default="", description="Public key of the arena at the captcha's service.")
    webui_max_events: int = Field(
        default=500,
        ge=1,
        description="Events (streams, votes, timer ticks) that run at once. Gradio's own default is 40.",
    )
    webui_max_sessions: int = Field(
        default=2000,
        ge=1,
        description="Open pages whose state is kept in memory, about 10 kB each. Beyond it the page that was idle for "
        "longest is forgotten; its battle is restored when its visitor goes on.",
    )
    webui_max_streams: int = Field(
        default=4000,
        ge=1,
        description="Event streams of browsers that are open at once, one a page that waits for something.",
    )
    webui_max_streams_per_address: int = Field(
        default=400, ge=1, description="Of these, how many one address may open. A school or an office is one address."
    )
    webui_events_per_second: float = Field(
        default=50.0,
        gt=0,
        description="Events (clicks, timer ticks, page loads) that one address may send in a second; after a pause "
        "those of ten seconds at once. Beyond it the answer is 429 with Retry-After.",
    )
    webui_undo_s: float = Field(
        default=5.0,
        ge=0,
        le=60,
        description="Seconds for which a vote can be taken back until it is recorded and the names are shown; 0: none.",
    )
    webui_update_interval_s: float = Field(
        default=0.1,
        gt=0,
        le=2,
        description="Seconds for which tokens are gathered before the page is updated: ten updates a second read as "
        "fluent and cost little.",
    )
    webui_board_max_age_s: float = Field(
        default=1.0,
        ge=0,
        description="Seconds between two requests for leaderboard and workers, however many visitors watch them; "
        "for notices and terms at most 1, for the prompts of model cards ten times as many.",
    )
    webui_language: str = Field(
        default=DEFAULT,
        description="Language of the pages for visitors who have chosen none and whose browser asks for none of them: "
        f"{', '.join(LANGUAGES)}.",
    )
    webui_max_prompt_chars: int = Field(
        default=8000,
        ge=1,
        description="Longest prompt that the page accepts, in characters; the controller has its own limit.",
    )
    webui_trusted_proxies: str = Field(
        default="",
        description="Proxies in front of the web UI whose X-Forwarded-For header is believed: addresses and networks "
        "separated by commas. None by default; with `*` every visitor can invent an address.",
    )
    webui_terms_file: FilePath | None = Field(
        default=None, description="File of plain text: the terms of the operator of this arena, shown under About."
    )

    api_key_file: FilePath | None = Field(default=None, description="File that holds the API key.")
    proxy_token_file: FilePath | None = Field(default=None, description="File that holds the proxy token.")

    starter_prompts: FilePath | None = Field(
        default=None,
        description="File of prompts that pages offer to begin with, in TOML: tables `[[prompts]]` with `text`, and "
        "where wanted `models` (patterns; it is offered while such a model is served) and `language` (two letters). "
        "Default: those of the served models' cards, else built-in ones.",
    )

    @property
    def peer_urls(self) -> tuple[str, ...]:
        """The URLs of all web UIs, this one perhaps included."""
        return tuple(filter(None, (url.strip() for url in self.webui_peers.split(","))))

    @property
    def controller_urls(self) -> tuple[str, ...]:
        """The URLs of all controllers, in the order in which they are tried."""
        return tuple(filter(None, (url.strip() for url in self.controller_url.split(","))))

    @model_validator(mode="after")
    def _proxies_are_named(self) -> "Settings":
        if self.identity == "header" and "*" in self.webui_trusted_proxies:
            raise ValueError(
                "AGON_WEBUI_TRUSTED_PROXIES: with AGON_IDENTITY=header name the proxies: every visitor could be anybody"
            )
        return self

    @field_validator("controller_url", "webui_peers")
    @classmethod
    def _are_urls(cls, value: str, info: ValidationInfo) -> str:
        for url in value.split(",") if value or info.field_name == "controller_url" else ():
            if urlsplit(url.strip()).scheme not in ("http", "https") or not urlsplit(url.strip()).hostname:
                raise ValueError(f"{url.strip()!r} is not an http or https URL")
        return value

    @field_validator("webui_peers")
    @classmethod
    def _peers_believe_one_another(cls, value: str, info: ValidationInfo) -> str:
        token = info.data.get("proxy_token")
        if value and not (token and token.get_secret_value()):
            raise ValueError("needs AGON_PROXY_TOKEN, by which web UIs believe one another")
        return value

    @field_validator("webui_language")
    @classmethod
    def _is_a_language(cls, value: str) -> str:
        if value not in LANGUAGES:
            raise ValueError(f"must be one of {', '.join(LANGUAGES)}")
        return value

    def terms(self) -> str | None:
        """The operator's terms, read from their file; None without one."""
        return None if self.webui_terms_file is None else self.webui_terms_file.read_text(encoding="utf-8")
