"""Settings of one worker, read once at start from flags and environment variables (prefix AGON_). Frozen afterwards.

The engine's settings are those of `EngineConfig`: name, type, default, bounds and description come from there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, create_model, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from engine.config import EngineConfig
from engine.sampling_params import ToolFormat
from engine.settings import SettingField, setting_fields
from model_worker.model_spec import ModelSpec, models_in
from service_kit.cors import CORS_ORIGINS_HELP, CorsOrigins
from service_kit.origins import ALLOWED_HOSTS_HELP, AllowedHosts, is_loopback
from service_kit.settings import ServiceSettings
from wire.chat import TemplateKwargs
from wire.hosted_models import HostedModel
from wire.model_names import is_model_name
from wire.served_models import MAX_MODELS
from wire.sizes import parse_size

EngineKind = Literal["paged", "echo"]
_WILDCARD_HOSTS = ("0.0.0.0", "::", "")

#: Settings that are passed to the engine unchanged. Not `model`: the worker's own field may contain an alias.
ENGINE_FIELDS = tuple(entry for entry in setting_fields(EngineConfig) if entry.field != "model")
#: Flags whose names differ from those of their fields.
_FLAGS = {
    "controller_urls": "--controller",
    "allowed_hosts": "--allowed-host",
    "cors_origins": "--cors-origin",
}


def _bytes(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _comma_list(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_list)]
Bytes = Annotated[int, BeforeValidator(_bytes)]
SecretList = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_comma_list)]


def _pydantic_field(entry: SettingField) -> tuple[Any, Any]:
    setting = entry.setting
    bounds = {"ge": setting.minimum, "gt": setting.above, "le": setting.maximum}
    given: Mapping[str, Any] = {name: bound for name, bound in bounds.items() if bound is not None}
    return entry.type, Field(default=entry.default, description=setting.description, **given)


if TYPE_CHECKING:
    _EngineSettings = ServiceSettings  # code reads these fields through `engine_config`, which has their types
else:
    _EngineSettings = create_model(
        "_EngineSettings", __base__=ServiceSettings, **{entry.name: _pydantic_field(entry) for entry in ENGINE_FIELDS}
    )


class WorkerSettings(_EngineSettings):
    """One worker process: its models and engine, where it listens, the controllers it reports to, and its limits."""

    model_config = SettingsConfigDict(env_prefix="AGON_", frozen=True, extra="forbid", hide_input_in_errors=True)

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...

    model: CommaList = Field(
        default=(),
        max_length=MAX_MODELS,
        description="Folder in Hugging Face layout, GGUF file, hub id, openai:MODEL@URL for a model of another server "
        "(docs/hosted.md), or NAME=MODEL; the flag is repeated for several models, the variable separates them by "
        "commas",
    )
    adapter: CommaList = Field(
        default=(),
        max_length=MAX_MODELS,
        description="LoRA adapter on the only model, as NAME=FOLDER: a model of its own in the same steps; repeated "
        "like the model. Beside several models give NAME=BASE+FOLDER as one of them",
    )
    models_dir: Path | None = Field(
        default=None, description="Folder whose model folders and GGUF files are offered, too, loaded on first use"
    )
    models_file: Path | None = Field(
        default=None,
        description="File in which the worker keeps the models that were added or removed while it ran, so that a "
        "restart serves the same ones",
    )
    memory: Bytes | None = Field(
        default=None,
        gt=0,
        description="Most memory of weights and page pools of all models, as 40GiB: the least recently used ones sleep "
        "when another is needed. Unset: none sleeps by itself",
    )
    wake_timeout_s: float = Field(
        default=60.0, gt=0, description="Seconds that a request waits for its model to wake before it is refused"
    )
    engine: EngineKind = Field(
        default="paged",
        description="What answers. paged: Agon's own engine. echo: for tests. Hosted models have their own",
    )
    engine_process: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether Agon's own engine runs in a process of its own, beside the one that answers HTTP. auto: "
        "on CUDA, where HTTP would slow down its steps",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on")
    port: int = Field(default=8200, ge=0, le=65535, description="Port to listen on; 0: any free one")

    rank: int | None = Field(
        default=None,
        ge=0,
        description="This process's place in a model over several machines (docs/parallel.md): 0 for the one that "
        "answers requests, then 1 and so on. With --tensor-parallel and --master; unset: all ranks on this machine",
    )
    master: str | None = Field(
        default=None,
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$",
        description="HOST:PORT of the machine of rank 0 at which the ranks meet, the same for all of them",
    )

    controller_urls: CommaList = Field(
        default=(),
        description="Controllers to register with; the flag is repeated, the variable separates them by commas. "
        "None: a stand-alone server",
    )
    worker_url: str | None = Field(
        default=None,
        description="URL under which controllers reach this worker; unset: HOST and PORT, https with a certificate",
    )
    worker_token: SecretStr | None = Field(
        default=None, description="Secret shared with the controllers; opens /internal"
    )
    worker_token_file: Path | None = Field(default=None, description="File with the worker token")
    api_keys: SecretList = Field(
        default=(),
        description="Keys for /v1, separated by commas. Without any, /v1 is open to all when stand-alone, else to the "
        "worker token",
    )
    api_keys_file: Path | None = Field(default=None, description="File with one API key per line, for /v1")
    allowed_hosts: AllowedHosts = Field(default=(), description=ALLOWED_HOSTS_HELP)
    cors_origins: CorsOrigins = Field(default=(), description=CORS_ORIGINS_HELP)
    api_docs: bool = Field(default=False, description="Serve GET /openapi.json and the page /docs")

    chat_template_kwargs: TemplateKwargs = Field(
        default={},
        description="JSON object of values for the model's chat template where a request names none, as "
        '{"enable_thinking": false}',
    )
    plain_chat: bool = Field(
        default=False,
        description="Models without a chat template take conversations, too, as text in which `User:` and `Assistant:` "
        "speak, and battles draw them. Otherwise such a base model completes text only (docs/served-models.md)",
    )
    tool_format: Literal["auto", "template"] | ToolFormat = Field(
        default="auto",
        description="Form of the model's tool calls. auto: the one that its chat template shows; where the template "
        "knows no tools, the system message tells of them (docs/tools.md). template: tools are refused there",
    )
    default_max_tokens: int = Field(default=2048, ge=1, description="Most tokens of an answer whose request names none")
    max_body_bytes: int = Field(default=1 << 20, ge=1024, description="Most bytes of a request's body")
    request_timeout_s: float = Field(
        default=600.0, gt=0, description="Seconds after which an answer is aborted with worker_timeout"
    )
    slow_client_s: float = Field(
        default=30.0, gt=0, description="Seconds after which a client that reads nothing is dropped"
    )
    stalled_step_s: float = Field(
        default=60.0, gt=0, description="Seconds without an engine step, while work waits, after which /health fails"
    )
    drain_s: float = Field(default=30.0, ge=0, description="Seconds that running answers may go on after SIGTERM")

    echo_tokens_per_s: float = Field(default=50.0, gt=0, description="Speed of each answer of the echo engine")
    echo_num_tokens: int | None = Field(
        default=None, ge=1, description="Tokens of the echo engine's answers; unset: as long as the message"
    )
    echo_fail_after: int | None = Field(
        default=None, ge=0, description="The echo engine breaks every answer after so many tokens, to test callers"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "WorkerSettings":
        for text in self.adapter:
            if len(self.model) != 1 or "=" not in text:
                raise ValueError(f"the adapter {text!r} must be NAME=FOLDER, beside a single model")
        if self.engine != "paged" and any(spec.adapter for spec in self.specs):
            raise ValueError("only models of the engine paged have adapters")
        for name in self.model_names:
            if not is_model_name(name):
                raise ValueError(f"the model name {name!r} must be ASCII letters, digits and . _ : / -: NAME=MODEL")
            if self.model_names.count(name) > 1:
                raise ValueError(f"two models are named {name!r}; name one of them differently: NAME=MODEL")
        if not (self.model or self.models_dir or self.models_file):
            raise ValueError("--model (AGON_MODEL): which model is served is needed")
        for spec in self.specs:
            if spec.is_hosted:
                HostedModel.parse(spec.source)
        if len(self.model) != 1 and self.engine_config.tensor_parallel > 1:
            raise ValueError("a model in several processes is the only model of its worker")
        self._check_place()
        for url in (*self.controller_urls, *filter(None, (self.worker_url,))):
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError(f"{url!r} is not an http or https URL")
        if self.controller_urls and not self.token_text:
            raise ValueError("registering with a controller needs AGON_WORKER_TOKEN or AGON_WORKER_TOKEN_FILE")
        if self.controller_urls and self.worker_url is None and self.host in _WILDCARD_HOSTS:
            raise ValueError(f"with host {self.host!r} controllers need AGON_WORKER_URL to reach this worker")
        has_keys = bool(self.api_keys or self.controller_urls)
        if "*" in self.cors_origins and not has_keys:
            raise ValueError("AGON_CORS_ORIGINS=* needs AGON_API_KEYS: every web page could use the model")
        return self

    def _check_place(self) -> None:
        """Raises ValueError for a rank that is no place among the processes of the model."""
        if (self.rank is None) != (self.master is None):
            raise ValueError("--rank and --master belong together: a model over several machines needs both")
        size = self.engine_config.tensor_parallel
        if self.rank is not None and size == 1:
            raise ValueError("--rank needs --tensor-parallel, the number of processes that share the model")
        if self.rank is not None and self.rank >= size:
            raise ValueError(f"--rank {self.rank} is no place among {size} processes: 0 to {size - 1} are")

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The models that are loaded at the start."""
        models = tuple(ModelSpec.parse(text) for text in self.model)
        adapters = (text.partition("=") for text in self.adapter)
        return (*models, *(ModelSpec(name, f"{models[0].name}+{folder}") for name, _, folder in adapters))

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names of the models that are loaded at the start."""
        return tuple(spec.name for spec in self.specs)

    def models_on_disk(self) -> tuple[ModelSpec, ...]:
        """The models of `models_dir`, without those of the same name that are loaded at the start. Raises OSError."""
        found = () if self.models_dir is None else models_in(self.models_dir)
        return tuple(spec for spec in found if spec.name not in self.model_names)

    def of_model(self, spec: ModelSpec) -> "WorkerSettings":
        """These settings with `spec` as the only model."""
        num_adapters = sum(each.adapter is not None and each.adapter.base == spec.name for each in self.specs)
        changes = {
            "model": (str(spec),),
            "adapter": (),
            "max_adapters": max(self.engine_config.max_adapters, num_adapters),
        }
        return self.model_copy(update=changes)

    @property
    def model_name(self) -> str:
        """The only model's alias; without one the name of the folder or GGUF file, or the whole hub id."""
        [text] = self.model
        return ModelSpec.parse(text).name

    @property
    def model_path(self) -> str:
        """The only model's folder, GGUF file or hub id, without the alias."""
        [text] = self.model
        return ModelSpec.parse(text).source

    @property
    def is_hosted(self) -> bool:
        """Whether the only model is one of another server."""
        return len(self.model) == 1 and self.specs[0].is_hosted

    @property
    def engine_config(self) -> EngineConfig:
        """The engine's settings, with their types; other engines than Agon's own take limits from them. Settings of
        several models name none here."""
        return EngineConfig(
            self.model_path if len(self.model) == 1 else "",
            **{entry.field: getattr(self, entry.name) for entry in ENGINE_FIELDS},
        )

    def advertised_url(self, port: int) -> str:
        """URL under which controllers reach this worker when it listens on `port`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (self.worker_url or f"{self.scheme}://{host}:{port}").rstrip("/")

    @property
    def token_text(self) -> str:
        """The worker token; empty without one."""
        return self.worker_token.get_secret_value() if self.worker_token is not None else ""

    @property
    def key_texts(self) -> tuple[str, ...]:
        """All keys for /v1."""
        return tuple(key.get_secret_value() for key in self.api_keys)

    @property
    def is_on_loopback(self) -> bool:
        """Whether only processes of this machine can connect."""
        return is_loopback(self.host)


def flag_of(name: str) -> str | None:
    """The command-line flag of a field of WorkerSettings; None for secrets, which a list of processes would show."""
    annotation = WorkerSettings.model_fields[name].annotation
    if SecretStr in (annotation, *get_args(annotation)):
        return None
    return _FLAGS.get(name, "--" + name.replace("_", "-"))
