"""What the settings of all services share: secrets from files, TLS, and variables of the environment that are none.

A secret setting NAME has a setting NAME_file beside it, which names a file that holds the secret.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import Field, FilePath, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from service_kit.certificate import check_pair
from service_kit.trust import check_authorities

#: For a Service named `agon`, Kubernetes and old container links set AGON_PORT=tcp://10.0.0.1:8100 in every container.
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://\S+")
_FILE = "_file"


class ClientSettings(BaseSettings):
    """Settings of a process that connects to others. Reading raises ValidationError; `problems` has its sentences."""

    model_config = SettingsConfigDict(env_prefix="AGON_", frozen=True, extra="ignore")

    ca_file: FilePath | None = Field(
        default=None,
        description="File of certificates (PEM) by which servers are trusted that a private authority has signed, "
        "beside the public authorities: controllers, workers, the store, hosts of models.",
    )

    @model_validator(mode="before")
    @classmethod
    def _prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Drop service links and empty names of TLS files, and read secrets from their files."""
        kept = {name: value for name, value in values.items() if not _is_no_setting(name, value)}
        for name in secret_names(cls.model_fields):
            if path := kept.get(name + _FILE):
                text = _read(f"AGON_{name.upper()}_FILE", path)
                is_list = get_origin(cls.model_fields[name].annotation) is tuple
                kept[name] = _joined(kept.get(name), text) if is_list else text.strip()
        return kept

    @model_validator(mode="after")
    def _authorities_are_readable(self) -> "ClientSettings":
        if self.ca_file is not None:
            check_authorities(self.ca_file)
        return self


class ServiceSettings(ClientSettings):
    """Settings of a process that serves HTTP, too."""

    tls_cert_file: FilePath | None = Field(
        default=None,
        description="File of the service's certificate and those between it and its authority (PEM). With it, and the "
        "key, the service speaks HTTPS and nothing else.",
    )
    tls_key_file: FilePath | None = Field(
        default=None, description="File of the certificate's private key (PEM), without a password."
    )

    @model_validator(mode="after")
    def _pair_matches(self) -> "ServiceSettings":
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("AGON_TLS_CERT_FILE and AGON_TLS_KEY_FILE belong together: set both, or neither")
        if self.tls_cert_file is not None and self.tls_key_file is not None:
            check_pair(self.tls_cert_file, self.tls_key_file)
        return self

    @property
    def tls_pair(self) -> tuple[Path, Path] | None:
        """Certificate and key; None: the service speaks plain HTTP."""
        if self.tls_cert_file is None or self.tls_key_file is None:
            return None
        return self.tls_cert_file, self.tls_key_file

    @property
    def scheme(self) -> str:
        """Scheme of the service's URLs."""
        return "http" if self.tls_pair is None else "https"


def secret_names(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    """Names of the settings that may come from a file."""
    return (name for name in fields if f"{name}{_FILE}" in fields)


def is_secret(field: FieldInfo) -> bool:
    """Whether a setting must not be shown."""
    return SecretStr in (field.annotation, *get_args(field.annotation)) or not field.repr


def problems(error: ValidationError) -> list[str]:
    """One sentence for each setting that cannot be used, with the name of its variable, and without its value."""
    sentences = []
    for problem in error.errors(include_url=False, include_input=False):
        message = str(problem["msg"]).removeprefix("Value error, ")
        name = f"AGON_{str(problem['loc'][0]).upper().removeprefix('AGON_')}: " if problem["loc"] else ""
        sentences.append(f"{name}{message}")
    return sentences


def secret_of(environment: Mapping[str, str], name: str) -> str | None:
    """A secret of a command: the variable `name`, or the content of the file that `name`_FILE names. Raises ValueError
    where that cannot be read."""
    path = environment.get(f"{name}_FILE")
    return _read(f"{name}_FILE", path).strip() if path else environment.get(name) or None


def _is_no_setting(name: str, value: object) -> bool:
    is_link = isinstance(value, str) and name.endswith("port") and _SERVICE_LINK.fullmatch(value) is not None
    return is_link or (value == "" and name in ("ca_file", "tls_cert_file", "tls_key_file"))


def _read(variable: str, path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{variable} cannot be read: {error.strerror} ({path})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{variable} is no text: {path}") from None


def _joined(given: object, text: str) -> object:
    """The entries that the environment names, then those of the file, one a line."""
    entries = given.split(",") if isinstance(given, str) else given
    return (*(entries if isinstance(entries, tuple | list) else ()), *text.split())
