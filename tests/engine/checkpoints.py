"""Tiny random checkpoints of every architecture, written by transformers, which is also the reference for results."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.engine.variants.dense import DENSE
from tests.engine.variants.experts import EXPERTS
from tests.engine.variants.gemma import GEMMA
from tests.engine.variants.recurrent import RECURRENT
from tests.engine.variants.sizes import CONTEXT, VOCAB_SIZE, WINDOW

__all__ = ["CONTEXT", "VARIANTS", "VOCAB_SIZE", "WINDOW", "TinyModel", "TinyModels", "save"]

#: name -> (registered architecture, which is also the class of transformers; settings of its config). Every registered
#: architecture has one variant or more: tests/engine/models and tests/engine/parallel run over all of them.
VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {**DENSE, **EXPERTS, **GEMMA, **RECURRENT}


@dataclass(frozen=True)
class TinyModel:
    """A saved checkpoint, and its results in transformers."""

    folder: Path

    @cached_property
    def reference(self) -> Any:
        """The same checkpoint in transformers, float32; of a wrapper the causal language model inside it. Eager
        attention: the faster forms ignore soft caps."""
        import transformers

        (architecture,) = json.loads((self.folder / "config.json").read_text())["architectures"]
        model_class: Any = getattr(transformers, architecture)
        model = model_class.from_pretrained(self.folder, dtype=torch.float32, attn_implementation="eager")
        inner = getattr(model, "language_model", None)
        return (model if inner is None or inner.get_output_embeddings() is None else inner).eval()

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        """The greedy continuation by transformers."""
        ids = torch.tensor([prompt])
        output = self.reference.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_tokens, do_sample=False, pad_token_id=0
        )
        tokens: list[int] = output[0, len(prompt) :].tolist()
        return tokens

    @torch.no_grad()
    def logits(self, token_ids: list[int]) -> torch.Tensor:
        """Logits of every token by transformers, [T, V]."""
        result: torch.Tensor = self.reference(torch.tensor([token_ids])).logits[0]
        return result


def save(name: str, folder: Path, **changes: object) -> TinyModel:
    """Write a checkpoint of a variant: seeded weights, norm scales other than one, biases other than zero.

    changes: settings of its config to replace.
    """
    import transformers

    architecture, settings = VARIANTS[name]
    model_class = getattr(transformers, architecture)
    config = model_class.config_class(**{**settings, **changes})
    torch.manual_seed(20)
    model = model_class(config)
    for tensor_name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
        elif architecture == "GPT2LMHeadModel":
            parameter.data *= 8.0
        # As drawn, heads of a delta net forget within a token; what they read is then often near zero, where their norm
        # enlarges roundings.
        if tensor_name.endswith("linear_attn.A_log"):
            parameter.data -= 4.0
        if architecture.startswith(("Gemma3n", "Gemma4")) and tensor_name.endswith("q_norm.weight"):
            parameter.data *= 0.3  # scores have no other factor
        # With scaled, tied embeddings as large as other weights every token would predict itself. The last norm makes
        # up for the smaller logits.
        if architecture.startswith("Gemma") and "embed_tokens" in tensor_name:
            parameter.data *= 0.05
        elif architecture.startswith("Gemma") and tensor_name in (
            "model.norm.weight",
            "model.language_model.norm.weight",
        ):
            parameter.data += 15.0
    for tensor_name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor_name.endswith(("e_score_correction_bias", "expert_bias")):
            tensor.data += 0.2 * torch.randn_like(tensor)
        elif tensor_name.endswith("layer_scalar"):
            tensor.data.fill_(0.75)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return TinyModel(folder)


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer.json without merges and special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


TinyModels = Callable[[str], TinyModel]
