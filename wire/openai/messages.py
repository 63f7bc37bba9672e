"""Messages of a chat request, as OpenAI's clients send them."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from wire.chat import ChatMessage, Role

MAX_MESSAGES = 1024


class RequestPart(BaseModel):
    """A part of a request's body."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(RequestPart):
    """A text part of a message's content."""

    type: Literal["text"]
    text: str


def _role(value: object) -> object:
    return "system" if value == "developer" else value


class RequestMessage(RequestPart):
    """One message of a chat request. `content` is a string or a list of text parts; images and tool messages are
    refused."""

    role: Annotated[Role, BeforeValidator(_role)] = Field(description="`developer` is taken as system")
    content: str | Annotated[tuple[TextPart, ...], Field(fail_fast=True)]
    reasoning_content: str | None = Field(
        default=None, description="thoughts of an earlier answer; only chat templates that read them get them"
    )
    name: str | None = Field(default=None, description="accepted and not used")

    def as_chat_message(self) -> ChatMessage:
        """The message as the engine sees it: text parts joined."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return ChatMessage(role=self.role, content=text, reasoning_content=self.reasoning_content)
