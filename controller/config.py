"""Settings of the controller, read once at start. The environment is read here and nowhere else.

Every setting is an environment variable with the prefix AGON_; secrets may come from a file named by AGON_..._FILE.
"""

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from controller.errors import ConfigurationError

MIN_TOKEN_CHARS = 16

_SECRETS = ("worker_token", "admin_token", "api_keys", "voter_key")


def _as_list(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _as_networks(value: object) -> object:
    names = _as_list(value)
    return tuple(ip_network(name) if isinstance(name, str) else name for name in names)  # type: ignore[attr-defined]


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_as_list)]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, BeforeValidator(_as_networks)]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseSettings):
    """Defaults run on a laptop; only the two tokens have none."""

    model_config = SettingsConfigDict(env_prefix="AGON_", frozen=True, extra="ignore", populate_by_name=True)

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0", validation_alias=AliasChoices("AGON_REDIS_URL", "REDIS_URL")
    )
    key_prefix: str = "agon:v1"  #: two arenas may share one Redis under different prefixes

    worker_token: SecretStr = SecretStr("")
    admin_token: SecretStr = SecretStr("")
    api_keys: Names = Field(default=(), repr=False)  #: empty: everybody may chat and vote
    voter_key: SecretStr = SecretStr("")  #: of voter pseudonyms; derived from the admin token when not given
    trusted_proxies: Networks = Field(default=("127.0.0.0/8", "::1/128"), validate_default=True)
    worker_hosts: Names = ("localhost", "127.0.0.0/8", "::1/128", "worker", "worker-*", "*-worker")
    public_workers: bool = True  #: GET /arena/workers and /arena/pools for everybody who may vote
    public_metrics: bool = True  #: GET /metrics without the admin token; no address, prompt or key is in it
    api_docs: bool = False  #: GET /openapi.json and /docs

    max_body_bytes: Count = 1_000_000
    max_content_chars: Count = 12_000
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 20
    battle_max_tokens: Count = 1024  #: longest answer in a battle; at most half of the model's context

    rate_per_minute: Count = 120  #: requests that cost something, per address (IPv6: per /64)
    rate_burst: Count = 60
    local_rate_per_minute: Count = 6000  #: the same for loopback: one machine, one person, or a proxy that hides all
    local_rate_burst: Count = 1000

    first_token_timeout_s: Seconds = 60
    token_timeout_s: Seconds = 20
    connect_timeout_s: Seconds = 2
    admission_wait_s: Seconds = 1.0  #: how long a turn waits for both workers to accept before it starts to stream
    max_attempts: Count = 3

    heartbeat_s: Seconds = 1.0
    worker_lease_s: Seconds = 4.0
    table_refresh_s: Seconds = 0.25
    slot_lease_s: Seconds = 15.0
    owner_lease_s: Seconds = 8.0
    flush_s: Seconds = 0.045  #: about 22 updates a second: smooth to the eye, and cheap
    drain_s: Seconds = 10.0
    store_timeout_s: Seconds = 1.0
    store_patience_s: Seconds = 15.0  #: how long a stream that has begun outlives the store

    battle_ttl_s: Seconds = 86_400  #: an unvoted battle is forgotten a day after its last turn
    voted_battle_ttl_s: Annotated[float, Field(ge=0)] = 0  #: 0 keeps conversations of voted battles for ever
    board_refresh_s: Annotated[float, Field(ge=0)] = 1.0  #: a board is at most this much older than the vote log
    pairing: Literal["uniform", "active"] = "uniform"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    worker_token_file: Path | None = None
    admin_token_file: Path | None = None
    api_keys_file: Path | None = None
    voter_key_file: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_secret_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name in _SECRETS:
            path = values.get(f"{name}_file")
            if path:
                try:
                    text = Path(path).read_text().strip()
                except OSError as error:
                    raise ConfigurationError(f"AGON_{name.upper()}_FILE cannot be read: {error.strerror}.") from None
                values[name] = ",".join(text.split()) if name == "api_keys" else text
        return values

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
        if len({*tokens.values(), *self.api_keys}) < len(tokens) + len(self.api_keys):
            raise ConfigurationError("Worker token, admin token and API keys must differ from one another.")
