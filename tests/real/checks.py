"""What is compared of a published file, and with what. Each check gives one line of the table."""

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tokenizers
from transformers import PreTrainedTokenizerFast

from engine.errors import CheckpointError, InvalidRequest
from engine.formats.gguf.file import GgufFile
from engine.formats.gguf.tokenizer import write_tokenizer
from engine.text.chat_template import ChatTemplate
from engine.text.detokenizer import IncrementalDetokenizer
from engine.text.tokenizer import Tokenizer
from engine.text.tokenizer_files import read_chat_template, read_special_tokens
from tests.engine.text import forgery
from tests.real.texts import CONVERSATIONS, Conversation, texts


@dataclass(frozen=True)
class Outcome:
    """One line: `num_equal` of `num_compared` were the same. `note`: what differs first, or why nothing was compared.
    `reason`: why a difference is right or known."""

    file: str
    check: str
    num_equal: int
    num_compared: int
    note: str = ""
    reason: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing differed without a reason. A file that is not served is no difference: the note has the
        loader's sentence."""
        return self.num_equal == self.num_compared or bool(self.reason)


def ids_of_tokenizer(name: str, folder: Path) -> Outcome:
    """Ids with and without special tokens against the `tokenizers` package on the same tokenizer.json."""
    ours, theirs = Tokenizer.from_folder(folder), tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    pairs = [(text, is_special) for text in texts() for is_special in (False, True)]
    differing = [
        text
        for text, is_special in pairs
        if ours.encode(text, is_special) != theirs.encode(text, add_special_tokens=is_special).ids
    ]
    return Outcome(name, "ids as tokenizers", len(pairs) - len(differing), len(pairs), _first(differing))


def streams_of_tokenizer(name: str, folder: Path, num_streams: int = 2000) -> Outcome:
    """The text of streamed tokens, random ones and pieces of texts, against the text of all of them at once."""
    tokenizer, draw = Tokenizer.from_folder(folder), random.Random(1)
    corpus = texts()
    differing = []
    for number in range(num_streams):
        if number % 2:
            ids = [draw.randrange(tokenizer.vocab_size) for _ in range(draw.randint(1, 40))]
        else:
            ids = tokenizer.encode(draw.choice(corpus)[:200])[draw.randint(0, 3) : 60]
        skips = bool(number % 3)
        stream = IncrementalDetokenizer(tokenizer, skips)
        if "".join(stream.push([token_id]) for token_id in ids) + stream.flush() != tokenizer.decode(ids, skips):
            differing.append(str(ids))
    return Outcome(name, "streams as whole texts", num_streams - len(differing), num_streams, _first(differing))


_NAMES = {"bos_token": "<s>", "eos_token": "</s>"}


@lru_cache(maxsize=1)
def _loaded(folder: Path) -> tuple[Tokenizer, PreTrainedTokenizerFast, dict[str, str]]:
    """The tokenizer of a folder, transformers' renderer over it, and the names of special tokens for templates."""
    tokenizer = Tokenizer.from_folder(folder)
    names = {name: text for name, text in read_special_tokens(folder).items() if name in ("bos_token", "eos_token")}
    renderer: Any = PreTrainedTokenizerFast
    # Templates of other models may need the names.
    return tokenizer, renderer(tokenizer_object=tokenizer._backend), {**_NAMES, **names}


def rendering(name: str, folder: Path, source: str | None = None) -> Outcome:
    """Ids of conversations against transformers' rendering of the same template, encoded by the same tokenizer. What
    either of them refuses is not compared. source: the template; None: the folder's own."""
    own, reference, names = _loaded(folder)
    source = source or read_chat_template(folder)
    if source is None:
        return Outcome(name, "renderings as transformers", 0, 0, "no chat template: a base model")
    try:
        template = ChatTemplate(source, names)
        template.check_bounds()
    except CheckpointError as error:
        rendered = [_transformers(reference, source, names, conversation) for conversation in CONVERSATIONS]
        return Outcome(name, "renderings as transformers", 0, sum(text is not None for text in rendered), str(error))
    tokenizer = copy.copy(own)
    tokenizer._template = template
    num_compared, differing, refused = 0, [], []
    for conversation in CONVERSATIONS:
        if conversation.tools and not template.knows_tools:
            continue  # transformers drops the tools, and Agon's system message tells of them
        wanted = _transformers(reference, source, names, conversation)
        if wanted is None:
            continue
        try:
            ids = tokenizer.render_chat(
                copy.deepcopy(conversation.messages),
                conversation.add_generation_prompt,
                conversation.kwargs,
                tools=copy.deepcopy(conversation.tools),
            )
        except InvalidRequest:
            refused.append(conversation.name)
            continue
        num_compared += 1
        if ids != own._backend.encode(wanted, add_special_tokens=False).ids:
            differing.append(conversation.name)
    differ = f"differ: {', '.join(differing)}" if differing else ""
    only = f"refused here only: {', '.join(refused)}" if refused else ""
    note = "; ".join(filter(None, (differ, only))) or ("" if num_compared else "refused by transformers")
    return Outcome(name, "renderings as transformers", num_compared - len(differing), num_compared, note)


def forgeries_refused(name: str, folder: Path, num_texts: int = 2000) -> Outcome:
    """Texts that try to become control tokens, in every role of a conversation (tests/engine/text/forgery.py)."""
    check = f"{num_texts} forgeries in {len(forgery.ROLES)} roles stay text"
    subject = forgery.subject_of(folder, name=name)
    if subject is None:
        return Outcome(name, check, 0, 0, "no chat template: a base model")
    found = forgery.forgeries(subject, num_texts)
    num_failed = found["forged"] + found["failed"]
    return Outcome(name, check, num_texts - num_failed, num_texts, _first([str(each) for each in found["examples"]]))


def _transformers(reference: Any, source: str, names: Mapping[str, str], conversation: Conversation) -> str | None:
    try:
        text = reference.apply_chat_template(
            copy.deepcopy(conversation.messages),
            tools=copy.deepcopy(conversation.tools),
            chat_template=source,
            tokenize=False,
            add_generation_prompt=conversation.add_generation_prompt,
            **names,
            **conversation.kwargs,
        )
    except Exception:  # whatever a template raises on messages that it does not take
        return None
    return str(text)


def gguf_vocabulary(file: Path, folder: Path) -> Outcome:
    """Ids of llama.cpp's own test texts against those that lie beside the vocabulary. folder: for the tokenizer.json
    that is made of it."""
    name = file.stem.removeprefix("ggml-vocab-")
    cases = file.with_suffix(".gguf.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    wanted = [[int(token) for token in line.split()] for line in file.with_suffix(".gguf.out").read_text().splitlines()]
    try:
        write_tokenizer(GgufFile(file), folder)
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    except CheckpointError as error:
        return Outcome(name, "GGUF ids as llama.cpp", 0, 0, f"not served: {error}")
    pairs = list(zip(cases, wanted, strict=False))
    differing = [text for text, ids in pairs if tokenizer.encode(text, add_special_tokens=False).ids != ids]
    return Outcome(name, "GGUF ids as llama.cpp", len(pairs) - len(differing), len(pairs), _first(differing))


def _first(differing: list[str]) -> str:
    return f"first difference: {differing[0][:60]!r}" if differing else ""
