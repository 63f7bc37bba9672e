"""The training loop: weights with fp32 masters, Muon for matrices and AdamW for the rest, on one thread.

Owns the checkpoint. Deterministic for a seed and a token budget; an interrupted run resumes at its checkpoint.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoModelForCausalLM

from demo_models.train import attention
from demo_models.train.architectures import CONTEXT, ModelName, architecture
from demo_models.train.batches import IGNORED, Batch, pool_batches
from demo_models.train.recipe import Recipe, learning_rate_factor

CHECKPOINT_S = 120.0
#: GPT-2 learns an embedding for each position, so this share of its batches starts at a random position.
SHIFTED_SHARE = 0.3


@dataclass(frozen=True)
class Progress:
    """Progress of a run after one step."""

    step: int
    tokens: int
    budget: int
    loss: float
    tokens_per_s: float
    elapsed_s: float


class Trainer:
    """One training run. `step` does one update; `save` and `load` cover everything that the next step depends on."""

    def __init__(self, name: ModelName, recipe: Recipe, tokenizer: Tokenizer, folder: Path) -> None:
        torch.manual_seed(recipe.seed)
        attention.register()
        self.name = name
        self.recipe = recipe
        self.budget = recipe.tokens
        self.num_steps = 0
        self.num_tokens = 0
        self.elapsed_s = 0.0
        self._tokenizer = tokenizer
        self._checkpoint = folder / "checkpoint.pt"
        self._pool = 0
        self._next_in_pool = 0
        self._batches: list[Batch] = []
        # torch's own kernel is the faster one in fp32
        attended = attention.NAME if recipe.dtype == torch.bfloat16 else "sdpa"
        model = AutoModelForCausalLM.from_config(architecture(name), attn_implementation=attended)
        self._masters = [nn.Parameter(p.detach().float().clone()) for p in model.parameters()]
        self.model = model.to(recipe.dtype).train()
        named = list(zip(self.model.named_parameters(), self._masters, strict=True))
        matrices = [m for (n, _), m in named if m.ndim == 2 and "embed" not in n and "wte" not in n and "wpe" not in n]
        others = [m for (n, _), m in named if not any(m is matrix for matrix in matrices)]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=recipe.matrix_lr, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=recipe.other_lr, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self._base_lrs = [recipe.matrix_lr, recipe.other_lr]

    def _next_batch(self) -> Batch:
        if not self._batches:
            self._batches = pool_batches(self._tokenizer, self.recipe, self._pool)
        batch = self._batches[self._next_in_pool]
        self._next_in_pool += 1
        if self._next_in_pool == len(self._batches):
            self._pool, self._next_in_pool, self._batches = self._pool + 1, 0, []
        return batch

    def _positions(self, batch: Batch, index: int) -> torch.Tensor | None:
        if self.name != "finch":
            return None
        rng = Random(f"{self.recipe.seed}/positions/{self.num_steps}/{index}")
        length = batch.inputs.shape[1]
        start = rng.randint(0, CONTEXT - length) if rng.random() < SHIFTED_SHARE else 0
        return torch.arange(start, start + length)[None]

    def _loss_sum(self, batch: Batch, index: int) -> torch.Tensor:
        body = self.model.base_model
        positions = self._positions(batch, index)
        hidden = body(input_ids=batch.inputs, position_ids=positions, use_cache=False).last_hidden_state
        wanted = batch.targets != IGNORED
        logits = F.linear(hidden[wanted], self.model.get_input_embeddings().weight)
        return F.cross_entropy(logits.float(), batch.targets[wanted], reduction="sum")

    def step(self) -> Progress:
        """One update of all weights, from `micro_batches` batches."""
        started = time.perf_counter()
        batches = [self._next_batch() for _ in range(self.recipe.micro_batches)]
        num_targets = sum(int((batch.targets != IGNORED).sum()) for batch in batches)
        total = 0.0
        for index, batch in enumerate(batches):
            loss = self._loss_sum(batch, index) / num_targets
            loss.backward()
            total += loss.item()
            for param, master in zip(self.model.parameters(), self._masters, strict=True):
                if param.grad is not None:
                    master.grad = param.grad.float() if index == 0 else master.grad + param.grad
                    param.grad = None
        nn.utils.clip_grad_norm_(self._masters, 1.0)
        factor = learning_rate_factor(self.num_steps, self.num_tokens, self.budget, self.recipe.decay_share)
        for optimizer, base in zip(self._optimizers, self._base_lrs, strict=True):
            optimizer.param_groups[0]["lr"] = base * factor
            optimizer.step()
        with torch.no_grad():
            for param, master in zip(self.model.parameters(), self._masters, strict=True):
                param.copy_(master)
        tokens = sum(batch.num_tokens for batch in batches)
        self.num_steps += 1
        self.num_tokens += tokens
        seconds = time.perf_counter() - started
        self.elapsed_s += seconds
        return Progress(self.num_steps, self.num_tokens, self.budget, total, tokens / seconds, self.elapsed_s)

    def run(self, report: Callable[[Progress], None]) -> None:
        """Train until the budget is spent, with a checkpoint every two minutes and one at the end."""
        saved_at = time.perf_counter()
        while self.num_tokens < self.budget:
            report(self.step())
            if time.perf_counter() - saved_at > CHECKPOINT_S:
                self.save()
                saved_at = time.perf_counter()
        self.save()

    def save(self) -> None:
        """Write the checkpoint, in one rename."""
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "masters": [master.detach() for master in self._masters],
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "counters": (self.num_steps, self.num_tokens, self.elapsed_s, self._pool, self._next_in_pool),
            "budget": self.budget,
        }
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        part = self._checkpoint.with_suffix(".part")
        torch.save(state, part)
        os.replace(part, self._checkpoint)

    def load(self) -> None:
        """Continue from the checkpoint."""
        state = torch.load(self._checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        with torch.no_grad():
            for master, saved in zip(self._masters, state["masters"], strict=True):
                master.copy_(saved)
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.num_steps, self.num_tokens, self.elapsed_s, self._pool, self._next_in_pool = state["counters"]
        self._batches = []
