"""Log probabilities in OpenAI's two shapes: a list of entries in chats, parallel lists in completions."""

import codecs
from collections.abc import Iterable
from typing import Any

from wire.answers import PromptEcho, TokenLogprob, TopLogprob


def chat_logprobs(entries: Iterable[TokenLogprob], *, ids_as_tokens: bool) -> dict[str, Any]:
    """`logprobs` of a chat's choice."""

    def entry_of(entry: TopLogprob) -> dict[str, Any]:
        token = f"token_id:{entry.token_id}" if ids_as_tokens else entry.text
        return {"token": token, "logprob": entry.logprob, "bytes": list(entry.as_bytes)}

    content = [entry_of(entry) | {"top_logprobs": [entry_of(top) for top in entry.top]} for entry in entries]
    return {"content": content, "refusal": None}


class TextLogprobs:
    """`logprobs` of one choice of a completion, part by part: offsets go on from part to part."""

    def __init__(self, *, ids_as_tokens: bool) -> None:
        self._ids_as_tokens = ids_as_tokens
        self._offset = 0  #: characters of the whole tokens so far
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def part(self, entries: Iterable[TokenLogprob]) -> dict[str, Any]:
        """The next entries."""
        found: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        for entry in entries:
            tops = {self._name(top): top.logprob for top in entry.top}
            self._add(found, entry, entry.logprob, {**tops, self._name(entry): entry.logprob})
        return found

    def prompt(self, echo: PromptEcho, entries: Iterable[TokenLogprob | None]) -> dict[str, Any]:
        """Those of the prompt, before all parts. The first token has none."""
        found = self.part(())
        self._add(found, echo.first_token, None, None)
        rest = self.part(entry for entry in entries if entry is not None)
        return {name: values + rest[name] for name, values in found.items()}

    def _add(
        self, found: dict[str, list[Any]], token: TopLogprob, logprob: float | None, tops: dict[str, float] | None
    ) -> None:
        found["text_offset"].append(self._offset)
        found["tokens"].append(self._name(token))
        found["token_logprobs"].append(logprob)
        found["top_logprobs"].append(tops)
        self._offset += len(self._decoder.decode(token.as_bytes))

    def _name(self, entry: TopLogprob) -> str:
        if self._ids_as_tokens:
            return f"token_id:{entry.token_id}"
        if entry.raw:  # OpenAI's form for bytes that are no whole characters
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in entry.as_bytes)
        return entry.text
