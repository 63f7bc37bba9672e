"""lm-eval's `local-completions` (echo and logprobs of token ids) against its `hf` backend on the same checkpoint."""

import json
import os
import random
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"

import lm_eval
from harness import KEY, MODEL, V1, check, run
from lm_eval.tasks import TaskManager

CHECKPOINT = os.environ["AGON_CHECKPOINT"]
NUM_PROBLEMS = int(os.environ.get("AGON_PROBLEMS", "60"))

_TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "<|user|>What is {{{{a}}}} + {{{{b}}}}?<|end|><|assistant|>"
doc_to_target: answer
doc_to_choice: "{{{{choices}}}}"
target_delimiter: ""
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1}}
"""


def _write_task(folder: Path) -> None:
    draw = random.Random(7)
    problems = []
    for _ in range(NUM_PROBLEMS):
        a, b = draw.randrange(60, 400), draw.randrange(60, 400)  # beyond what the demo models learned
        wrong = draw.sample([n for n in range(a + b - 12, a + b + 13) if n != a + b], 3)
        numbers = draw.sample([a + b, *wrong], 4)
        choices = [f"{a} + {b} = {number}." for number in numbers]
        problems.append({"a": a, "b": b, "choices": choices, "answer": numbers.index(a + b)})
    data = folder / "sums.jsonl"
    data.write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    (folder / "sums.yaml").write_text(_TASK.format(data=data))


def _evaluated(model, arguments, folder):
    found = lm_eval.simple_evaluate(
        model=model,
        model_args=arguments,
        tasks=["sums"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
        batch_size=8,
    )
    scores = [[pair[0][0] for pair in sample["resps"]] for sample in found["samples"]["sums"]]
    return found["results"]["sums"]["acc,none"], scores


@check("multiple choice by loglikelihood: the accuracy of the hf backend")
def accuracy():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_task(folder)
        served = {"model": MODEL, "base_url": f"{V1}/completions", "tokenizer": CHECKPOINT, "max_length": 512}
        served |= {
            "tokenizer_backend": "huggingface",
            "tokenized_requests": True,
            "num_concurrent": 4,
            "max_retries": 1,
        }
        os.environ["OPENAI_API_KEY"] = KEY
        ours, our_scores = _evaluated("local-completions", served, folder)
        theirs, their_scores = _evaluated("hf", {"pretrained": CHECKPOINT, "dtype": "float32", "device": "cpu"}, folder)
    apart = max(abs(x - y) for a, b in zip(our_scores, their_scores, strict=True) for x, y in zip(a, b, strict=True))
    assert ours == theirs, f"{ours} against {theirs}"
    return f"accuracy {ours:.3f} on {NUM_PROBLEMS} problems, loglikelihoods at most {apart:.4f} apart"


run(f"lm-eval {version('lm-eval')}")
