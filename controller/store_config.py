"""Settings of the connection to the store: the part of the controller's settings that `agon store` reads, too."""

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from controller.store_address import StoreAddress, parse_address
from service_kit.settings import ClientSettings


class StoreSettings(ClientSettings):
    """Where the store is and what a vote needs there. Secrets never show in `repr`."""

    model_config = SettingsConfigDict(env_prefix="AGON_", frozen=True, extra="ignore", populate_by_name=True)

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        validation_alias=AliasChoices("AGON_REDIS_URL", "REDIS_URL"),
        repr=False,
        description="URL of the Redis store: redis://, rediss:// (TLS), unix://, or redis+sentinel:// and "
        "rediss+sentinel:// with the sentinels and the name of the service (docs/store.md). `REDIS_URL` works too.",
    )
    redis_password: SecretStr = Field(
        default=SecretStr(""), description="Password of the store, instead of the one in the URL."
    )
    sentinel_password: SecretStr = Field(default=SecretStr(""), description="Password of the sentinels.")
    vote_replicas: Annotated[int | None, Field(ge=0)] = Field(
        default=None,
        description="Replicas of the store that must have a vote on disk before it is acknowledged (WAITAOF). Default: "
        "1 with Sentinel, because a fail-over loses what no replica has; else 0. Name all replicas that Sentinel may "
        "choose: it may take one that has less than another.",
    )
    key_prefix: str = Field(
        default="agon:v1", description="Prefix of all keys in the store, so that two arenas can share one Redis."
    )
    redis_url_file: Path | None = Field(default=None, description="File that holds the URL of the store.")
    redis_password_file: Path | None = Field(default=None, description="File that holds the store's password.")
    sentinel_password_file: Path | None = Field(default=None, description="File that holds the sentinels' password.")

    def store_address(self) -> StoreAddress:
        """Where the store is. Raises ConfigurationError."""
        return parse_address(
            self.redis_url,
            password=self.redis_password.get_secret_value() or None,
            sentinel_password=self.sentinel_password.get_secret_value() or None,
            ca_file=self.ca_file,
        )

    @property
    def needed_replicas(self) -> int:
        """`vote_replicas`, or its default."""
        if self.vote_replicas is None:
            return 0 if self.store_address().service is None else 1
        return self.vote_replicas
