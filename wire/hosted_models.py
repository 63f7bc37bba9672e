"""Models of other servers that speak the OpenAI protocol: the source form, which is parsed and written here only.

`openai:MODEL@URL`, and after a `#` options as in a URL's query: `openai:gpt-x@https://HOST/v1#key_env=NAME`. A source
names where the key is, an environment variable or a file of the worker's machine, and never has the key itself, so it
may be stored, logged and shown in a list of processes.
"""

import json
import re
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError, model_validator

PREFIX = "openai:"
_FORM = re.compile(r"openai:(?P<model>[^\s#]+?)@(?P<url>https?://[^\s#]+)(?:#(?P<options>\S*))?")
_SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "api-key", "x-api-key", "x-goog-api-key"}
)
_OUR_HEADERS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})
#: Fields of a request that are the adapter's own.
_OUR_FIELDS = frozenset({"model", "messages", "prompt", "stream", "n", "tools"})


def is_hosted(source: str) -> bool:
    """Whether the source of a model is another server."""
    return source.startswith(PREFIX)


def _json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("a JSON object is needed") from None


HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
HeaderValue = Annotated[str, Field(max_length=1024, pattern=r"^[\x20-\x7e]*$")]


class HostedModel(BaseModel):
    """A model of another server, and how it is asked. `str` is its source form."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    model: str = Field(description="the other server's name for it")
    url: str = Field(description="of the other server, up to and with /v1")
    key_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$",
        description="environment variable of the worker that has the key",
    )
    key_file: str | None = Field(default=None, max_length=1024, description="file of mode 600 with the key")
    key_header: HeaderName | None = Field(
        default=None, description="header with the key alone; none: Authorization, after the word Bearer"
    )
    context_length: int = Field(default=32_768, ge=1, description="of the model, in tokens")
    max_running: int | None = Field(default=None, ge=1, le=4096, description="requests at once; none: --max-running")
    requests_per_minute: int | None = Field(default=None, ge=1, description="most requests in any minute")
    tokens_per_day: int | None = Field(
        default=None, ge=1, description="most tokens of prompts and answers in a UTC day"
    )
    cost_per_day: float | None = Field(default=None, gt=0, description="most cost in a UTC day, in the prices' unit")
    prompt_price: float = Field(default=0.0, ge=0, description="cost of a million prompt tokens")
    answer_price: float = Field(default=0.0, ge=0, description="cost of a million tokens of answers")
    max_tokens: Literal["max_tokens", "max_completion_tokens", "none"] = Field(
        default="max_tokens", description="the field that bounds an answer; none: no such field is sent"
    )
    stream_usage: bool = Field(default=True, description="ask for usage by `stream_options`")
    body: Annotated[dict[str, JsonValue], BeforeValidator(_json)] = Field(
        default={}, description="JSON object of further fields of every request; null leaves a field out"
    )
    headers: Annotated[dict[HeaderName, HeaderValue], BeforeValidator(_json)] = Field(
        default={}, description="JSON object of further headers of every request; no secrets"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "HostedModel":
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the URL must be http or https")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL must have no user and password: name the key by key_env or key_file")
        if parts.query and not re.fullmatch(r"api-version=[\w.-]+", parts.query):
            raise ValueError("the URL must have no query but api-version: name the key by key_env or key_file")
        if self.key_env is not None and self.key_file is not None:
            raise ValueError("key_env and key_file exclude each other")
        if self.key_env is not None and self.key_env.upper().startswith("AGON_"):
            raise ValueError("key_env must not name a variable of Agon's own")
        if self.cost_per_day is not None and not (self.prompt_price or self.answer_price):
            raise ValueError("cost_per_day needs prompt_price or answer_price")
        for name in self.headers:
            if name.lower() in _SECRET_HEADERS:
                raise ValueError(f"the header {name} has a secret: use key_header with key_env or key_file")
            if name.lower() in _OUR_HEADERS:
                raise ValueError(f"the header {name} is set by the adapter")
        if taken := sorted(_OUR_FIELDS & self.body.keys()):
            raise ValueError(f"the field {taken[0]!r} is set by the adapter")
        return self

    @classmethod
    def parse(cls, source: str) -> "HostedModel":
        """From the source form. Raises ValueError with one sentence, which quotes no value."""
        found = _FORM.fullmatch(source)
        if found is None:
            raise ValueError("a hosted model is named openai:MODEL@https://HOST/v1")
        pairs = parse_qsl(found["options"] or "", keep_blank_values=True)
        options = dict(pairs)
        if len(options) != len(pairs):
            raise ValueError("an option of a hosted model is given twice")
        if {"model", "url"} & options.keys():
            raise ValueError("model and url are no options of a hosted model")
        return cls.of(model=found["model"], url=found["url"].rstrip("/"), **options)

    @classmethod
    def of(cls, **values: Any) -> "HostedModel":
        """From its fields. Raises ValueError with one sentence, which quotes no value."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = str(first["loc"][0]) if first["loc"] else ""
            if first["type"] == "extra_forbidden":
                raise ValueError(f"hosted models have no option {name[:40]!r}") from None
            reason = str(first["msg"]).removeprefix("Value error, ")
            raise ValueError(f"{name}: {reason}" if name else reason) from None

    def __str__(self) -> str:
        options = self.model_dump(mode="json", exclude_defaults=True, exclude={"model", "url"})
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
        fragment = "&".join(f"{name}={quote(text, safe='/')}" for name, text in texts.items())
        return f"{PREFIX}{self.model}@{self.url}" + (f"#{fragment}" if fragment else "")

    @property
    def where(self) -> str:
        """The host and the model, for people."""
        return f"{self.model}@{urlsplit(self.url).netloc}"
