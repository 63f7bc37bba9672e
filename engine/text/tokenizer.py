"""Text to token ids and back for one model folder: tokenizer.json, the chat template and the ids that end a sequence.

Used by the composition root and by the services that turn chats into prompts; scheduler and runner see only ids. Safe
to use from several threads (incremental detokenizers are not).
"""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import tokenizers

from engine.errors import InvalidRequest
from engine.sampling_params import ThoughtTags, ToolCallSyntax, ToolFormat, ToolFunction
from engine.text.chat_template import CONTINUED_HERE, THOUGHTS_KEY, ChatTemplate
from engine.text.control_pattern import CUT
from engine.text.control_tokens import ControlTokens
from engine.text.detokenizer import IncrementalDetokenizer
from engine.text.messages import (
    Change,
    Values,
    changed,
    checked_messages,
    described,
    function_of,
    valid,
    with_read_system,
    with_thoughts,
)
from engine.text.plain_chat import PLAIN_CHAT
from engine.text.prompted_tools import PROMPTED_FORMAT, with_told_tools
from engine.text.reasoning_effort import with_effort
from engine.text.thoughts import DEFAULT_TAGS, KNOWN_TAGS
from engine.text.token_bytes import byte_alphabet, byte_decoder
from engine.text.tokenizer_files import (
    read_backend,
    read_chat_template,
    read_eos_token_ids,
    read_special_tokens,
)
from engine.text.tool_calls.detection import detect_format, marks_of
from engine.text.tool_calls.harmony import begun_message

__all__ = ["IncrementalDetokenizer", "Tokenizer"]

_PROMPT_END = 32  #: tokens at the end of a prompt in which a template may open the thoughts

_SHORT_CHARS = 4096  #: such a text takes some milliseconds; the batch calls hand it to another thread


class Tokenizer:
    """The tokenizer of one model."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        eos_token_ids: frozenset[int] = frozenset(),
        special_tokens: Mapping[str, str] | None = None,
        chat_template: str | None = None,
    ) -> None:
        """special_tokens: texts by name (bos_token, ...), as in tokenizer_config.json."""
        backend.no_padding()
        backend.no_truncation()
        names = dict(special_tokens or {})
        self._backend = backend
        self._to_bytes, self.strips_first_space = byte_decoder(_settings_of(backend.decoder))
        self.eos_token_ids = eos_token_ids
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.bos_token_id: int | None = backend.token_to_id(names["bos_token"]) if "bos_token" in names else None
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._unknown_id = backend.token_to_id(names["unk_token"]) if "unk_token" in names else None
        self._template = ChatTemplate(chat_template, names) if chat_template is not None else None
        self._special_texts = {token.content: token_id for token_id, token in added.items() if token.special}
        shown_format = detect_format(chat_template or "", self._special_texts)
        #: Whether the chat template knows no tools, so that the system message tells of them.
        self.prompts_tools = not (self._template is None or self._template.knows_tools or shown_format == "harmony")
        self._shows_calls = shown_format is not None
        #: In what form the model calls tools; None: its template shows no known one.
        self.tool_format = PROMPTED_FORMAT if self.prompts_tools else shown_format
        self._tags = self._thought_tags()
        self._special_ids -= {backend.token_to_id(tag) for tag in (self._tags.begin, self._tags.end)}
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def from_folder(cls, path: str | Path) -> Self:
        """Read the tokenizer and, where present, its settings, the chat template and generation_config.json.

        Raises CheckpointError.
        """
        folder = Path(path)
        backend = read_backend(folder)
        special_tokens = read_special_tokens(folder)
        named_eos = backend.token_to_id(special_tokens.get("eos_token", ""))
        tokenizer = cls(
            backend,
            eos_token_ids=read_eos_token_ids(folder) | (frozenset() if named_eos is None else {named_eos}),
            special_tokens=special_tokens,
            chat_template=read_chat_template(folder),
        )
        if tokenizer._template is not None:
            tokenizer._template.check_bounds()
            assert tokenizer._control  # found out here, so that no chat waits for it
        return tokenizer

    @classmethod
    def of_model(cls, folder: Path, *, has_weights: bool) -> Self:
        """The tokenizer of a folder; one of bytes for random weights in a folder without a tokenizer."""
        return cls.from_folder(folder) if has_weights or (folder / "tokenizer.json").is_file() else cls.of_bytes()

    @classmethod
    def of_bytes(cls) -> Self:
        """One token for each byte: for a model of random weights without a tokenizer."""
        backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=dict(byte_alphabet()), merges=[]))
        backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = tokenizers.decoders.ByteLevel()
        return cls(backend)

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be rendered; a base model completes text only."""
        return self._template is not None

    def with_plain_chat(self) -> Self:
        """The same tokenizer for a base model that is asked in the form of plain_chat.py."""
        other = copy.copy(self)
        other._template = ChatTemplate(PLAIN_CHAT, {})
        return other

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Token ids of a text. Names of special tokens in the text become these tokens, as a raw prompt may want."""
        text = valid(text)
        if len(text) <= _SHORT_CHARS:
            ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
            return ids
        # `encode` holds the interpreter: 1 MB of one letter stopped all threads for 3 s. The batch calls let it go.
        ids = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a whole sequence of token ids."""
        detokenizer = IncrementalDetokenizer(self, skip_special_tokens)
        return detokenizer.push(ids) + detokenizer.flush()

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, object] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tells_tools: bool = True,
        continue_final_message: bool = False,
    ) -> list[int]:
        """Token ids of a conversation, rendered with the model's own chat template. Raises InvalidRequest.

        chat_template_kwargs: values for variables of the template, such as {"enable_thinking": False}. tools:
        definitions of functions, and messages with `tool_calls`, as in OpenAI's API. tells_tools: where the template
        knows no tools, the system message tells of them (prompted_tools.py); else they are refused.
        continue_final_message: the prompt ends where the text of the last message does, which the model then continues.

        No message, and no such value, can add a control token (end of turn, start of a role, ...): where a text names
        one, it is cut inside the name and the parts are encoded separately. Then the conversation is rendered once more
        with the first characters of such names replaced. If the control tokens differ, the template has joined pieces
        of messages into a control token, and the request is refused. Only in the content of earlier answers the tags of
        thoughts stay whole, because templates look for them there.

        The thoughts of an earlier answer, its `reasoning_content`, are left out unless the template reads them, under
        whatever key. System messages that the template rejects or leaves out become paragraphs of the messages beside
        them. A tool without a description gets an empty one where the template needs it.
        """
        template = self._template
        if template is None:
            raise InvalidRequest("this model has no chat template; send a plain prompt instead", param="messages")
        is_told = tells_tools and self.prompts_tools and (bool(tools) or not self._shows_calls)
        if tools and not (template.knows_tools or is_told):
            raise InvalidRequest("the chat template of this model knows no tools", param="tools")
        if continue_final_message and add_generation_prompt:
            raise InvalidRequest(
                "continue_final_message needs add_generation_prompt false", param="continue_final_message"
            )
        listed = checked_messages(messages, lambda: (False, False) if is_told else template.call_style)
        listed = with_thoughts(listed, THOUGHTS_KEY, template.thoughts_key, lambda: template.wants_thoughts_alone)
        if continue_final_message and not isinstance(listed[-1].get("content"), str):
            raise InvalidRequest("the last message has no text to continue", param="continue_final_message")
        told = list(tools or ())
        if any("description" not in function_of(tool) for tool in told) and not is_told and template.needs_descriptions:
            told = [described(tool) for tool in told]
        given = Values(listed, self.template_kwargs(chat_template_kwargs or {}), told)

        def render(values: Values) -> list[int]:
            messages, shown = values.messages, values.tools
            if is_told:
                messages, shown = with_told_tools(messages, shown), []
            messages = with_read_system(messages, lambda: template.reads_system)
            if continue_final_message:
                messages[-1] = {**messages[-1], "content": messages[-1]["content"] + CONTINUED_HERE}
            text = template.render(
                messages, add_generation_prompt=add_generation_prompt, kwargs=values.kwargs, tools=shown
            )
            if continue_final_message:
                text, mark, _ = text.rpartition(CONTINUED_HERE)
                if not mark:
                    raise InvalidRequest(
                        "the chat template leaves out the last message", param="continue_final_message"
                    )
            return [token_id for part in text.split(CUT) if part for token_id in self.encode(part)]

        control = self._control
        texts, answers = control.pattern, control.answer_pattern
        ids = render(changed(given, Change(texts.cut, texts.cut, answers.cut)))
        disarmed = changed(given, Change(texts.disarmed, texts.disarmed_key, answers.disarmed))
        if disarmed != given and control.among(ids) != control.among(render(disarmed)):
            raise InvalidRequest("a message spells out control tokens of this model", param="messages")
        return ids

    def tool_call_syntax(
        self,
        prompt_ids: Sequence[int],
        *,
        tool_format: ToolFormat | None = None,
        functions: Sequence[ToolFunction] = (),
        is_single: bool = False,
        id_seed: str = "",
    ) -> ToolCallSyntax | None:
        """How the answer to this prompt is read. None: as plain text, where there are no functions to call; the output
        of harmony models is always read, for their thoughts. tool_format: instead of the model's own."""
        chosen = tool_format or self.tool_format
        if chosen is None or not (functions or chosen == "harmony"):
            return None
        marks = tuple(mark for mark in marks_of(chosen) if mark in self._special_texts)
        begun = begun_message(self._text_from(prompt_ids, "<|start|>")) if chosen == "harmony" else ""
        return ToolCallSyntax(chosen, tuple(functions), id_seed, is_single, marks, begun)

    def special_token_id(self, text: str) -> int | None:
        """The id of a special token; None: the text is none."""
        return self._special_texts.get(text)

    def ids_of(self, special_tokens: Sequence[str]) -> frozenset[int]:
        """The ids of these special tokens."""
        return frozenset(self._special_texts[text] for text in special_tokens)

    def template_kwargs(self, kwargs: Mapping[str, object]) -> dict[str, object]:
        """Values for the chat template, with what a `reasoning_effort` among them means to it."""
        return with_effort(kwargs, self._template.variables if self._template is not None else ())

    def thought_tags(self, prompt_ids: Sequence[int]) -> ThoughtTags:
        """Between which texts the model thinks when it answers this prompt."""
        end = IncrementalDetokenizer(self, skip_special_tokens=False).push(prompt_ids[-_PROMPT_END:]).rstrip()
        tags = self._tags
        return replace(
            tags, is_open=end.endswith((tags.begin, tags.begin + tags.word)), is_closed=end.endswith(tags.end)
        )

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text; empty for ids that the tokenizer does not know."""
        piece = self._pieces.get(token_id)
        if piece is None:
            token = self._backend.id_to_token(token_id)
            piece = self._pieces[token_id] = self._to_bytes(token) if token is not None else b""
        return piece

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a special one of tokenizer.json, which is not shown. Tags of thoughts are: they are
        looked for in the text."""
        return token_id in self._special_ids

    def _thought_tags(self) -> ThoughtTags:
        """Those that the chat template names, else those that are tokens of their own, else the usual ones."""
        if self._template is not None and self._template.tags is not None:
            return self._template.tags
        added = {token.content for token in self._backend.get_added_tokens_decoder().values()}
        return next((tags for tags in KNOWN_TAGS if {tags.begin, tags.end} <= added), DEFAULT_TAGS)

    def _text_from(self, prompt_ids: Sequence[int], mark: str) -> str:
        """The text behind the last such special token of a prompt; empty where there is none."""
        mark_id = self._special_texts.get(mark)
        place = next((i for i in range(len(prompt_ids) - 1, -1, -1) if prompt_ids[i] == mark_id), None)
        if mark_id is None or place is None:
            return ""
        return self.decode(prompt_ids[place + 1 : place + 1 + _PROMPT_END], skip_special_tokens=False)

    @cached_property
    def _control(self) -> ControlTokens:
        """The control tokens: that takes up to a tenth of a second."""
        assert self._template is not None
        always = self.eos_token_ids | frozenset(self._special_texts.values())
        # The unknown token does not control the model, and any text may be encoded as it.
        return ControlTokens(self._backend, self._template, self._tags, always=always, never={self._unknown_id})


def _settings_of(decoder: Any) -> Any:
    """A decoder as tokenizer.json has it; None where there is none. Without its vocabulary, which takes a second."""
    return None if decoder is None else json.loads(decoder.__getstate__())
