"""`POST /tokenize` and `POST /detokenize`, in vLLM's shapes."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field, model_validator

from wire.chat import TemplateKwargs, TokenId
from wire.model_names import MAX_MODEL_NAME_CHARS
from wire.openai.fields import TOKENIZE
from wire.openai.messages import MAX_MESSAGES, RequestMessage
from wire.openai.tolerance import Known, Tolerant, invalid
from wire.tools import ToolDefinitions
from wire.workers import GenerateRequest

ModelField = Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS, description="name of the model")]


class TokenizeRequest(Tolerant):
    """Body of `POST /tokenize`: a text, or a chat that the model's template renders first."""

    known: ClassVar[Mapping[str, Known]] = TOKENIZE

    model: ModelField
    prompt: str | None = Field(default=None, description="a text; either this or messages")
    messages: tuple[RequestMessage, ...] | None = Field(
        default=None, max_length=MAX_MESSAGES, fail_fast=True, description="a chat"
    )
    add_special_tokens: bool | None = Field(
        default=None, description="whether the tokenizer adds its own; null: to a text, not to a chat"
    )
    return_token_strs: bool | None = Field(default=None, description="the text of each token, too")
    add_generation_prompt: bool | None = Field(default=None, description="the template opens an answer; null: true")
    continue_final_message: bool | None = Field(default=None, description="the last message stays open")
    chat_template_kwargs: TemplateKwargs | None = Field(default=None, description="values for the chat template")
    tools: ToolDefinitions | None = Field(default=None, description="tools that the template shows")

    @model_validator(mode="after")
    def _one_input(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise invalid("prompt", "exactly one of prompt and messages is needed")
        if self.continue_final_message and self.add_generation_prompt:
            raise invalid("continue_final_message", "the answer is either continued or opened by add_generation_prompt")
        return self

    def generate_request(self) -> GenerateRequest:
        """The request whose prompt is asked for."""
        messages = None if self.messages is None else tuple(one.as_chat_message() for one in self.messages)
        return GenerateRequest(
            request_id="tokenize",
            prompt=self.prompt,
            messages=messages,
            chat_template_kwargs=self.chat_template_kwargs or {},
            tools=self.tools or (),
            add_generation_prompt=self.add_generation_prompt is not False and not self.continue_final_message,
            continue_final_message=bool(self.continue_final_message),
            add_special_tokens=self.add_special_tokens,
        )


class TokenizeReply(BaseModel):
    """Answer of `POST /tokenize`."""

    count: int = Field(description="how many tokens")
    max_model_len: int = Field(description="the model's context in tokens")
    tokens: list[int]
    token_strs: list[str] | None = Field(default=None, description="with return_token_strs")


class DetokenizeRequest(Tolerant):
    """Body of `POST /detokenize`."""

    model: ModelField
    tokens: tuple[TokenId, ...] = Field(min_length=1, fail_fast=True, description="token ids")


class DetokenizeReply(BaseModel):
    """Answer of `POST /detokenize`."""

    prompt: str = Field(description="their text, special tokens included")
