"""The tokenizers and chat templates: byte-level BPE with split digits. finch, robin and raven share one, wren has its
own, with the marks of tools.

Trained on the generator's own text. Written as the files that `AutoTokenizer` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from demo_models.train.architectures import VOCAB_SIZE
from demo_models.train.dialogues import Dialogue, dialogue, tool_dialogue

SPECIALS = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
TOOL_ROLE = "<|tool|>"
#: Marks inside of texts, as other models of this format have them: tokens of their own, but shown when decoded.
TOOL_MARKS = ("<tool_call>", "</tool_call>", "<tools>", "</tools>")
NUM_TEXTS = 60_000
NUM_TOOL_TEXTS = 20_000
TOKENIZER_SEED = 1

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ['system', 'user', 'assistant'] -%}"
    "{{ raise_exception('roles are system, user and assistant') }}"
    "{%- endif -%}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)

#: Of a tool the model sees its name, its parameters with their types ("?": may be left out) and the first line of its
#: description: schemas of any length and style take one short line each.
TOOL_CHAT_TEMPLATE = (
    "{%- set first = messages[0] if messages and messages[0]['role'] == 'system' else none -%}"
    "{%- if tools -%}"
    "{{ '<|system|>' + (first['content'] if first else '') + '<tools>\n' }}"
    "{%- for tool in tools -%}"
    "{%- set function = tool['function'] if tool['function'] is defined else tool -%}"
    "{%- set schema = function['parameters'] if function['parameters'] is mapping else {} -%}"
    "{%- set shown = namespace(names=[]) -%}"
    "{%- for name, value in (schema['properties'] or {}).items() -%}"
    "{%- set mark = '' if name in (schema['required'] or []) else '?' -%}"
    "{%- set type = value['type'] if value is mapping and value['type'] is string else 'string' -%}"
    "{%- set shown.names = shown.names + [name + mark + ': ' + type] -%}"
    "{%- endfor -%}"
    "{%- set about = (function['description'] or '').strip().split('\n')[0][:200] -%}"
    "{{ (function['name'] + '(' + shown.names | join(', ') + ') ' + about).strip() + '\n' }}"
    "{%- endfor -%}"
    "{{ '</tools><|end|>' }}"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ['system', 'user', 'assistant', 'tool'] -%}"
    "{{ raise_exception('roles are system, user, assistant and tool') }}"
    "{%- endif -%}"
    "{%- if not (tools and first and loop.first) -%}"
    "{{ '<|' + message['role'] + '|>' + (message['content'] or '') }}"
    "{%- for call in message['tool_calls'] or [] -%}"
    "{{ '<tool_call>{\"name\": ' + call['function']['name'] | tojson + ', \"arguments\": ' }}"
    "{%- set arguments = call['function']['arguments'] -%}"
    "{{ (arguments if arguments is string else arguments | tojson) + '}</tool_call>' }}"
    "{%- endfor -%}"
    "{{ '<|end|>' }}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


def render(example: Dialogue) -> str:
    """Write a dialogue as the chat template does, all turns answered."""
    system = "" if example.system is None else f"<|system|>{example.system}<|end|>"
    return system + "".join(
        f"<|{turn.role}|>{turn.user}<|end|><|assistant|>{turn.assistant}<|end|>" for turn in example.turns
    )


def _texts() -> Iterator[str]:
    for number in range(NUM_TEXTS):
        for turn in dialogue(TOKENIZER_SEED, number).turns:
            yield turn.user
            yield turn.assistant


def _train(texts: Iterator[str], pre_tokenizer: pre_tokenizers.PreTokenizer, specials: tuple[str, ...]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train_tokenizer() -> Tokenizer:
    """Train on the turns of the first NUM_TEXTS dialogues of TOKENIZER_SEED."""
    # Digits first, so that no token ever holds two of them; the byte level after it splits words from spaces.
    digits = pre_tokenizers.Digits(individual_digits=True)
    return _train(
        _texts(), pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]), SPECIALS
    )


def _tool_texts() -> Iterator[str]:
    for number in range(NUM_TOOL_TEXTS):
        example = tool_dialogue(TOKENIZER_SEED, number)
        yield example.system or ""
        for turn in example.turns:
            yield turn.user
            yield turn.assistant


def train_tool_tokenizer() -> Tokenizer:
    """Train on texts with tools. A space belongs to the word before it, so that a word of a question and the same word
    between quotes are mostly the same tokens: what a call repeats can be copied."""
    pieces = Regex(r"\p{L}+ ?|\p{N}|[^\s\p{L}\p{N}]+ ?|\s+")
    split = pre_tokenizers.Split(pieces, "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = _train(_tool_texts(), pre_tokenizers.Sequence([split, byte_level]), (*SPECIALS, TOOL_ROLE, *TOOL_MARKS))
    written = json.loads(tokenizer.to_str())
    for token in written["added_tokens"]:
        token["special"] = token["content"] not in TOOL_MARKS
    return Tokenizer.from_str(json.dumps(written))


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write tokenizer.json and tokenizer_config.json. context: the model's, in tokens."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE if tokenizer.token_to_id(TOOL_ROLE) is None else TOOL_CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
