"""What a model is and how much memory it takes, from its configuration: no weight is read."""

from dataclasses import dataclass
from pathlib import Path

from engine.config import EngineConfig, ModelLimits
from engine.layers.weights import ShapesOnly
from engine.loader import find_model_folder, format_of, open_checkpoint, read_config, read_pooling
from engine.memory.admission import AdmissionRule
from engine.model_info import ModelInfo
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.models.weight_sizes import weight_bytes
from engine.parallel.group import Solo
from engine.runner.device_defaults import with_device_defaults
from engine.runner.load import choose_device, choose_dtype, choose_kv_dtype, context_length_of, roundings
from engine.runner.pool import plan_pool
from engine.text.tokenizer_files import read_chat_template


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """Facts of a model that is not loaded."""

    info: ModelInfo  #: without `operators`, which are chosen when the model is loaded; its context is what fits now
    config: EngineConfig  #: with the limits of a step that suit the device
    weights_bytes: int  #: of the linear layers and embeddings in memory; of the files where weights are quantised
    pool_bytes: int  #: the page pool that it would get now


def describe_checkpoint(config: EngineConfig) -> ModelDescription:
    """The facts of the model that `config` names. Raises CheckpointError, with the sentence of the loader."""
    device = choose_device(config.device)
    config = with_device_defaults(config, device, Solo())
    folder = find_model_folder(config.model)
    settings = ConfigReader(read_config(folder), served_context=config.max_model_len)
    architecture = architecture_of(settings)
    checkpoint = None if config.load_format == "dummy" else open_checkpoint(folder)
    quantised_by = None if checkpoint is None else format_of(checkpoint, settings)
    shapes = ShapesOnly()
    model = architecture.build(settings, shapes)
    is_counted = checkpoint is None or quantised_by is not None
    num_parameters = shapes.num_parameters if is_counted else checkpoint.num_parameters  # type: ignore[union-attr]
    dtype = choose_dtype(config.dtype, device, num_parameters, settings)
    kv_dtype = choose_kv_dtype(config.kv_dtype, dtype, device)
    limits = ModelLimits(context_length_of(config, model), vocab_size=model.vocab_size, eos_token_ids=frozenset())
    plan = plan_pool(config, model, limits, kv_dtype, device, Solo())
    rule = AdmissionRule(plan, config.step_limits.max_batched_tokens)
    weights = roundings(config, quantised_by)
    info = ModelInfo(
        name=Path(config.model).name,
        architecture=architecture.name,
        num_parameters=num_parameters,
        dtype=str(dtype).removeprefix("torch."),
        context_length=rule.max_tokens(limits.max_model_len),
        revision="dummy" if checkpoint is None else checkpoint.revision,
        device=str(device),
        kv_dtype=str(kv_dtype).removeprefix("torch."),
        weights=", ".join(weights),
        pooling=read_pooling(folder),
        has_chat_template=read_chat_template(folder) is not None,
    )
    if quantised_by is not None:
        weights_bytes = min(num_parameters * dtype.itemsize, _file_bytes(folder))
    elif config.weights != "auto" and device.type == "cpu":
        weights_bytes = weight_bytes(read_config(folder))[config.weights]
    else:
        weights_bytes = num_parameters * dtype.itemsize
    return ModelDescription(info, config, weights_bytes=weights_bytes, pool_bytes=plan.pool_bytes)


def _file_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".gguf"))
