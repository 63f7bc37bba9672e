"""Settings of the controller, read once at start. The environment is read here and nowhere else.

Every setting is an environment variable with the prefix AGON_. Those of the store are in controller/store_config.py,
those that all services have in service_kit/settings.py.
"""

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, FilePath, SecretStr
from pydantic_settings import NoDecode

from controller.errors import ConfigurationError
from controller.store_config import StoreSettings
from service_kit.cors import CORS_ORIGINS_HELP, CorsOrigins
from service_kit.origins import ALLOWED_HOSTS_HELP, AllowedHosts
from service_kit.path_prefix import ROOT_PATH_HELP, RootPath
from service_kit.settings import ServiceSettings

MIN_TOKEN_CHARS = 16
WEEK_S = 604_800


def _as_list(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _as_networks(value: object) -> object:
    names = _as_list(value)
    return tuple(ip_network(name) if isinstance(name, str) else name for name in names)  # type: ignore[attr-defined]


def _none_if_zero(value: object) -> object:
    return None if value in ("", "0", 0) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_as_list)]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, BeforeValidator(_as_networks)]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Settings(StoreSettings, ServiceSettings):
    """Settings of one controller. Defaults run on a laptop; only the two tokens have none.

    Made once, by `python -m controller` or a test, and immutable. Each field's description says what it sets, with its
    unit. Secrets never show in `repr`.
    """

    worker_token: SecretStr = Field(
        default=SecretStr(""),
        description="Token that workers and controllers show each other. Required, at least "
        f"{MIN_TOKEN_CHARS} characters.",
    )
    admin_token: SecretStr = Field(
        default=SecretStr(""),
        description="Token that opens export and import of the vote log. Required, at least "
        f"{MIN_TOKEN_CHARS} characters, different from the worker token.",
    )
    api_keys: Names = Field(
        default=(),
        repr=False,
        description="API keys, separated by commas. With any, chatting and voting need one (the web UI sends "
        "`AGON_API_KEY`); with none, both are open to every visitor.",
    )
    voter_key: SecretStr = Field(
        default=SecretStr(""),
        description="Secret that keys the voters' pseudonyms. Derived from the admin token when it is empty.",
    )
    proxy_token: SecretStr = Field(
        default=SecretStr(""),
        description="Token that the web UI shows when it forwards a visitor's address; at least "
        f"{MIN_TOKEN_CHARS} characters, the same as the web UI's. Without it all visitors of the web UI count as one, "
        "unless its network is among the trusted proxies.",
    )
    identity: Literal["cookie", "invite", "header"] = Field(
        default="cookie",
        description="How a voter is known. cookie: every visitor gets a signed cookie; an invitation counts, too. "
        "invite: only voters with an invitation (`agon voters invite`) may begin battles and chats, and vote. header: "
        "only those that a trusted proxy names in X-Forwarded-User or X-Auth-Request-User. The web UI's is the same.",
    )
    admin_users: Names = Field(
        default=(),
        description="Names of administrators, separated by commas, as a trusted proxy sends them in X-Forwarded-User "
        "or X-Auth-Request-User: they need no admin token. Empty: only that token makes an administrator.",
    )
    terms_file: FilePath | None = Field(
        default=None,
        description="File of plain text: terms that a visitor accepts before the first battle or chat, and again when "
        "they change. Terms that the administrator sets on the page `/admin` go before them. Without any there is no "
        "gate.",
    )
    captcha_verify_url: str = Field(
        default="",
        pattern="^(https?://.+)?$",
        description="Where responses to a captcha are verified (`siteverify` of Turnstile, hCaptcha or reCAPTCHA). "
        "With it, and `AGON_IDENTITY=cookie`, a new visitor solves a captcha before the first battle.",
    )
    captcha_secret: SecretStr = Field(
        default=SecretStr(""), description="Secret of the arena at the captcha's service."
    )
    trusted_proxies: Networks = Field(
        default=(),
        description="Networks of reverse proxies in front of the controller whose X-Forwarded-For is believed. Name "
        "only addresses that no other process has: of 127.0.0.0/8 every local process is believed.",
    )
    worker_hosts: Names = Field(
        default=("localhost", "127.0.0.0/8", "::1/128", "worker", "worker-*", "*-worker"),
        description="Hosts under which workers may register: networks, or names in which `*` stands for part of a "
        "label.",
    )
    root_path: RootPath = Field(default="", description=f"{ROOT_PATH_HELP}.")
    allowed_hosts: AllowedHosts = Field(default=(), description=f"{ALLOWED_HOSTS_HELP}.")
    cors_origins: CorsOrigins = Field(default=(), description=f"{CORS_ORIGINS_HELP}.")
    public_workers: bool = Field(
        default=True,
        description="Show `GET /arena/workers` to every client that may vote, without loads; otherwise it needs the "
        "admin token. Loads and `GET /arena/pools` always need the admin token.",
    )
    public_metrics: bool = Field(
        default=False,
        description="Show `GET /metrics` without the admin token. Metrics hold no address, prompt or key, but the "
        "latencies of single answers, from which visitors may guess the models of a battle.",
    )
    otlp_endpoint: str = Field(
        default="",
        pattern="^(https?://.+)?$",
        description="Where traces of turns and votes are sent: OTLP over HTTP, such as "
        "http://collector:4318/v1/traces; needs `agon[traces]`. They name models, workers and times, and hold no text. "
        "Empty: none are made.",
    )
    api_docs: bool = Field(
        default=False,
        description="Serve `GET /openapi.json` and the page `/docs`; `agon up` turns it on if it listens on loopback.",
    )

    max_body_bytes: Count = Field(default=1_000_000, description="Largest body of a request, in bytes.")
    max_content_chars: Count = Field(default=12_000, description="Longest message in a battle, in characters.")
    max_turns: Annotated[int, Field(ge=1, le=1000)] = Field(default=20, description="Most turns of one battle.")
    battle_max_tokens: Count = Field(
        default=1024,
        description="Longest answer in a battle, in tokens, thoughts included; never more than half of the model's "
        "context.",
    )
    thinking_budget: Annotated[Count | None, BeforeValidator(_none_if_zero)] = Field(
        default=None,
        description="Most tokens that a model may think before it answers, in battles and chats: then its thoughts are "
        "ended for it. Both sides of a battle get the same. Models of other services (docs/hosted.md) cannot be "
        "limited. Empty or 0: only the limit of the answer.",
    )

    chat_max_turns: Annotated[int, Field(ge=1, le=1000)] = Field(default=100, description="Most turns of one chat.")
    chat_max_chars: Count = Field(
        default=200_000,
        description="Characters of one chat, thoughts included, beyond which it takes no further message.",
    )
    chat_max_tokens: Count = Field(
        default=4096,
        description="Longest answer in a chat, in tokens, thoughts included; never more than half of the model's "
        "context.",
    )
    chats_per_visitor: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=10,
        description="Chats of one visitor that are kept; a newer one replaces the oldest. Clients "
        "without a cookie count by their address, of which ten times as many are kept.",
    )

    rate_per_minute: Count = Field(
        default=120,
        description="Requests per minute from one address (IPv6: one /64), for each kind of request that costs "
        "something.",
    )
    rate_burst: Count = Field(default=60, description="Requests that one address may send at once within its limit.")
    local_rate_per_minute: Count = Field(
        default=6000,
        description="The same for processes on the controller's machine that forward for no other; battles included, "
        "votes not.",
    )
    local_rate_burst: Count = Field(default=1000, description="Requests that such processes may send at once.")
    battle_rate_per_minute: Count = Field(default=30, description="New battles per minute from one address.")
    battle_rate_burst: Count = Field(default=20, description="Battles that one address may begin at once.")
    vote_rate_per_minute: Count = Field(
        default=12,
        description="Votes per minute from one address, loopback included. Reading two answers takes a person longer; "
        "raise it where many voters share an address.",
    )
    vote_rate_burst: Count = Field(default=10, description="Votes that one address may cast at once.")

    min_read_s: Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description="Seconds after the first word of the answers before which a vote is too quick to be rated; 0 rates "
        "votes at any speed.",
    )
    max_read_chars_per_s: Seconds = Field(
        default=1000,
        description="Characters of both answers per second, from their first word to the vote, beyond which the vote "
        "is too quick to be rated. People read 20 to 100.",
    )

    first_token_timeout_s: Seconds = Field(
        default=60, description="A worker that sends no first token for this many seconds has failed."
    )
    token_timeout_s: Seconds = Field(
        default=20, description="A worker that sends no further token for this many seconds has failed."
    )
    connect_timeout_s: Seconds = Field(default=2, description="Time limit of a connection to a worker, in seconds.")
    admission_wait_s: Seconds = Field(
        default=1.0,
        description="Seconds that a turn waits for both workers to accept it before it starts to stream.",
    )
    max_attempts: Count = Field(default=3, description="Most workers that are tried for one answer.")

    heartbeat_s: Seconds = Field(default=1.0, description="Seconds between two heartbeats of a worker.")
    worker_lease_s: Seconds = Field(
        default=4.0,
        description="Seconds that a worker's registration lasts without a heartbeat; then it gets no more requests.",
    )
    table_refresh_s: Seconds = Field(
        default=0.25, description="Seconds between two reads of the worker registry by a controller."
    )
    # The variable was released before the term "capacity lease" was introduced; it keeps its name.
    slot_lease_s: Seconds = Field(
        default=15.0,
        description="Seconds until the capacity leases that a dead controller held at workers expire.",
    )
    owner_lease_s: Seconds = Field(
        default=3.0, description="Seconds until another controller takes over the running turns of a dead one."
    )
    replay_wait_s: Annotated[float, Field(ge=0)] = Field(
        default=20.0,
        description="Longest wait, in seconds, of a half-written answer for a place at another worker of its model.",
    )
    flush_s: Seconds = Field(
        default=0.045,
        description="Seconds for which text of a battle is gathered before it is stored and sent. The default gives "
        "about 22 updates a second: smooth to the eye, and cheap.",
    )
    paced: Annotated[float, Field(ge=0)] = Field(
        default=300.0,
        description="Characters a second at which both answers of an anonymous battle are shown, so that the timing of "
        "the stream does not tell the models; a model that is slower holds both back. 0: text is shown as it comes, as "
        "it always is in a named battle.",
    )
    drain_s: Seconds = Field(default=10.0, description="Seconds that running answers get after SIGTERM.")
    store_timeout_s: Seconds = Field(default=1.0, description="Time limit of one command to the store, in seconds.")
    store_patience_s: Seconds = Field(
        default=15.0, description="Seconds without the store after which a stream that has begun is given up."
    )

    battle_ttl_s: Seconds = Field(
        default=86_400,
        description="Seconds after its last turn at which a battle without a vote expires.",
    )
    chat_ttl_s: Seconds = Field(
        default=7 * 86_400,
        description="Seconds after its last turn at which a chat is deleted. A visitor can delete it before.",
    )
    voted_battle_ttl_s: Annotated[float, Field(ge=0)] | None = Field(
        default=None,
        description="Seconds that the store keeps the conversation of a voted battle; 0 keeps it for ever. Default: a "
        f"week ({WEEK_S}) with a journal, whose folder archives it, for ever without one. The vote always stays.",
    )
    shared_battle_ttl_s: Seconds = Field(
        default=90 * 86_400,
        description="Seconds that a voted battle is kept and can be read after its visitor has made a link for others.",
    )
    journal_dir: Annotated[Path | None, BeforeValidator(lambda value: value or None)] = Field(
        default=None,
        description="Folder of the journal, in which every vote is written before it is acknowledged and from which "
        "votes are restored when the store has lost them, and of archived conversations. Empty: no journal.",
    )
    board_anchor: Names = Field(
        default=(),
        description="Models whose mean rating is 1000 and against which intervals are, separated by commas: with an "
        "anchor no newcomer moves the ratings of the others. Empty: all models with an interval.",
    )
    undrawn_models: Names = Field(
        default=(),
        description="Models that battles do not draw, separated by commas, until an administrator gives them a weight. "
        "They answer behind /v1 and to visitors who choose them.",
    )
    boards_dir: Annotated[Path | None, BeforeValidator(lambda value: value or None)] = Field(
        default=None,
        description="Folder of checkpoints of the boards, from which a controller starts without reading the whole "
        "vote log. They hold no text, and can be deleted at any time. Empty: none are written.",
    )
    board_refresh_s: Annotated[float, Field(ge=0)] = Field(
        default=1.0, description="Seconds by which a leaderboard may be older than the vote log."
    )
    pairing: Literal["uniform", "active"] = Field(
        default="active",
        description="How a pair of models is drawn: `active`: in proportion to the probability that the votes so far "
        "have the two in the wrong order, with a tenth of the draws spread evenly (`docs/pairing.md`); `uniform`: all "
        "pairs alike.",
    )
    judge_every_s: Annotated[float, Field(ge=0)] = Field(
        default=15.0,
        description="Seconds between two rounds of the judge, which takes votes out of the ratings that break the "
        "rules of docs/integrity.md; 0: no judge.",
    )
    surprise_limit: Annotated[float, Field(gt=1)] = Field(
        default=1000,
        description="A voter, a cohort or a network is anomalous beyond this likelihood ratio against honest voting; "
        "an honest voter ever passes it with a probability of one by this number at most.",
    )
    voter_cap: Annotated[int, Field(ge=0)] = Field(
        default=100, description="Votes of one voter on one day that are rated; 0: any number."
    )
    address_cap: Annotated[int, Field(ge=0)] = Field(
        default=300, description="Votes from one network (an IPv4 /24, an IPv6 /48) on one day that are rated; 0: any."
    )
    prompt_cap: Annotated[int, Field(ge=0)] = Field(
        default=50, description="Votes on one first prompt on one day that are rated; 0: any number."
    )
    probation_votes: Annotated[int, Field(ge=0)] = Field(
        default=10,
        description="Votes after which those of a new invited or proxied identity are rated, the first ones too, if "
        "they are not anomalous; 0: at once.",
    )
    processes_file: Path | None = Field(
        default=None,
        description="File in which a supervisor says how its processes are, for `GET /health`; `agon up` sets it.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Least severe level that is logged."
    )

    worker_token_file: Path | None = Field(default=None, description="File that holds the worker token.")
    admin_token_file: Path | None = Field(default=None, description="File that holds the admin token.")
    api_keys_file: Path | None = Field(default=None, description="File that holds the API keys, one a line.")
    voter_key_file: Path | None = Field(default=None, description="File that holds the voter key.")
    captcha_secret_file: Path | None = Field(default=None, description="File that holds the captcha's secret.")
    proxy_token_file: Path | None = Field(default=None, description="File that holds the proxy token.")

    @property
    def kept_voted_s(self) -> float:
        """`voted_battle_ttl_s`, or its default."""
        if self.voted_battle_ttl_s is None:
            return 0 if self.journal_dir is None else WEEK_S
        return self.voted_battle_ttl_s

    def terms(self) -> str:
        """The text of `terms_file`; empty without one."""
        return "" if self.terms_file is None else self.terms_file.read_text(encoding="utf-8")

    def require_tokens(self) -> None:
        """Raises ConfigurationError unless the tokens that guard workers and administration are set and differ."""
        tokens = {"worker": self.worker_token.get_secret_value(), "admin": self.admin_token.get_secret_value()}
        for name, token in tokens.items():
            if len(token) < MIN_TOKEN_CHARS:
                raise ConfigurationError(
                    f"AGON_{name.upper()}_TOKEN must be set to at least {MIN_TOKEN_CHARS} characters (or "
                    f"AGON_{name.upper()}_TOKEN_FILE to a file that holds it). `agon up` makes the tokens by "
                    "itself; for a controller of its own, run "
                    "`python -c 'import secrets; print(secrets.token_urlsafe(32))'`."
                )
        proxy_token = self.proxy_token.get_secret_value()
        if proxy_token:
            if len(proxy_token) < MIN_TOKEN_CHARS:
                raise ConfigurationError(f"AGON_PROXY_TOKEN must have at least {MIN_TOKEN_CHARS} characters.")
            tokens["proxy"] = proxy_token
        if len({*tokens.values(), *self.api_keys}) < len(tokens) + len(self.api_keys):
            raise ConfigurationError("Worker token, admin token, proxy token and API keys must differ.")
        if "*" in self.cors_origins and not self.api_keys:
            raise ConfigurationError("AGON_CORS_ORIGINS=* needs AGON_API_KEYS: every web page could use the models.")
