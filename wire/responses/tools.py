"""The tools of a request to `/v1/responses`. Functions are shown to the model; those of a namespace under a name that
has the namespace in it, which answers split again. Tools that OpenAI's servers run are left out of the prompt."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from wire.openai.tolerance import Known, Tolerant, refused
from wire.responses.fields import TOOL
from wire.tools import MAX_TOOLS, FunctionName, FunctionType

_HOSTED = re.compile(
    r"(web_search|file_search|code_interpreter|image_generation|local_shell|tool_search)(_preview)?([_-]\d[\d_-]*)?"
)


class FunctionTool(Tolerant):
    """A function that the model may call."""

    known: ClassVar[Mapping[str, Known]] = TOOL
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"parameters", "description"})

    type: FunctionType
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = Field(default=None, description="JSON schema of the arguments")
    strict: bool | None = None


class NamespaceTool(Tolerant):
    """Functions that have their names in a namespace."""

    type: Literal["namespace"]
    name: FunctionName
    description: str | None = Field(default=None, description="the model reads it before that of the first function")
    tools: tuple[FunctionTool, ...] = Field(default=(), max_length=MAX_TOOLS, fail_fast=True)


class HostedTool(Tolerant):
    """A tool that OpenAI's servers would run. The model is not told of it."""

    type: str


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if kind == "namespace":
        return "a namespace"
    return "a hosted tool" if _is_hosted(kind) else "a function"


def _is_hosted(kind: object) -> bool:
    return isinstance(kind, str) and _HOSTED.fullmatch(kind) is not None


def _typed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    if not kind:
        raise refused("type", "a tool needs a type: function, or namespace.")
    return {"type": kind} if _is_hosted(kind) else value


Tool = Annotated[
    Annotated[FunctionTool, Tag("a function")]
    | Annotated[NamespaceTool, Tag("a namespace")]
    | Annotated[HostedTool, Tag("a hosted tool")],
    Discriminator(_kind),
    BeforeValidator(_typed),
]


def full_name(namespace: str | None, name: str) -> str:
    """The name of a function as the model reads it."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


@dataclass(frozen=True, slots=True)
class ShownTools:
    """What of the tools the model sees."""

    functions: list[dict[str, Any]] = field(default_factory=list)  #: as fields of a chat completion request
    places: list[str] = field(default_factory=list)  #: of each of them in the request
    namespaces: dict[str, tuple[str, str]] = field(default_factory=dict)  #: full name to namespace and name
    hosted: list[str] = field(default_factory=list)  #: types of those that were left out

    def split(self, name: str) -> dict[str, str]:
        """The fields of a call that name its function."""
        if name not in self.namespaces:
            return {"name": name}
        namespace, own = self.namespaces[name]
        return {"name": own, "namespace": namespace}


def shown_tools(tools: Iterable[FunctionTool | NamespaceTool | HostedTool]) -> ShownTools:
    """The functions among the tools, namespaces resolved."""
    shown = ShownTools()
    for place, tool in enumerate(tools):
        match tool:
            case FunctionTool():
                shown.functions.append(_function(tool, tool.name, tool.description))
                shown.places.append(f"tools.{place}")
            case NamespaceTool():
                above = tool.description
                for inner, one in enumerate(tool.tools):
                    name = full_name(tool.name, one.name)
                    said = "\n\n".join(filter(None, (above, one.description))) or None
                    above = None
                    shown.functions.append(_function(one, name, said))
                    shown.places.append(f"tools.{place}.tools.{inner}")
                    shown.namespaces[name] = (tool.name, one.name)
            case HostedTool():
                shown.hosted.append(tool.type)
    return shown


def _function(tool: FunctionTool, name: str, description: str | None) -> dict[str, Any]:
    given = {"name": name, "description": description, "parameters": tool.parameters, "strict": tool.strict}
    return {"type": "function", "function": {name: value for name, value in given.items() if value is not None}}
