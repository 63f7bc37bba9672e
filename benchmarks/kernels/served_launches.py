"""Serves a model on a device that is not there, and records what it launches: while it is loaded and warmed up, in the
graphs of its decode steps, and for requests that make all kinds of steps."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.kernels.recorded_weights import HollowWeights
from benchmarks.kernels.recording import Variant, recording
from benchmarks.kernels.served_models import SERVED, Served
from benchmarks.models import write_model
from benchmarks.steps.idle_device import TOKEN, IdleDevice, IdleOperators, Launches
from engine.adapters import AdapterRack
from engine.adapters.random_adapter import write_random_adapter
from engine.config import EngineConfig, ModelLimits
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.vocabulary import Vocabulary
from engine.core import EngineCore
from engine.drafts.ngram import NgramProposer
from engine.layers.adapter_points import AdapterPoints
from engine.loader import DummyWeights, read_config
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.parallel.group import Solo
from engine.runner.build import Parts
from engine.runner.device.buckets import Bucket
from engine.runner.load import weight_reader
from engine.sampling_params import Constraint, SamplingParams
from engine.text.sequence_text import NoText
from engine.text.tokenizer import Tokenizer

_CPU = torch.device("cpu")
_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "int8": torch.int8, "fp8": torch.float8_e4m3fn}
#: Sequences and tokens of a step on an H200, and on a device of 16 GB.
_LARGE_STEPS = {"max_running": 256, "max_batched_tokens": 8192}
_SMALL_STEPS = {"max_running": 64, "max_batched_tokens": 2048}
_POOL_BYTES = 1 << 28
_CONTEXT = 8192  #: of which some fit into the pool
_VOCABULARY = 4096  #: tokens of prompts
#: Rows whose decode graphs are counted.
COUNTED_ROWS = (1, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class Recording:
    """What a model launches."""

    name: str
    variants: tuple[Variant, ...]
    nodes: Mapping[int, Launches]  #: rows -> nodes of the graph of such a decode step; empty: it has no graphs


def record(name: str, architecture: int) -> Recording:
    """Serve a model of SERVED and record what it launches on that architecture."""
    served = SERVED[name]
    with recording(architecture) as recorder, tempfile.TemporaryDirectory(prefix="agon-launches-") as folder:
        device = IdleDevice(recorder, IdleOperators(served.settings.get("weights", "auto"), num_multiprocessors=None))
        core, buckets = _load(served, Path(folder), device)
        nodes = {
            bucket.num_rows: launches
            for bucket, launches in zip(buckets, device.recorded, strict=bool(device.recorded))
            if bucket == Bucket(bucket.num_rows) and bucket.num_rows in COUNTED_ROWS
        }
        _serve(core, Path(folder), served)
    return Recording(name, tuple(recorder.variants.values()), nodes)


def _load(served: Served, folder: Path, device: IdleDevice) -> tuple[EngineCore, tuple[Bucket, ...]]:
    """An engine core around the model, and the sizes of its decode graphs in the order in which they were recorded."""
    write_model(folder, {**served.config, "bos_token_id": 1, "eos_token_id": 2})
    settings = {name: value for name, value in served.settings.items() if name not in ("kv_dtype", "weights")}
    context = _context_of(served)
    steps = _LARGE_STEPS if served.has_all_steps else _SMALL_STEPS
    settings = {"dtype": "bfloat16", "max_model_len": context, "kv_cache_bytes": _POOL_BYTES, **steps, **settings}
    config = EngineConfig(str(folder), device="cpu", overlap=True, **settings)
    dtype = _DTYPES[config.dtype]
    points = rack = None
    if config.max_adapters:
        points = AdapterPoints(device.operators, dtype, _CPU, config.max_adapters, config.max_adapter_rank)
        rack = AdapterRack(points, weight_reader(None, None))
    make = DummyWeights if "weights" in served.settings else HollowWeights  # values are rounded
    weights = make(dtype=dtype, device=_CPU, seed=0, operators=device.operators, adapter_points=points)
    if isinstance(weights, HollowWeights):
        weights.form = served.form
    reader = ConfigReader(read_config(folder), served_context=context)
    model = architecture_of(reader).build(reader, weights)
    limits = ModelLimits(context, model.vocab_size, frozenset({2}))
    kv_dtype = _DTYPES[served.settings.get("kv_dtype", config.dtype)]
    runner = device.run(Parts(model, config, limits, dtype, kv_dtype, _CPU, device.operators, Solo(), points))
    core = EngineCore(
        runner,
        config,
        lambda *_: NoText(),
        has_queue_bound=False,
        compiler=_grammars(folder, limits) if served.has_all_steps else None,
        proposer=NgramProposer() if config.draft else None,
        rack=rack,
    )
    return core, runner.decode_graphs.buckets.all()


def _grammars(folder: Path, limits: ModelLimits) -> GrammarCompiler:
    tokenizer = Tokenizer.of_model(folder, has_weights=False)
    return GrammarCompiler(Vocabulary(tokenizer, limits.vocab_size, limits.eos_token_ids))


def _serve(core: EngineCore, folder: Path, served: Served) -> None:
    """Requests for all kinds of steps; what they are answered has no meaning."""
    adapter = ""
    if served.settings.get("max_adapters"):
        adapter = "adapter"
        write_random_adapter(str(folder), folder / adapter)
        core.adapters.add(adapter, folder / adapter)
    groups = list(_groups(_context_of(served) - 16))
    if served.has_all_steps:
        words = Constraint("regex", r"\w+")
        groups.append([([300] * 20, SamplingParams(max_tokens=4, constraint=words))])
    for group in groups:
        for number, (prompt, params) in enumerate(group):
            core.add_request(str(number), prompt, params, adapter=adapter if number % 2 else "")
        for _ in range(12):
            core.step()
        core.abort_all()
        while not core.is_idle:
            core.step()


def _context_of(served: Served) -> int:
    positions: int = served.config.get("max_position_embeddings") or served.config["n_positions"]
    return min(_CONTEXT, positions)


def _groups(longest: int) -> Iterator[list[tuple[list[int], SamplingParams]]]:
    """Requests that run together. longest: prompt."""
    plain = {"max_tokens": 8, "ignore_eos": True}

    def prompt(length: int, first: int = 300) -> list[int]:
        return [300 + (first + place) % (_VOCABULARY - 300) for place in range(min(length, longest))]

    greedy, sampled = SamplingParams(temperature=0.0, **plain), SamplingParams(top_k=50, top_p=0.9, **plain)
    yield [(prompt(length), greedy) for length in (1, 5, 40, 300, 2000)]
    yield [(prompt(700) + prompt(20 + row, row), sampled) for row in range(20)]  # a shared prefix
    yield [([TOKEN] * 64, greedy)] * 3  # drafts: what is sampled has occurred
    changed = {"repetition_penalty": 1.1, "frequency_penalty": 0.1, "logit_bias": {5: 1.0}, "logprobs": 5}
    yield [(prompt(50), SamplingParams(**plain, **changed)), (prompt(50), SamplingParams(**plain, min_p=0.1))]
    yield [(prompt(50), SamplingParams(**plain, allowed_token_ids=(5, 7))), (prompt(50), SamplingParams(**plain, n=3))]
    yield [(prompt(4000, 7 * row), greedy) for row in range(12)]  # more than the pool holds
