"""The tokenizer that the three models share: byte-level BPE with split digits, and the chat template.

Trained on the generator's own text. Written as the files that `AutoTokenizer` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from demo_models.train.architectures import CONTEXT, VOCAB_SIZE
from demo_models.train.dialogues import Dialogue, dialogue

SPECIALS = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
NUM_TEXTS = 60_000
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


def render(example: Dialogue) -> str:
    """Write a dialogue as the chat template does, all turns answered."""
    system = "" if example.system is None else f"<|system|>{example.system}<|end|>"
    return system + "".join(f"<|user|>{turn.user}<|end|><|assistant|>{turn.assistant}<|end|>" for turn in example.turns)


def _texts() -> Iterator[str]:
    for number in range(NUM_TEXTS):
        for turn in dialogue(TOKENIZER_SEED, number).turns:
            yield turn.user
            yield turn.assistant


def train_tokenizer() -> Tokenizer:
    """Train on the turns of the first NUM_TEXTS dialogues of TOKENIZER_SEED."""
    tokenizer = Tokenizer(models.BPE())
    # Digits first, so that no token ever holds two of them; the byte level after it splits words from spaces.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
