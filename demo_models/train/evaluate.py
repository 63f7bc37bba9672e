"""Measure a demo model on held-out probes, greedily: `python -m demo_models.train.evaluate --model raven`.

Loads the folder with the auto classes of transformers. Writes evaluation.json into the folder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

from demo_models.train.architectures import END_ID, ENDOFTEXT_ID, MODEL_NAMES, ModelName
from demo_models.train.probes import Probe, probed_skills, probes

HERE = Path(__file__).parent
BATCH = 50
MAX_NEW_TOKENS = 96


class ChatModel:
    """A folder loaded with transformers, answering batches of dialogues greedily."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()

    def prompt(self, messages: tuple[tuple[str, str], ...]) -> list[int]:
        """Token ids of a dialogue. Texts are encoded one by one, so that no text can contain a marker."""
        ids: list[int] = []
        for role, text in messages:
            ids += [self._marker(role), *self._tokenizer(text, add_special_tokens=False)["input_ids"], END_ID]
        return [*ids, self._marker("assistant")]

    def _marker(self, role: str) -> int:
        return int(self._tokenizer.convert_tokens_to_ids(f"<|{role}|>"))

    def replies(self, dialogues: list[tuple[tuple[str, str], ...]]) -> Iterator[str]:
        """Greedy replies to one batch of dialogues, in order."""
        prompts = [self.prompt(messages) for messages in dialogues]
        width = max(map(len, prompts))
        inputs = torch.tensor([[ENDOFTEXT_ID] * (width - len(ids)) + ids for ids in prompts])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
        with torch.inference_mode():
            outputs = self._model.generate(
                inputs,
                attention_mask=mask,
                max_new_tokens=MAX_NEW_TOKENS,
                do_sample=False,
                temperature=None,
                top_p=None,
            )
        for row in outputs[:, width:].tolist():
            end = row.index(END_ID) if END_ID in row else len(row)
            yield str(self._tokenizer.decode(row[:end], skip_special_tokens=False))


def score(model: ChatModel, skill: str, count: int) -> tuple[float, list[tuple[Probe, str]]]:
    """Return the share of correct replies, and the wrong ones."""
    # Sorted by length, so that a batch holds little padding.
    asked = sorted(probes(skill, count), key=lambda probe: sum(len(text) for _, text in probe.messages))
    wrong: list[tuple[Probe, str]] = []
    for start in range(0, len(asked), BATCH):
        part = asked[start : start + BATCH]
        replies = model.replies([probe.messages for probe in part])
        wrong += [(probe, reply) for probe, reply in zip(part, replies, strict=True) if not probe.is_correct(reply)]
    return 1 - len(wrong) / len(asked), wrong


def evaluate(name: ModelName, folder: Path, count: int, console: Console, num_shown: int) -> dict[str, Any]:
    """Measure every skill with `count` probes; prints a table and the first wrong replies, returns the results."""
    model = ChatModel(folder)
    table = Table("skill", "correct", "probes", title=folder.name)
    results: dict[str, Any] = {}
    for skill in probed_skills(name):
        share, wrong = score(model, skill, count)
        num_probes = len(probes(skill, count))
        results[skill] = {"correct": round(share, 4), "probes": num_probes}
        table.add_row(skill, f"{share:.1%}", str(num_probes))
        for probe, reply in wrong[:num_shown]:
            console.print(
                f"{skill}: {' | '.join(text for _, text in probe.messages)} -> {reply}", markup=False, highlight=False
            )
    console.print(table)
    return results


def main() -> None:
    """Measure one model and write its evaluation.json."""
    parser = argparse.ArgumentParser(prog="python -m demo_models.train.evaluate", description="Measure a demo model.")
    parser.add_argument("--model", choices=MODEL_NAMES, required=True)
    parser.add_argument("--folder", type=Path, help="another folder with a model (default: demo_models/<model>)")
    parser.add_argument("--count", type=int, default=200, help="probes per skill (default: 200)")
    parser.add_argument("--show", type=int, default=3, help="wrong answers to print per skill (default: 3)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = arguments.folder or HERE.parent / arguments.model
    results = evaluate(arguments.model, folder, arguments.count, Console(), arguments.show)
    (folder / "evaluation.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
