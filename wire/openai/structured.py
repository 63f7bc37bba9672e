"""The fields of a request that say what the answer must match: OpenAI's response_format, vLLM's structured_outputs, the
names that vLLM gave them before, and those of SGLang and llama.cpp."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from wire.constraints import MAX_CONSTRAINT_CHARS, ConstraintKind, OutputConstraint
from wire.openai.fields import STRUCTURED_OUTPUTS
from wire.openai.tolerance import Known, Tolerant, invalid

Schema = dict[str, Any] | bool


class JsonSchemaFormat(Tolerant):
    """The schema of an answer. `strict` is taken: every answer follows the schema exactly."""

    may_be_empty: ClassVar[frozenset[str]] = frozenset({"schema"})

    name: str | None = Field(default=None, max_length=64, description="for the reader of the request")
    description: str | None = Field(default=None, description="likewise")
    strict: bool | None = Field(default=None, description="answers follow the schema exactly in any case")
    schema_: Schema = Field(alias="schema", description="a JSON schema")


class ResponseFormat(Tolerant):
    """The format of the answer: text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = Field(default=None, description="with type json_schema")

    @model_validator(mode="after")
    def _has_schema(self) -> "ResponseFormat":
        if self.type == "json_schema" and self.json_schema is None:
            raise invalid("json_schema", "needed with type json_schema")
        return self


class StructuredOutputs(Tolerant):
    """vLLM's constraints: exactly one of them."""

    known: ClassVar[Mapping[str, Known]] = STRUCTURED_OUTPUTS
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"json"})

    json_: Schema | str | None = Field(default=None, alias="json", description="a JSON schema, or its text")
    regex: str | None = Field(default=None, description="a regular expression for the whole answer")
    choice: tuple[str, ...] | None = Field(default=None, description="the answer is one of these texts")
    grammar: str | None = Field(default=None, description="in the Lark dialect of llguidance, or GBNF")
    json_object: bool | None = Field(default=None, description="any JSON object")


class ConstraintFields(BaseModel):
    """What a request of either kind of completion may say."""

    structured_outputs: StructuredOutputs | None = Field(default=None, description="what the answer must match (vLLM)")
    guided_json: Schema | str | None = Field(default=None, description="a JSON schema (vLLM's former name)")
    guided_regex: str | None = Field(default=None, description="a regular expression (vLLM's former name)")
    guided_choice: tuple[str, ...] | None = Field(default=None, description="texts to choose from (vLLM's former name)")
    guided_grammar: str | None = Field(default=None, description="a grammar (vLLM's former name)")
    json_schema: Schema | str | None = Field(default=None, description="a JSON schema (SGLang, llama.cpp)")
    regex: str | None = Field(default=None, description="a regular expression (SGLang)")
    ebnf: str | None = Field(default=None, description="a grammar (SGLang)")
    grammar: str | None = Field(default=None, description="a grammar (llama.cpp)")
    thinking_token_budget: int | None = Field(
        default=None, ge=-1, le=1_000_000, description="another name of thinking_budget (vLLM); -1: none"
    )

    def constraint(self, response_format: ResponseFormat | None = None) -> OutputConstraint | None:
        """The one constraint of the request, which several fields may name. Raises the error for different ones, and
        for one that is too long."""
        given: list[tuple[str, ConstraintKind, Any]] = []
        if response_format is not None and response_format.type == "json_object":
            given.append(("response_format", "json_object", ""))
        elif response_format is not None and response_format.json_schema is not None:
            given.append(("response_format", "json_schema", response_format.json_schema.schema_))
        vllm = self.structured_outputs or StructuredOutputs()
        named: tuple[tuple[str, ConstraintKind, Any], ...] = (
            ("structured_outputs", "json_schema", vllm.json_),
            ("structured_outputs", "regex", vllm.regex),
            ("structured_outputs", "choice", vllm.choice),
            ("structured_outputs", "grammar", vllm.grammar),
            ("structured_outputs", "json_object", "" if vllm.json_object else None),
            ("guided_json", "json_schema", self.guided_json),
            ("guided_regex", "regex", self.guided_regex),
            ("guided_choice", "choice", self.guided_choice),
            ("guided_grammar", "grammar", self.guided_grammar),
            ("json_schema", "json_schema", self.json_schema),
            ("regex", "regex", self.regex),
            ("ebnf", "grammar", self.ebnf),
            ("grammar", "grammar", self.grammar),
        )
        given += [entry for entry in named if entry[2] is not None]
        found: OutputConstraint | None = None
        for param, kind, value in given:
            text = value if isinstance(value, str) else json.dumps(value)
            if len(text) > MAX_CONSTRAINT_CHARS:
                raise invalid(param, f"at most {MAX_CONSTRAINT_CHARS} characters")
            if found is None:
                found = OutputConstraint(kind=kind, value=text, param=param)
            elif (found.kind, found.value) != (kind, text):
                raise invalid(param, "the answer can only have one constraint")
        return found
