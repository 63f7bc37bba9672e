"""Settings of one worker, read once at start from flags and environment variables (prefix AGON_). Frozen afterwards."""

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

EngineKind = Literal["paged", "echo", "openai"]
_WILDCARD_HOSTS = ("0.0.0.0", "::", "")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


def _comma_list(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_list)]
SecretList = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_comma_list)]


class WorkerSettings(BaseSettings):
    """One worker: what it serves, where it listens, whom it reports to, and its limits."""

    model_config = SettingsConfigDict(env_prefix="AGON_", frozen=True, extra="forbid", hide_input_in_errors=True)

    model: str = Field(
        min_length=1
    )  #: folder in Hugging Face layout or hub id, optionally with an alias: name=PATH_OR_ID
    engine: EngineKind = "paged"
    host: str = "127.0.0.1"
    port: int = Field(default=8200, ge=0, le=65535)  #: 0: any free port

    controller_urls: CommaList = ()  #: every controller to register with; empty: a stand-alone server
    worker_url: str | None = None  #: where controllers reach this worker; default: http://host:port
    worker_token: SecretStr | None = None  #: shared with the controllers; opens /internal
    worker_token_file: Path | None = None
    api_keys: SecretList = ()  #: open /v1; without any, /v1 is open to all when stand-alone, else to the worker token
    api_keys_file: Path | None = None  #: one key per line
    api_docs: bool = False  #: GET /openapi.json and /docs

    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    device: str = "auto"
    threads: int | None = Field(default=None, ge=1)  #: torch threads; default: torch's own choice
    operators: Literal["auto", "torch"] = "auto"  #: auto: C++ where it can be built, Triton on CUDA
    kv_dtype: Literal["auto", "int8", "fp8"] = "auto"  #: of keys and values in pages; 8 bits hold about twice as many
    weights: Literal["auto", "int8"] = "auto"  #: int8: linear weights of 8 bits, on CPU
    share_weights: Literal["auto", "on", "off"] = "auto"  #: on CPU: one copy for all workers of a checkpoint
    tensor_parallel: int = Field(default=1, ge=1)  #: processes (GPUs) that share the model
    enforce_eager: bool = False  #: on CUDA: no graphs
    max_graph_batch: int = Field(default=512, ge=1)  #: on CUDA: largest decode step that gets a graph
    device_memory_share: float = Field(default=0.9, gt=0, le=1)  #: of a CUDA device, for weights, steps and pages
    load_format: Literal["auto", "dummy"] = "auto"
    page_tokens: int = Field(default=16, ge=1)
    kv_cache_bytes: int | None = Field(default=None, ge=1)
    swap_bytes: int = Field(default=0, ge=0)  #: main memory for the pages of preempted requests; 0: recompute them
    max_model_len: int | None = Field(default=None, ge=1)
    max_batched_tokens: int = Field(default=1024, ge=1)
    max_running: int = Field(default=64, ge=1)
    max_queued_requests: int = Field(default=256, ge=1)
    max_queued_tokens: int = Field(default=131_072, ge=1)
    prefix_caching: bool = True
    seed: int = 0

    default_max_tokens: int = Field(default=2048, ge=1)  #: bound of an answer whose request names none
    max_body_bytes: int = Field(default=1 << 20, ge=1024)
    request_timeout_s: float = Field(default=600.0, gt=0)  #: a longer answer is aborted with worker_timeout
    slow_client_s: float = Field(default=30.0, gt=0)  #: a client that takes nothing for so long is dropped
    stalled_step_s: float = Field(default=60.0, gt=0)  #: no engine step for so long while work waits: /health fails
    drain_s: float = Field(default=30.0, ge=0)  #: how long running answers may go on after SIGTERM

    echo_tokens_per_s: float = Field(default=50.0, gt=0)  #: speed of each answer of the echo engine
    echo_num_tokens: int | None = Field(default=None, ge=1)  #: length of its answers; default: as long as the message
    echo_fail_after: int | None = Field(default=None, ge=0)  #: break every answer after so many tokens, to test callers

    remote_base_url: str | None = None  #: --engine openai: the other server, e.g. https://host/v1
    remote_model: str | None = None  #: its name for the model
    remote_api_key_file: Path | None = None
    remote_context_length: int = Field(default=32_768, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> "WorkerSettings":
        if _MODEL_NAME.fullmatch(self.model_name) is None:
            raise ValueError(f"the model name {self.model_name!r} must be letters, digits and . _ : / - only")
        for url in (*self.controller_urls, *filter(None, (self.worker_url, self.remote_base_url))):
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError(f"{url!r} is not an http or https URL")
        if self.controller_urls and self.worker_token is None and self.worker_token_file is None:
            raise ValueError("registering with a controller needs AGON_WORKER_TOKEN or AGON_WORKER_TOKEN_FILE")
        if self.controller_urls and self.worker_url is None and self.host in _WILDCARD_HOSTS:
            raise ValueError(f"with host {self.host!r} controllers need AGON_WORKER_URL to reach this worker")
        if self.engine == "openai" and (self.remote_base_url is None or self.remote_model is None):
            raise ValueError("the openai engine needs remote_base_url and remote_model")
        return self

    @property
    def model_name(self) -> str:
        """The alias; without one the folder's name, or the whole hub id."""
        alias, has_alias, _ = self.model.partition("=")
        if has_alias:
            return alias
        return self.model if not Path(self.model).exists() else Path(self.model).resolve().name

    @property
    def model_path(self) -> str:
        alias, has_alias, path = self.model.partition("=")
        return path if has_alias else alias

    def advertised_url(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (self.worker_url or f"http://{host}:{port}").rstrip("/")

    def read_worker_token(self) -> str | None:
        if self.worker_token_file is not None:
            return self.worker_token_file.read_text().strip() or None
        return self.worker_token.get_secret_value() if self.worker_token is not None else None

    def read_api_keys(self) -> tuple[str, ...]:
        keys = [key.get_secret_value() for key in self.api_keys]
        if self.api_keys_file is not None:
            keys.extend(line.strip() for line in self.api_keys_file.read_text().splitlines() if line.strip())
        return tuple(keys)

    @property
    def is_on_loopback(self) -> bool:
        return self.host in ("127.0.0.1", "::1", "localhost")
