"""From a configuration to a model that is ready to run: the only module that knows all its parts."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.adapters import AdapterRack
from engine.adapters.rack import ReadWeight
from engine.attention.layout import is_quantised
from engine.config import FP8_CAPABILITY, EngineConfig, ModelLimits
from engine.errors import AdapterError, CheckpointError, NotDivisible
from engine.formats.format import QuantisedFormat
from engine.kernels.choice import choose_operators
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import Operators
from engine.kernels.quantised import QuantisedMatrix
from engine.kernels.torch_operators import TorchOperators
from engine.layers.adapter_points import AdapterPoints
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
from engine.runner.calibration import MAX_PARAMETERS, importance_of
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device_defaults import with_device_defaults
from engine.runner.eager_runner import EagerRunner
from engine.runner.free_heap import return_free_heap
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
    num_threads: int  #: CPU threads that it computes with
    #: Whether all processes that share the model still run; may be called by any thread.
    is_alive: Callable[[], bool] = lambda: True
    adapters: AdapterRack | None = None  #: None: no adapter can be loaded


@dataclass(frozen=True, slots=True)
class ReadModel:
    """A model with its weights, before it has a runner."""

    parts: Parts
    tokenizer: Tokenizer
    info: ModelInfo  #: its operators are those of the weights
    num_threads: int  #: CPU threads that the model computes with
    is_own_code: bool  #: False: transformers' modelling code
    adapters: AdapterRack | None  #: None: no adapter can be loaded

    def with_runner(self, runner: EagerRunner | DeviceRunner) -> LoadedModel:
        """The model with a runner of these parts."""
        operators = runner.operators_name if self.is_own_code else f"transformers, {runner.operators_name}"
        info = replace(self.info, operators=operators)
        return LoadedModel(
            runner,
            self.tokenizer,
            self.parts.limits,
            runner.pool_plan,
            info,
            self.parts.config,
            self.num_threads,
            adapters=self.adapters,
        )


def revision_of(config: EngineConfig) -> str:
    """The digest of the checkpoint, as in ModelInfo. Raises CheckpointError."""
    if config.load_format == "dummy":
        return "dummy"
    return open_checkpoint(find_model_folder(config.model)).revision


def load_runner(config: EngineConfig, group: Group | None = None, build: Builder = build_runner) -> LoadedModel:
    """Load a model folder or hub id: weights, tokenizer, page pool, warm-up. Raises CheckpointError with a message of
    one line.

    group: the processes that share the model, all of which call this; None: this process has the whole model. build:
    makes the runner; the default chooses it by the device.
    """
    started = time.perf_counter()
    read = read_model(config, group)
    loaded = read.with_runner(build(read.parts))
    return_free_heap()
    seconds = time.perf_counter() - started
    _log.info("loaded %s with %d threads in %.1f s", loaded.info, loaded.num_threads, seconds)
    return loaded


def read_model(config: EngineConfig, group: Group | None = None, tokenizer: Tokenizer | None = None) -> ReadModel:
    """The first part of load_runner: everything but page pool and runner. tokenizer: of the same model, where it has
    been read before; None: it is read."""
    group = group or Solo()
    device = choose_device(config.device, group.place.local_rank)
    config = with_device_defaults(config, device, group)
    folder = find_model_folder(config.model)
    settings = ConfigReader(read_config(folder), served_context=config.max_model_len)
    architecture = architecture_of(settings)
    pooling = read_pooling(folder)
    if config.max_adapters:
        _check_adapters(architecture, config, group)
    if config.batch_invariant and device.type == "cuda":
        _check_batch_invariance(architecture, config)
    if architecture.code == "transformers":
        _log.warning("%s", cost_of_transformers(architecture.name))
    is_dummy = config.load_format == "dummy"
    checkpoint = None if is_dummy else open_checkpoint(folder)
    quantised_by = None if checkpoint is None else format_of(checkpoint, settings)
    if checkpoint is None or quantised_by is not None:
        num_parameters = _count_parameters(architecture, settings)
    else:
        num_parameters = checkpoint.num_parameters
    dtype = choose_dtype(config.dtype, device, num_parameters, settings)
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
        is_batch_invariant=config.batch_invariant,
    )
    tokenizer = tokenizer or Tokenizer.of_model(folder, has_weights=not is_dummy)
    model, points = _build(
        architecture, settings, config, checkpoint, quantised_by, dtype, device, operators, group, tokenizer
    )
    limits = ModelLimits(
        max_model_len=context_length_of(config, model),
        vocab_size=model.vocab_size,
        eos_token_ids=tokenizer.eos_token_ids | read_eos_token_ids(folder),
    )
    kv_dtype = choose_kv_dtype(config.kv_dtype, dtype, device)
    if is_quantised(kv_dtype) and not model.attention_shapes:
        raise CheckpointError(f"kv_dtype {config.kv_dtype}: {architecture.name} keeps no keys and values, only states")
    if config.kv_budget is not None:
        check_budget(architecture, model, device, kv_dtype, group.place.size)
    info = ModelInfo(
        name=Path(config.model).name,
        architecture=architecture.name,
        num_parameters=num_parameters,
        dtype=str(dtype).removeprefix("torch."),
        context_length=limits.max_model_len,
        revision="dummy" if checkpoint is None else checkpoint.revision,
        device=str(device),
        kv_dtype=str(kv_dtype).removeprefix("torch."),
        operators=operators.name,
        weights=", ".join(roundings(config, quantised_by, operators.bits_per_weight)),
        pooling=pooling,
        has_chat_template=tokenizer.has_chat_template,
    )
    return ReadModel(
        Parts(model, config, limits, dtype, kv_dtype, device, operators, group, points),
        tokenizer,
        info,
        torch.get_num_threads(),
        architecture.code == "agon",
        None if points is None else AdapterRack(points, weight_reader(checkpoint, quantised_by)),
    )


def _check_adapters(architecture: Architecture, config: EngineConfig, group: Group) -> None:
    """Raises CheckpointError where the model can have no adapters."""
    if group.place.size > 1:
        raise CheckpointError("adapters are not supported with tensor parallelism")
    if architecture.code != "agon":
        raise CheckpointError(f"adapters are not supported for {architecture.name}, which runs on transformers' code")


def _check_batch_invariance(architecture: Architecture, config: EngineConfig) -> None:
    """Raises CheckpointError where CUDA computes a row's sums differently beside other rows. Operators refuse more."""
    if config.tensor_parallel > 1:
        raise CheckpointError("batch_invariant is not offered on CUDA with tensor parallelism")
    if architecture.code == "transformers" or architecture.name.startswith("Gemma3n"):
        raise CheckpointError(
            f"batch_invariant is not offered on CUDA for {architecture.name}: torch computes its sums"
        )


def weight_reader(checkpoint: AnyCheckpoint | None, quantised_by: QuantisedFormat | None) -> ReadWeight:
    """Reads linear layers' weights of the checkpoint once more, dequantised."""

    def read(layer: str, num_outputs: int, num_inputs: int) -> torch.Tensor:
        if checkpoint is None:
            raise AdapterError("DoRA needs the base's weights, and dummy ones are not kept")
        weights = CheckpointWeights(
            checkpoint,
            dtype=torch.float32,
            device=torch.device("cpu"),
            operators=TorchOperators(),
            quantised_by=quantised_by,
        )
        weight = weights.take_linear_weight(layer, num_outputs, num_inputs)
        return weight.dequantised() if isinstance(weight, QuantisedMatrix) else weight

    return read


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
    tokenizer: Tokenizer,
) -> tuple[CausalLM, AdapterPoints | None]:
    def new_points() -> AdapterPoints | None:
        if not config.max_adapters:
            return None
        return AdapterPoints(operators, dtype, device, config.max_adapters, config.max_adapter_rank)

    points = new_points()
    if checkpoint is None:
        dummy = DummyWeights(
            dtype=dtype, device=device, seed=config.seed, operators=operators, group=group, adapter_points=points
        )
        return architecture.build(settings, dummy), points

    def build(by: Operators, has_matrices: bool, points: AdapterPoints | None) -> CausalLM:
        weights = CheckpointWeights(
            checkpoint,
            dtype=dtype,
            device=device,
            operators=by,
            group=group,
            has_matrices=has_matrices,
            quantised_by=quantised_by,
            adapter_points=points,
        )
        with torch.inference_mode():
            model = architecture.build(settings, of_whole_model(weights) if architecture.code == "agon" else weights)
        weights.check_all_taken(architecture.ignored)
        return model

    def make(has_matrices: bool) -> CausalLM:
        nonlocal points
        points = new_points()  # those of the model that was built last
        if has_matrices and isinstance(operators, CppOperators) and config.weights == "int4":
            operators.importance = None
            reason = _why_not_calibrated(architecture, checkpoint, quantised_by, group)
            if reason is None:
                found = importance_of(lambda watching: build(watching, True, None), operators, config, tokenizer)
                operators.importance = deque(found)
            else:
                _log.info("weights are rounded without a look at the layers' inputs: %s", reason)
        return build(operators, has_matrices, points)

    if isinstance(operators, CppOperators) and architecture.code == "agon":
        model = build_with_packed_weights(make, operators, checkpoint, config, group.place)
    else:
        model = make(True)
    return model, points


def _why_not_calibrated(
    architecture: Architecture, checkpoint: AnyCheckpoint, quantised_by: QuantisedFormat | None, group: Group
) -> str | None:
    """Why the inputs of layers are not measured before weights are rounded; None: they are."""
    if quantised_by is not None:
        return "the checkpoint is quantised itself"
    if architecture.code != "agon":
        return "transformers' code runs the model"
    if group.place.size > 1:
        return "several processes share the model"
    if checkpoint.num_parameters > MAX_PARAMETERS:
        return f"the model has more than {MAX_PARAMETERS:,} parameters"
    return None


def roundings(
    config: EngineConfig, quantised_by: QuantisedFormat | None, bits_per_weight: float | None = None
) -> list[str]:
    """How linear weights are quantised: by the checkpoint, and what is left by the configuration, in so many bits."""
    own = [] if quantised_by is None else [quantised_by.name]
    if config.weights == "auto":
        return own
    bits = "" if bits_per_weight is None else f" ({bits_per_weight:.2f} bits a weight)"
    return [*own, f"{config.weights}{bits}"]


def _count_parameters(architecture: Architecture, settings: ConfigReader) -> int:
    counter = ShapesOnly()
    architecture.build(settings, counter)
    return counter.num_parameters


def context_length_of(config: EngineConfig, model: CausalLM) -> int:
    """Tokens of a request: the configured limit, else the model's. Raises CheckpointError if it is more than that."""
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


def choose_dtype(name: str, device: torch.device, num_parameters: int, settings: ConfigReader) -> torch.dtype:
    """The dtype of weights and computation. "auto": the checkpoint's own on CUDA; on CPU by the model's size."""
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
