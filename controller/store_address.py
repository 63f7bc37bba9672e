"""Where the store is: from the URL and the secrets of the settings to a value that connections are made of.

redis://[USER:PASSWORD@]HOST[:PORT][/DB]             one server
rediss://...                                         the same over TLS
unix://PATH                                          a server on this machine
redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],.../SERVICE[/DB]
rediss+sentinel://...                                whichever server Sentinel names; TLS to both kinds
"""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio.connection import parse_url

from controller.errors import ConfigurationError

SENTINEL_PORT = 26379

HostAndPort = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SentinelService:
    """The sentinels, the name under which they watch the store, and what they are shown."""

    sentinels: tuple[HostAndPort, ...]
    name: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where the store is, and how its clients prove who they are. `server` is a URL of redis-py without host where
    `service` says which host that is now."""

    server: str = field(repr=False)
    service: SentinelService | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None

    @property
    def is_encrypted(self) -> bool:
        """Whether the connections use TLS."""
        return self.server.startswith("rediss:")

    @property
    def shown(self) -> str:
        """Scheme, hosts and service, for people: no user and no password."""
        if self.service is not None:
            hosts = ",".join(f"{host}:{port}" for host, port in self.service.sentinels)
            return f"{'rediss' if self.is_encrypted else 'redis'}+sentinel://{hosts}/{self.service.name}"
        parts = urlsplit(self.server)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def parse_address(
    url: str,
    *,
    username: str | None = None,
    password: str | None = None,
    sentinel_password: str | None = None,
    ca_file: Path | None = None,
) -> StoreAddress:
    """The address of a URL. Secrets beside it win over those in it. Raises ConfigurationError with what is wrong, and
    without the URL, which may hold a password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ConfigurationError(
            "AGON_REDIS_URL is no URL: it begins with redis://, rediss://, unix:// or redis+sentinel://."
        )
    if ca_file is not None and not ca_file.is_file():
        raise ConfigurationError(f"AGON_CA_FILE: there is no file {ca_file}.")
    if scheme not in ("redis+sentinel", "rediss+sentinel"):
        try:
            parse_url(url)
        except ValueError as error:
            raise ConfigurationError(f"AGON_REDIS_URL cannot be used: {error}") from None
        return StoreAddress(url, None, username, password, ca_file)
    try:
        parts = urlsplit(f"//{rest}")
        login, _, hosts = parts.netloc.rpartition("@")
        sentinels = tuple(_host_and_port(part) for part in hosts.split(",") if part.strip())
        name, _, database = unquote(parts.path).strip("/").partition("/")
        number = int(database or 0)
    except ValueError:
        raise ConfigurationError("AGON_REDIS_URL: a port or database that is no number.") from None
    if not (sentinels and name):
        raise ConfigurationError(
            "AGON_REDIS_URL names no sentinel or no service: redis+sentinel://HOST:26379,HOST:26379/SERVICE[/DB]."
        )
    own = {key: values[0] for key, values in parse_qs(parts.query).items()}
    unknown = sorted(set(own) - {"sentinel_username", "sentinel_password"})
    if unknown:
        raise ConfigurationError(f"AGON_REDIS_URL: {unknown[0]!r} is not a parameter of a Sentinel URL.")
    user, _, secret = login.partition(":")
    service = SentinelService(
        sentinels,
        name,
        own.get("sentinel_username"),
        sentinel_password or own.get("sentinel_password"),
    )
    return StoreAddress(
        f"{scheme.partition('+')[0]}:///{number}",
        service,
        username or unquote(user) or None,
        password or unquote(secret) or None,
        ca_file,
    )


def _host_and_port(text: str) -> HostAndPort:
    """`host`, `host:port`, `[ipv6]` or `[ipv6]:port`. Raises ValueError."""
    parts = urlsplit(f"//{text.strip()}")
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname, parts.port or SENTINEL_PORT
