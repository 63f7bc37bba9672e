"""A checkpoint that always says the same: a token determines the next one, as attention and MLPs are zero."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

ASSISTANT, END = "<|assistant|>", "<|end|>"
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_HIDDEN = 320  #: at least one dimension for each token


def write_model(folder: Path, tokens: list[str], *, template: str = TEMPLATE) -> Path:
    """Write a model that says `tokens`, all of them different, after the last token of the template's prompt, which is
    the first of them. The last one ends the answer."""
    added = [AddedToken(tag, special=False) for tag in ("<think>", "</think>")]
    return write_sayings(folder, [tokens], special=(END, ASSISTANT), added=added, ends=(END,), template=template)


def write_sayings(
    folder: Path,
    sayings: Sequence[Sequence[str]],
    *,
    special: Sequence[str],
    added: Sequence[AddedToken] = (),
    ends: Sequence[str],
    template: str | None,
    context: int = 256,
) -> Path:
    """Write a model that says one of several things, by the last token of its prompt: each token determines the next
    one. special: the special tokens; ends: those that end an answer, of which the first is the one of the tokenizer;
    template: None for a base model."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(special))
    backend.add_tokens(list(added))
    config = transformers.LlamaConfig(
        vocab_size=backend.get_vocab_size(),
        hidden_size=_HIDDEN,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        eos_token_id=[_id_of(backend, end) for end in ends],
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(config.vocab_size, _HIDDEN))
        model.lm_head.weight.zero_()
        for tokens in sayings:
            ids = [_id_of(backend, token) for token in tokens]
            for before, after in pairwise(ids):
                model.lm_head.weight[after, before] = 1.0
    model.save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": ends[0], "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def _id_of(backend: Tokenizer, token: str) -> int:
    token_id = backend.token_to_id(token)
    if token_id is not None:
        return int(token_id)
    (token_id,) = backend.encode(token).ids
    return int(token_id)
