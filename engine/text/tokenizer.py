"""Text to token ids and back for one model folder: tokenizer.json, the chat template and the ids that end a sequence.

Used by the composition root and by the services that turn chats into prompts; scheduler and runner see only ids. Safe
to use from several threads (incremental detokenizers are not).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import tokenizers

from engine.config import ThoughtTags
from engine.errors import CheckpointError, InvalidRequest
from engine.json_files import quoted, read_object
from engine.text.chat_template import MAX_SOURCE_CHARS, THOUGHTS_KEY, ChatTemplate
from engine.text.detokenizer import IncrementalDetokenizer
from engine.text.thoughts import DEFAULT_TAGS, KNOWN_TAGS

__all__ = ["IncrementalDetokenizer", "Tokenizer"]

#: A Unicode noncharacter, never valid in interchanged text: marks where a message is cut before it is encoded.
_CUT = "\ufdd0"
#: Another noncharacter: replaces characters that could begin a control token when the structure of a chat is checked.
_HARMLESS = "\ufdd1"
_MAX_TOKENIZER_BYTES = 128 * 2**20  #: that of Gemma 3 has 33 MB
_MAX_TOKEN_ID = 2**31
_ROLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")

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
        self._to_bytes, self.strips_first_space = _byte_decoder(json.loads(backend.to_str()).get("decoder"))
        self.eos_token_ids = eos_token_ids
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.bos_token_id: int | None = backend.token_to_id(names["bos_token"]) if "bos_token" in names else None
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        unknown = backend.token_to_id(names["unk_token"]) if "unk_token" in names else None
        # The unknown token does not control the model, and any text may be encoded as it.
        self._control_ids = (self._special_ids | eos_token_ids) - {unknown}
        control_texts = sorted(filter(None, map(backend.id_to_token, self._control_ids)), key=len, reverse=True)
        self._control_pattern = re.compile("|".join(map(re.escape, control_texts)) or r"(?!)")
        self._control_starts = str.maketrans({text[0]: _HARMLESS for text in control_texts})
        self._template = ChatTemplate(chat_template, names) if chat_template is not None else None
        self._tags = self._thought_tags()
        self._special_ids -= {backend.token_to_id(tag) for tag in (self._tags.begin, self._tags.end)}
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def from_folder(cls, path: str | Path) -> Self:
        """Read tokenizer.json and, where present, its settings, the chat template and generation_config.json.

        Raises CheckpointError.
        """
        folder = Path(path)
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise CheckpointError(f"{folder} has no tokenizer.json (older tokenizer formats must be converted first)")
        backend = _read_backend(file)
        settings = _read_json(folder / "tokenizer_config.json")
        special_tokens = _special_tokens(settings)
        named_eos = backend.token_to_id(special_tokens.get("eos_token", ""))
        tokenizer = cls(
            backend,
            eos_token_ids=read_eos_token_ids(folder) | (frozenset() if named_eos is None else {named_eos}),
            special_tokens=special_tokens,
            chat_template=_chat_template_source(folder, settings),
        )
        if tokenizer._template is not None:
            tokenizer._template.check_bounds()
        return tokenizer

    @classmethod
    def of_bytes(cls) -> Self:
        """One token for each byte: for a model of random weights without a tokenizer."""
        backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=_byte_alphabet(), merges=[]))
        backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = tokenizers.decoders.ByteLevel()
        return cls(backend)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Token ids of a text. Names of special tokens in the text become these tokens, as a raw prompt may want."""
        text = _valid(text)
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

    def render_chat(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> list[int]:
        """Token ids of a conversation, rendered with the model's own chat template. Raises InvalidRequest.

        No message can add a control token (end of turn, start of a role, ...): where a text names one, it is cut inside
        the name and the parts are encoded separately. Then the conversation is rendered once more with the first
        characters of such names replaced. If the control tokens differ, the template has joined pieces of messages into
        a control token, and the request is refused.

        The thoughts of an earlier answer, its `reasoning_content`, are left out unless the template reads them.
        """
        if self._template is None:
            raise InvalidRequest("this model has no chat template; send a plain prompt instead", param="messages")
        if not messages:
            raise InvalidRequest("messages must not be empty", param="messages")
        for message in messages:
            if not _ROLE.fullmatch(message.get("role", "")):
                raise InvalidRequest(f"not a role: {message.get('role')!r}", param="messages")
        if not self._template.reads_thoughts:
            messages = [{key: text for key, text in message.items() if key != THOUGHTS_KEY} for message in messages]
        cut = [self._map_texts(message, self._cut) for message in messages]
        ids = self._render(self._template, cut, add_generation_prompt)
        harmless = [self._map_texts(message, self._without_starts) for message in messages]
        if harmless != [dict(message) for message in messages]:
            reference = self._render(self._template, harmless, add_generation_prompt)
            if self._control_tokens(ids) != self._control_tokens(reference):
                raise InvalidRequest("a message spells out control tokens of this model", param="messages")
        return ids

    def thought_tags(self, prompt_ids: Sequence[int]) -> ThoughtTags:
        """Between which texts the model thinks when it answers this prompt."""
        end = IncrementalDetokenizer(self, skip_special_tokens=False).push(prompt_ids[-_PROMPT_END:])
        return replace(self._tags, is_open=end.rstrip().endswith(self._tags.begin))

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

    def _render(
        self, template: ChatTemplate, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool
    ) -> list[int]:
        text = template.render(messages, add_generation_prompt=add_generation_prompt)
        return [token_id for part in text.split(_CUT) if part for token_id in self.encode(part)]

    def _control_tokens(self, ids: Sequence[int]) -> list[int]:
        return [token_id for token_id in ids if token_id in self._control_ids]

    def _map_texts(self, message: Mapping[str, str], change: Callable[[str], str]) -> dict[str, str]:
        return {key: text if key == "role" else change(_valid(text)) for key, text in message.items()}

    def _cut(self, text: str) -> str:
        return self._control_pattern.sub(lambda match: match[0][0] + _CUT + match[0][1:], text)

    def _without_starts(self, text: str) -> str:
        return text.translate(self._control_starts)


def _valid(text: str) -> str:
    """The text without lone surrogates, which JSON can carry and on which the tokenizer fails."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _read_backend(file: Path) -> tokenizers.Tokenizer:
    try:
        if (size := file.stat().st_size) > _MAX_TOKENIZER_BYTES:
            raise CheckpointError(f"{file} has {size} bytes, more than {_MAX_TOKENIZER_BYTES}")
        return tokenizers.Tokenizer.from_file(str(file))
    except (CheckpointError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # plain Exception, and a panic of its Rust code, which is no Exception
        raise CheckpointError(f"{file} is not a readable tokenizer: {error}") from error


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the special tokens: each is a string, or an object with a `content`."""
    found = {}
    for name in _SPECIAL_NAMES:
        value = settings.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
        elif value is not None:
            raise CheckpointError(f"tokenizer_config.json: {name} must be a text, got {quoted(value)}")
    return found


def _read_json(file: Path) -> Mapping[str, Any]:
    return read_object(file) if file.is_file() else {}


def read_eos_token_ids(folder: Path) -> frozenset[int]:
    """The ids that end a sequence: generation_config.json decides, then config.json. Raises CheckpointError for values
    that are no ids."""
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        if value is not None:
            ids = value if isinstance(value, list) else [value]
            if not all(type(entry) is int and 0 <= entry < _MAX_TOKEN_ID for entry in ids):
                raise CheckpointError(f"{name}: eos_token_id must be a token id or a list of them, got {quoted(value)}")
            return frozenset(ids)
    return frozenset()


def _chat_template_source(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else the entry in tokenizer_config.json: a text, or a list of named texts."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            with file.open(encoding="utf-8") as stream:
                return stream.read(MAX_SOURCE_CHARS + 1)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{file} is no readable text: {error}") from error
    source = settings.get("chat_template")
    if isinstance(source, list) and all(isinstance(entry, dict) and "template" in entry for entry in source):
        source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
    if source is not None and not isinstance(source, str):
        raise CheckpointError(f"tokenizer_config.json: chat_template must be a text, got {quoted(source)}")
    return source


def _byte_decoder(decoder: Mapping[str, Any] | None) -> tuple[Callable[[str], bytes], bool]:
    """How a token's name in tokenizer.json becomes bytes, and whether a text loses its first space.

    Two families cover the served models: byte-level BPE (GPT-2), whose alphabet has one printable character per byte,
    and SentencePiece, which writes a space as U+2581 and rare bytes as <0xNN>.
    """
    steps = [decoder] if decoder and decoder["type"] != "Sequence" else (decoder or {}).get("decoders", [])
    kinds = [step["type"] for step in steps]
    if "ByteLevel" in kinds:
        alphabet = _byte_alphabet()

        def byte_level(token: str) -> bytes:
            try:
                return bytes([alphabet[character] for character in token])
            except KeyError:  # an added token, written as it is
                return token.encode("utf-8")

        return byte_level, False
    if kinds and set(kinds) <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:

        def sentence_piece(token: str) -> bytes:
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                return bytes([int(token[3:5], 16)])
            return token.replace("\u2581", " ").encode("utf-8")

        strips = any(
            step["type"] == "Strip" or (step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")
            for step in steps
        )
        return sentence_piece, strips
    raise CheckpointError(f"tokenizer.json has a decoder of an unknown kind: {kinds or None}")


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE's character for each byte: itself where printable in Latin-1, else the next one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
