"""From a model's name to its weights: the folder, its config, its tensors, and what hands them to a model."""

from engine.loader.checkpoint_weights import AnyCheckpoint, CheckpointWeights, format_of, open_checkpoint
from engine.loader.dummy_weights import DummyWeights
from engine.loader.model_folder import find_model_folder, read_config
from engine.loader.pooling_config import read_pooling
from engine.loader.safetensors_files import Checkpoint

__all__ = [
    "AnyCheckpoint",
    "Checkpoint",
    "CheckpointWeights",
    "DummyWeights",
    "find_model_folder",
    "format_of",
    "open_checkpoint",
    "read_config",
    "read_pooling",
]
