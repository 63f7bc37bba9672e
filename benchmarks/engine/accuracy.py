"""What fewer bits cost: the demo models' held-out probes in float32, bfloat16, int8 weights and int8 keys and
values, and how often greedy tokens differ. `python -m benchmarks.engine.accuracy [--count N] [--out FILE]`"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.bench.record import document, write
from demo_models.train.probes import PROBED_SKILLS, probes
from engine import LLM, SamplingParams

DEMO_MODELS = Path(__file__).parents[2] / "demo_models"
RESULT = Path(__file__).parents[1] / "results" / "accuracy.json"
MODELS = ("finch", "robin", "raven")
#: name -> settings of the engine
FORMATS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8 weights, float32": {"dtype": "float32", "weights": "int8"},
    "int8 weights, bfloat16": {"dtype": "bfloat16", "weights": "int8"},
    "int8 KV, float32": {"dtype": "float32", "kv_dtype": "int8"},
    "int8 KV, bfloat16": {"dtype": "bfloat16", "kv_dtype": "int8"},
}
_SAMPLING = SamplingParams(temperature=0.0, max_tokens=96)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="probes per skill (200)")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file")
    options = parser.parse_args(arguments)
    rows = [row for model in MODELS for row in measure(model, options.count)]
    write(options.out, document("accuracy", {"count": options.count}, rows))


def measure(model: str, count: int) -> list[dict[str, Any]]:
    """One row for each format: share of correct answers by skill, and of answers equal to those in float32."""
    asked = [(skill, probe) for skill in PROBED_SKILLS for probe in probes(skill, count)]
    chats = [
        [{"role": role, "content": text} for role, text in probe.messages]
        for _, probe in asked
    ]  # fmt: skip
    rows: list[dict[str, Any]] = []
    exact: list[str] = []
    for name, settings in FORMATS.items():
        llm = LLM(str(DEMO_MODELS / model), max_running=32, **settings)
        answers = [result.outputs[0].text for result in llm.chat(chats, _SAMPLING)]
        exact = exact or answers
        correct = {
            skill: [probe.is_correct(answer) for (s, probe), answer in zip(asked, answers, strict=True) if s == skill]
            for skill in PROBED_SKILLS
        }
        rows.append(
            {
                "model": model,
                "format": name,
                "correct": {skill: sum(found) / len(found) for skill, found in correct.items()},
                "same_as_float32": sum(a == b for a, b in zip(answers, exact, strict=True)) / len(answers),
            }
        )
        llm.close()
    return rows


if __name__ == "__main__":
    main()
