"""From a configuration to a model that is ready to run: the only module that knows all its parts."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.attention.layout import is_quantised
from engine.config import FP8_CAPABILITY, EngineConfig, ModelLimits
from engine.errors import CheckpointError, NotDivisible
from engine.formats.format import QuantisedFormat
from engine.kernels import choose_operators
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import Operators
from engine.layers.weights import ShapesOnly, of_whole_model
from engine.loader import (
    AnyCheckpoint,
    CheckpointWeights,
    DummyWeights,
    find_model_folder,
    format_of,
    open_checkpoint,
    read_config,
    read_pooling,
)
from engine.memory.spec import PoolPlan
from engine.model_info import ModelInfo
from engine.models.budget_support import check_budget
from engine.models.causal_lm import CausalLM
from engine.models.config_reader import ConfigReader, read_model_dtype
from engine.models.registry import Architecture, architecture_of
from engine.models.through_transformers.way import cost_of_transformers
from engine.parallel.group import Group, Place, Solo
from engine.runner.build import Builder, Parts, build_runner
from engine.runner.device_defaults import with_device_defaults
from engine.runner.packed_weights import build_with_packed_weights
from engine.runner.runner import Runner
from engine.text.tokenizer import Tokenizer
from engine.text.tokenizer_files import read_eos_token_ids

_log = logging.getLogger(__name__)

#: On CPU a model whose weights take no more than this in float32 runs in float32: a step then costs little anyway, and
#: greedy tokens do not depend on the rounding of bfloat16. Larger models read half the bytes in bfloat16.
FLOAT32_LIMIT_BYTES = 256 * 2**20
#: Weights that fit into one core's caches are read in less time than two threads need to synchronise: such a model runs
#: on one thread, which also leaves cores to other models of the machine.
ONE_THREAD_LIMIT_BYTES = 32 * 2**20
#: Least compute capability of CUDA devices: bfloat16 and asynchronous copies, which the kernels are written for.
_LEAST_CAPABILITY = (8, 0)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run; the engine core is built around it."""

    runner: Runner
    tokenizer: Tokenizer  #: of bytes, for dummy weights without tokenizer.json
    limits: ModelLimits
    pool_plan: PoolPlan
    info: ModelInfo
    config: EngineConfig  #: with the limits of a step that suit the device
    #: Whether all processes that share the model still run; may be called by any thread.
    is_alive: Callable[[], bool] = lambda: True


def load_runner(config: EngineConfig, group: Group | None = None, build: Builder = build_runner) -> LoadedModel:
    """Load a model folder or hub id: weights, tokenizer, page pool, warm-up. Raises CheckpointError with a message of
    one line.

    group: the processes that share the model, all of which call this; None: this process has the whole model. build:
    makes the runner; the default chooses it by the device.
    """
    started = time.perf_counter()
    group = group or Solo()
    device = choose_device(config.device, group.place.local_rank)
    config = with_device_defaults(config, device, group)
    folder = find_model_folder(config.model)
    settings = ConfigReader(read_config(folder), served_context=config.max_model_len)
    architecture = architecture_of(settings)
    pooling = read_pooling(folder)
    if architecture.code == "transformers":
        _log.warning("%s", cost_of_transformers(architecture.name))
    is_dummy = config.load_format == "dummy"
    checkpoint = None if is_dummy else open_checkpoint(folder)
    quantised_by = None if checkpoint is None else format_of(checkpoint, settings)
    if checkpoint is None or quantised_by is not None:
        num_parameters = _count_parameters(architecture, settings)
    else:
        num_parameters = checkpoint.num_parameters
    dtype = _dtype(config.dtype, device, num_parameters, settings)
    if device.type == "cpu":
        weight_bytes = num_parameters * dtype.itemsize // group.place.size
        torch.set_num_threads(config.num_threads or _num_threads(weight_bytes, group.place))
    if config.weights != "auto" and architecture.code == "transformers" and device.type != "cpu":
        raise CheckpointError(
            f"weights {config.weights}: models that run through transformers' code are rounded on CPU only"
        )
    operators = choose_operators(
        device,
        dtype,
        torch.get_num_threads(),
        allow_compiled=config.operators == "auto",
        has_int8_weights=config.weights == "int8",
        has_int4_weights=config.weights == "int4",
    )
    model = _build(architecture, settings, config, checkpoint, quantised_by, dtype, device, operators, group)
    tokenizer = Tokenizer.of_model(folder, has_weights=not is_dummy)
    limits = ModelLimits(
        max_model_len=_context_length(config, model),
        vocab_size=model.vocab_size,
        eos_token_ids=tokenizer.eos_token_ids | read_eos_token_ids(folder),
    )
    kv_dtype = choose_kv_dtype(config.kv_dtype, dtype, device)
    if is_quantised(kv_dtype) and not model.attention_shapes:
        raise CheckpointError(f"kv_dtype {config.kv_dtype}: {architecture.name} keeps no keys and values, only states")
    if config.kv_budget is not None:
        check_budget(architecture, model, device, kv_dtype, group.place.size)
    runner = build(Parts(model, config, limits, dtype, kv_dtype, device, operators, group))
    info = ModelInfo(
        name=Path(config.model).name,
        architecture=architecture.name,
        num_parameters=num_parameters,
        dtype=str(dtype).removeprefix("torch."),
        context_length=limits.max_model_len,
        revision="dummy" if checkpoint is None else checkpoint.revision,
        device=str(device),
        kv_dtype=str(kv_dtype).removeprefix("torch."),
        operators=runner.operators_name if architecture.code == "agon" else f"transformers, {runner.operators_name}",
        weights=", ".join(_roundings(config, quantised_by)),
        pooling=pooling,
    )
    seconds = time.perf_counter() - started
    _log.info("loaded %s with %d threads in %.1f s", info, torch.get_num_threads(), seconds)
    return LoadedModel(runner, tokenizer, limits, runner.pool_plan, info, config)


def _build(
    architecture: Architecture,
    settings: ConfigReader,
    config: EngineConfig,
    checkpoint: AnyCheckpoint | None,
    quantised_by: QuantisedFormat | None,
    dtype: torch.dtype,
    device: torch.device,
    operators: Operators,
    group: Group,
) -> CausalLM:
    if checkpoint is None:
        dummy = DummyWeights(dtype=dtype, device=device, seed=config.seed, operators=operators, group=group)
        return architecture.build(settings, dummy)

    def make(has_matrices: bool) -> CausalLM:
        weights = CheckpointWeights(
            checkpoint,
            dtype=dtype,
            device=device,
            operators=operators,
            group=group,
            has_matrices=has_matrices,
            quantised_by=quantised_by,
        )
        with torch.inference_mode():
            model = architecture.build(settings, of_whole_model(weights) if architecture.code == "agon" else weights)
        weights.check_all_taken(architecture.ignored)
        return model

    if isinstance(operators, CppOperators) and architecture.code == "agon":
        return build_with_packed_weights(make, operators, checkpoint, config, group.place)
    return make(True)


def _roundings(config: EngineConfig, quantised_by: QuantisedFormat | None) -> list[str]:
    """How linear weights are quantised: by the checkpoint, and what is left by the configuration."""
    own = [] if quantised_by is None else [quantised_by.name]
    return own if config.weights == "auto" else [*own, config.weights]


def _count_parameters(architecture: Architecture, settings: ConfigReader) -> int:
    counter = ShapesOnly()
    architecture.build(settings, counter)
    return counter.num_parameters


def _context_length(config: EngineConfig, model: CausalLM) -> int:
    if config.max_model_len is None:
        return model.max_positions
    if config.max_model_len > model.max_positions:
        raise CheckpointError(
            f"max_model_len {config.max_model_len} is more than the {model.max_positions} positions of {config.model}"
        )
    return config.max_model_len


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device called "auto", "cpu" or "cuda"; rank local_rank of this machine gets the GPU of that number.

    Raises CheckpointError if a CUDA device was asked for and none can serve, NotDivisible if there are too few.
    """
    has_cuda = torch.cuda.is_available()
    if name not in ("auto", "cuda") or (name == "auto" and not has_cuda):
        return torch.device("cpu" if name == "auto" else name)
    if not has_cuda:
        raise CheckpointError("device cuda was asked for, but torch finds no CUDA device")
    if local_rank >= torch.cuda.device_count():
        raise NotDivisible(f"process {local_rank} of this machine finds only {torch.cuda.device_count()} CUDA devices")
    capability = torch.cuda.get_device_capability(local_rank)
    if capability >= _LEAST_CAPABILITY:
        return torch.device("cuda", local_rank)
    reason = (
        f"{torch.cuda.get_device_name(local_rank)} has compute capability {capability[0]}.{capability[1]}; "
        f"{_LEAST_CAPABILITY[0]}.{_LEAST_CAPABILITY[1]} (A100, RTX 30) or above is needed"
    )
    if name == "cuda":
        raise CheckpointError(reason)
    _log.warning("%s: the CPU serves", reason)
    return torch.device("cpu")


def _dtype(name: str, device: torch.device, num_parameters: int, settings: ConfigReader) -> torch.dtype:
    if name != "auto":
        return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]
    if device.type == "cpu":
        return torch.float32 if 4 * num_parameters <= FLOAT32_LIMIT_BYTES else torch.bfloat16
    return read_model_dtype(settings)


def choose_kv_dtype(name: str, dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of keys and values in pages. dtype: of the model. Raises CheckpointError if the device does not support
    what was asked for."""
    match name:
        case "auto":
            return dtype
        case "int8":
            return torch.int8
    if device.type != "cuda":
        raise CheckpointError(f"kv_dtype fp8 is for CUDA devices that compute it, not for {device}; int8 is for all")
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        found, needed = (".".join(map(str, version)) for version in (capability, FP8_CAPABILITY))
        raise CheckpointError(f"kv_dtype fp8 needs compute capability {needed}, {device} has {found}; int8 does not")
    return torch.float8_e4m3fn


def _num_threads(weight_bytes: int, place: Place) -> int:
    """Threads for a model on CPU if the configuration does not say; processes that share a model share the cores."""
    return 1 if weight_bytes <= ONE_THREAD_LIMIT_BYTES else max(1, torch.get_num_threads() // place.local_size)
