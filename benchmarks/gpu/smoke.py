"""Does the engine work on this device at all? A small model with graphs, without them and with torch's operators, each
in a process of its own at the same time, beside the engine on plain torch, without any kernel of ours.

python -m benchmarks.gpu.smoke [--device cpu] [--budget-s SECONDS]
python -m benchmarks.gpu.smoke --one-layer --eager        one way in this process: under compute-sanitizer

Four layers of Qwen3-0.6B with random weights in 16 bits and in 4 (GPTQ), and with 8-bit pages. A way is right where
its greedy tokens are those of plain torch or as likely, and the logits of the likeliest differ by 2 % at most. Prints a
line of JSON for each way and form of the model, and one with the verdict. The exit status is 0 where all are right, 3
where no way is right in 16 bits, else 1. On cpu everything is tiny, and TRITON_INTERPRET has to be 1.
"""

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.shapes import QWEN3_600M

#: Settings of the engine.
WAYS: dict[str, dict[str, Any]] = {
    "graphs": {},
    "eager": {"enforce_eager": True},
    "torch": {"enforce_eager": True, "operators": "torch"},
}
_PLAIN = "plain torch"  #: the engine without Triton
_TOLERANCE = 0.02
_NO_NUMBER = 1e9  #: error of logits that are NaN, or of other tokens
_NUM_TOP = 20  #: likeliest tokens of which logits are compared

#: Of a request, at each position: the token, and log probabilities of the likeliest by their ids.
Answer = list[tuple[int, dict[int, float]]]


@dataclass(frozen=True, slots=True)
class Size:
    """What is computed."""

    config: dict[str, Any]
    requests: tuple[tuple[int, int], ...]  #: tokens of prompt and answer
    settings: dict[str, Any]
    ways: tuple[str, ...] = tuple(WAYS)
    forms: tuple[str, ...] = ("16 bits", "int4", "8-bit pages")  #: of the model; the first one has to be right


#: Rows leave one after another, so steps have most sizes; the last prompt is longer than a step.
_WHOLE = Size(
    {**QWEN3_600M, "num_hidden_layers": 4},
    (*((1 + 3 * index, 4 + index % 13) for index in range(20)), (600, 8)),
    {"max_running": 24, "max_batched_tokens": 512, "max_model_len": 1024, "kv_cache_bytes": 1 << 29},
)
#: For the sanitizer, under which everything takes many times as long.
_ONE_LAYER = Size(
    {**QWEN3_600M, "num_hidden_layers": 1},
    ((5, 3), (1, 2)),
    {"max_running": 2, "max_batched_tokens": 64, "max_model_len": 128, "kv_cache_bytes": 1 << 26},
)
_TINY = Size(
    {
        **QWEN3_600M,
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
    ((5, 2), (1, 2)),
    {"max_running": 2, "max_batched_tokens": 8, "max_model_len": 32, "kv_cache_bytes": 1 << 20},
    ways=("graphs", "torch"),
    forms=("16 bits",),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--budget-s", type=float, default=70.0, help="ways that need longer are wrong")
    parser.add_argument("--one-layer", action="store_true", help="of the model, and few short requests")
    parser.add_argument("--eager", action="store_true", help="this way alone, in this process")
    parser.add_argument("--way", choices=[*WAYS, _PLAIN], help=argparse.SUPPRESS)  # of a process of the whole
    parser.add_argument("--models", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    size = _TINY if chosen.device == "cpu" else _ONE_LAYER if chosen.one_layer else _WHOLE
    if chosen.way is not None:
        return _run_way(chosen.models, chosen.way, size, chosen.device)
    deadline = time.monotonic() + chosen.budget_s
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        _write_models(models, size.config)
        if chosen.eager:
            print(
                len(_answers(models, size.forms[0], "eager", size, chosen.device)), "requests were answered", flush=True
            )
            return 0
        return _judge(_run_all(models, size, chosen.device, deadline), size)


def _write_models(folder: Path, config: dict[str, Any]) -> None:
    """A checkpoint of Qwen3 in 16 bits, and the same in 4. transformers would draw the weights, too, but importing it
    takes as long as all of the rest."""
    import torch
    from safetensors.torch import save_file

    from benchmarks.models import write_model
    from benchmarks.peers.adapters.make_gptq import convert

    torch.manual_seed(0)
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    kv_size, size = head_dim * config["num_key_value_heads"], head_dim * config["num_attention_heads"]
    ffn = config["intermediate_size"]
    products = {"self_attn.q": (size, hidden), "self_attn.k": (kv_size, hidden), "self_attn.v": (kv_size, hidden)}
    products |= {"self_attn.o": (hidden, size), "mlp.gate": (ffn, hidden), "mlp.up": (ffn, hidden)}
    products |= {"mlp.down": (hidden, ffn)}
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    norms |= {"self_attn.q_norm": head_dim, "self_attn.k_norm": head_dim}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        shapes |= {f"{layer}.{name}_proj.weight": shape for name, shape in products.items()}
        shapes |= {f"{layer}.{name}.weight": (channels,) for name, channels in norms.items()}
    shapes["model.norm.weight"] = (hidden,)
    weights = {}
    for name, shape in shapes.items():
        # Products keep the size of their inputs, and embeddings are small, so that logits depend on all of a layer.
        std = 0.2 if len(shape) == 1 else 0.02 if "embed" in name else shape[1] ** -0.5
        weights[name] = (torch.empty(shape).normal_(std=std) + (len(shape) == 1)).bfloat16()
    save_file(weights, write_model(folder / "plain", config) / "model.safetensors", metadata={"format": "pt"})
    convert(folder / "plain", folder / "gptq")


def _run_way(models: Path, way: str, size: Size, device: str) -> int:
    """Print the answers for each form of the model. Returns the exit status."""
    status = 0
    for form in size.forms:
        try:
            print(json.dumps({form: _answers(models, form, way, size, device)}), flush=True)
        except Exception:  # the other forms may still work
            traceback.print_exc()
            status = 1
    return status


def _run_all(models: Path, size: Size, device: str, deadline: float) -> dict[str, dict[str, list[Answer]]]:
    """Answers by way and form; a way that fails lacks forms."""
    command = [sys.executable, "-m", "benchmarks.gpu.smoke", "--models", str(models), "--device", device, "--way"]
    outputs = {way: models / f"{way}.jsonl" for way in (_PLAIN, *size.ways)}
    running = {}
    for way, path in outputs.items():
        with path.open("w") as output:  # a pipe would hold up what writes more than it has room for
            running[way] = subprocess.Popen([*command, way], stdout=output)
    for way, process in running.items():
        try:
            process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.returncode:
            print(f"{way}: its process ended with status {process.returncode}", flush=True)
    return {way: _read(path) for way, path in outputs.items()}


def _read(path: Path) -> dict[str, list[Answer]]:
    """Answers by form. A line without its end is of a process that was stopped."""
    found: dict[str, list[Answer]] = {}
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("}\n"):
            found |= {form: _from_json(answers) for form, answers in json.loads(line).items()}
    return found


def _from_json(answers: Any) -> list[Answer]:
    return [[(token, {int(i): value for i, value in top.items()}) for token, top in answer] for answer in answers]


def _answers(models: Path, form: str, way: str, size: Size, device: str) -> list[Answer]:
    from engine.loaded_engine import engine_around
    from engine.sampling_params import SamplingParams

    settings = {**size.settings, **WAYS.get(way, {"operators": "torch"}), "enable_prefix_caching": False}
    if form == "8-bit pages":
        settings["kv_dtype"] = _page_dtype(device)
    folder = models / ("gptq" if form == "int4" else "plain")
    core = engine_around(_load(folder, way, device, settings), has_queue_bound=False).core
    generator = random.Random(0)
    for index, (num_prompt, num_answer) in enumerate(size.requests):
        prompt = generator.choices(range(size.config["vocab_size"]), k=num_prompt)
        params = SamplingParams(temperature=0.0, max_tokens=num_answer, ignore_eos=True, logprobs=_NUM_TOP)
        core.add_request(str(index), prompt, params)
    answers: list[Answer] = [[] for _ in size.requests]
    while not core.is_idle:
        for delta in core.step():
            answers[int(delta.request_id)] += [(entry.token_id, dict(entry.top)) for entry in delta.logprobs or ()]
    core.close()
    return answers


def _page_dtype(device: str) -> str:
    import torch

    from engine.config import FP8_CAPABILITY

    return "fp8" if device == "cuda" and torch.cuda.get_device_capability() >= FP8_CAPABILITY else "int8"


def _load(folder: Path, way: str, device: str, settings: dict[str, Any]) -> Any:
    """A LoadedModel. On a CPU the ways of a device run in Triton's interpreter, where a tape takes a graph's place."""
    from engine.config import EngineConfig
    from engine.runner.build import build_eager_runner, build_runner
    from engine.runner.load import load_runner

    if device == "cpu" and way != _PLAIN:
        from tests.engine.kernels.gpu import old_interpreter
        from tests.engine.runner.device.interpreted import interpreted_model

        old_interpreter.mend()
        return interpreted_model(folder, **settings)
    config = EngineConfig(str(folder), device=device, **settings)
    return load_runner(config, build=build_eager_runner if way == _PLAIN else build_runner)


def _judge(found: Mapping[str, Mapping[str, list[Answer]]], size: Size) -> int:
    """Print what is right, and return the exit status. Where plain torch has failed, the way that is nearest to it is
    what the others are compared with."""
    right: dict[str, list[str]] = {way: [] for way in size.ways}
    for form in size.forms:
        truth = next((found[way][form] for way in (_PLAIN, *reversed(size.ways)) if form in found[way]), None)
        for way in size.ways:
            line: dict[str, Any] = {"smoke": way, "form": form, "is_right": False}
            if truth is not None and form in found[way]:
                line |= compare(found[way][form], truth, size.config["vocab_size"])
            print(json.dumps(line), flush=True)
            if line["is_right"]:
                right[way].append(form)
    usable = [way for way in size.ways if size.forms[0] in right[way]]
    is_all = all(len(forms) == len(size.forms) for forms in right.values())
    print(json.dumps({"smoke": "verdict", "way": usable[0] if usable else None, "is_right": is_all}), flush=True)
    return 0 if is_all else 1 if usable else 3


def compare(answers: Sequence[Answer], truth: Sequence[Answer], vocab_size: int) -> dict[str, Any]:
    """Compares answers position by position, each until its first token that differs: contexts are others from there.
    Scores are log probabilities above that of an even choice, so that they are of the logits' size."""
    even = math.log(vocab_size)
    error, num_positions, num_ties, num_wrong = 0.0, 0, 0, 0
    for answer, expected in zip(answers, truth, strict=True):
        num_wrong += len(answer) < len(expected)  # it has failed
        for (token, top), (true_token, true_top) in zip(answer, expected, strict=False):
            num_positions += 1
            best = max(true_top.values()) + even
            squares = [(top[i] - true_top[i]) ** 2 for i in top.keys() & true_top.keys()]
            here = math.sqrt(sum(squares) / len(squares)) / best if squares else math.nan
            error = max(error, _NO_NUMBER if math.isnan(here) else here)
            if token != true_token:
                is_tie = best - even - true_top.get(token, -math.inf) <= _TOLERANCE * best
                num_ties, num_wrong = num_ties + is_tie, num_wrong + (not is_tie)
                break
    is_right = error <= _TOLERANCE and not num_wrong
    figures = {"positions": num_positions, "error": round(error, 5), "ties": num_ties, "wrong_tokens": num_wrong}
    return {"is_right": is_right, **figures}


if __name__ == "__main__":
    sys.exit(main())
