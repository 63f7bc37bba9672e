"""Writes a trained model as the folder that users load: weights in bf16, configuration, tokenizer, chat template."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, GenerationConfig

from demo_models.train.architectures import END_ID, ENDOFTEXT_ID, ModelName, architecture
from demo_models.train.tokenizer import save_tokenizer


@dataclass(frozen=True)
class TrainingRecord:
    """The figures of a run that its card shows."""

    parameters: int
    tokens: int
    steps: int
    minutes: float


def export(
    name: ModelName, state: dict[str, torch.Tensor], tokenizer: Tokenizer, training: TrainingRecord, folder: Path
) -> None:
    """Put the files into `folder`, each in one rename, so that a reader never finds half a file. README.md is kept."""
    model = AutoModelForCausalLM.from_config(architecture(name)).to(torch.bfloat16)
    model.load_state_dict(state)
    model.generation_config = GenerationConfig(
        bos_token_id=ENDOFTEXT_ID,
        eos_token_id=END_ID,
        pad_token_id=ENDOFTEXT_ID,
        do_sample=True,
        temperature=0.7,
        top_p=0.9,
    )
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".export-") as temporary:
        written = Path(temporary)
        model.save_pretrained(written)
        save_tokenizer(tokenizer, written, architecture(name).max_position_embeddings)
        (written / "training.json").write_text(json.dumps(asdict(training), indent=2) + "\n")
        for file in sorted(written.iterdir()):
            file.chmod(0o644)
            os.replace(file, folder / file.name)
