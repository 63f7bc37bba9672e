"""What fewer bits cost a model: perplexity of a text in each data type of weights and of keys and values, with bits a
weight, resident memory and tokens a second.

python -m benchmarks.quality.perplexity MODEL [--text FILE ...] [--rows NAME,...] [--peers] [--tokens N] [--json FILE]

MODEL: a folder, a hub id or a GGUF file. Each row is a process of its own. Differences are paired, token by token, with
the first row; +- is their standard error. Without --text five pages of this repository are read, which change with it.

--peers adds rows of the same float weights rounded by the quantisers of the `gguf` package, where that is installed
(PyPI gguf, 0.19): all matrices of layers in that type, embedding and head in Q8_0. They are dequantised again and run
in float32, so these rows have no speed and no memory.
"""

import argparse
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.peers.noise import resident_bytes
from cli.bench import record

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "perplexity.json"
TEXTS = tuple(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "docs/ratings.md", "docs/faults.md", "LICENSE"))
#: Row -> settings of the engine. The first is what the others are compared with.
ROWS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "weights": "int8"},
    "int4": {"dtype": "bfloat16", "weights": "int4"},
    "bfloat16, KV int8": {"dtype": "bfloat16", "kv_dtype": "int8"},
}
PEERS = ("Q8_0", "Q5_0", "Q4_1", "Q4_0")
_PEER_BLOCK = 32  #: weights of a block of those types
_LENGTH = 700  #: tokens of a piece of text
_PROMPT_TOKENS, _ANSWER_TOKENS, _REPEATS = 512, 32, 3
_POOL_BYTES = 256 << 20


@dataclass(frozen=True)
class Row:
    """What a process measures: a model under these settings."""

    model: str
    settings: dict[str, Any]
    pieces: list[list[int]]  #: token ids
    has_speed: bool = True


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", type=Path, nargs="+", default=list(TEXTS))
    parser.add_argument("--rows", default=",".join(ROWS), help="by comma, the first is compared with: %(default)s")
    parser.add_argument("--peers", action="store_true", help=f"also {', '.join(PEERS)} of the gguf package")
    parser.add_argument("--tokens", type=int, default=2 * _LENGTH, help="of each text (%(default)s)")
    parser.add_argument("--json", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    names = [next((name for name in ROWS if name.replace(", ", " ") == part), part) for part in options.rows.split(",")]
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}: {', '.join(name.replace(', ', ' ') for name in ROWS)}")
    texts = [path.read_text("utf-8", errors="replace") for path in options.text]
    rows: list[dict[str, Any]] = []
    result = record.document("perplexity", {"model": options.model, "tokens": options.tokens}, rows)
    first: list[float] = []
    for row in measure(options.model, texts, names, options.tokens, with_peers=options.peers):
        losses = row.pop("losses")
        first = first or losses
        row["change"], row["error"] = change(losses, first)
        rows.append(row)
        print(line(row), flush=True)
    record.write(options.json, {**result, "rows": rows})


def measure(
    model: str, texts: Sequence[str], names: Sequence[str], num_tokens: int, *, with_peers: bool
) -> Iterator[dict[str, Any]]:
    """The rows in order; each with the losses of all tokens, in nats."""
    with_processes = ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1)
    with with_processes as processes, tempfile.TemporaryDirectory() as parent:
        pieces = processes.submit(pieces_of, model, texts, num_tokens).result()
        for name in names:
            yield {"row": name, **processes.submit(measured, Row(model, ROWS[name], pieces)).result()}
        for kind in PEERS if with_peers else ():
            folder = Path(parent) / kind
            bits = processes.submit(write_rounded, model, kind, folder).result()
            row = Row(str(folder), ROWS["float32"], pieces, has_speed=False)
            yield {"row": kind, **processes.submit(measured, row).result(), "weights": f"{kind} ({bits:.2f} bits)"}
            shutil.rmtree(folder)


def pieces_of(model: str, texts: Sequence[str], num_tokens: int) -> list[list[int]]:
    """The first tokens of each text in pieces, each behind the token that begins a text, if the model has one."""
    from engine.loader import find_model_folder
    from engine.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.of_model(find_model_folder(model), has_weights=True)
    plain, begun = (tokenizer.encode("a", add_special_tokens=special) for special in (False, True))
    start = begun[: begun.index(plain[0])]
    ids = [tokenizer.encode(text)[:num_tokens] for text in texts]
    return [start + each[at : at + _LENGTH] for each in ids for at in range(0, len(each) - 1, _LENGTH)]


def measured(row: Row) -> dict[str, Any]:
    """One row: losses, and if asked for speed and memory. Runs in a process of its own."""
    from engine import LLM, SamplingParams

    context = 1 + max(*map(len, row.pieces), _PROMPT_TOKENS + _ANSWER_TOKENS)
    with LLM(
        row.model, max_model_len=context, kv_cache_bytes=_POOL_BYTES, enable_prefix_caching=False, **row.settings
    ) as llm:
        found: dict[str, Any] = {"weights": llm.info.precision}
        if row.has_speed:
            ids = [token for piece in row.pieces for token in piece][: _PROMPT_TOKENS + 1]

            def seconds(num_answer: int) -> float:
                params = SamplingParams(temperature=0.0, max_tokens=num_answer, ignore_eos=True)
                started = time.perf_counter()
                llm.generate([ids[:_PROMPT_TOKENS]], params)
                return time.perf_counter() - started

            prompt = min(seconds(1) for _ in range(_REPEATS))
            answer = min(seconds(1 + _ANSWER_TOKENS) for _ in range(_REPEATS)) - prompt
            found["resident_mb"] = resident_bytes(os.getpid()) // 1_000_000
            found["prompt_tokens_per_s"] = round(len(ids[:_PROMPT_TOKENS]) / prompt, 1)
            found["tokens_per_s"] = round(_ANSWER_TOKENS / answer, 1)
        scores = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
        found["losses"] = [
            -position[token].logprob
            for output in llm.generate(row.pieces, scores)
            for position, token in zip(output.prompt_logprobs or (), output.prompt_token_ids, strict=True)
            if position is not None
        ]
    found["tokens"] = len(found["losses"])
    found["perplexity"] = round(math.exp(statistics.fmean(found["losses"])), 4)
    return found


def change(losses: Sequence[float], base: Sequence[float]) -> tuple[float, float]:
    """Relative change of the perplexity, and its standard error from the differences of each token."""
    differences = [loss - other for loss, other in zip(losses, base, strict=True)]
    mean = statistics.fmean(differences)
    return math.expm1(mean), math.exp(mean) * statistics.stdev(differences) / math.sqrt(len(differences))


def write_rounded(model: str, kind: str, folder: Path) -> float:
    """A copy of the model with its matrices rounded by the gguf package, in float32; bits a weight of the layers."""
    import torch
    from gguf import GGMLQuantizationType, quants  # type: ignore[import-not-found]
    from safetensors.torch import save_file

    from engine.loader import Checkpoint, find_model_folder

    source = find_model_folder(model)
    checkpoint = Checkpoint(source)
    tensors: dict[str, torch.Tensor] = {}
    bits = weights = 0
    for name in sorted(checkpoint.names):
        tensor = checkpoint.read(name, checkpoint.shape_of(name)).float()
        if tensor.dim() == 2 and tensor.shape[1] % _PEER_BLOCK == 0:
            is_table = any(part in name for part in ("embed", "wte", "wpe", "lm_head"))
            type_of = GGMLQuantizationType["Q8_0" if is_table else kind]
            packed = quants.quantize(tensor.numpy(), type_of)
            tensor = torch.from_numpy(quants.dequantize(packed, type_of).reshape(tensor.shape).copy())
            if not is_table:
                bits, weights = bits + 8 * packed.nbytes, weights + tensor.numel()
        tensors[name] = tensor.contiguous()
    folder.mkdir()
    for file in source.iterdir():
        if file.suffix in (".json", ".model", ".jinja") and "safetensors" not in file.name:
            shutil.copy(file, folder)
    save_file(tensors, folder / "model.safetensors")
    return bits / weights


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    text = f"{row['row']:18} {row['perplexity']:9.3f} {row['change']:+8.2%} +-{row['error']:.2%}  {row['weights']}"
    if "tokens_per_s" not in row:
        return text
    speeds = f"{row['prompt_tokens_per_s']:.0f} prompt tokens/s, {row['tokens_per_s']} tokens/s"
    return f"{text}, {row['resident_mb']} MB, {speeds}"


if __name__ == "__main__":
    main()
