"""Runs the steps that the scheduler has planned. Runners own every device tensor and know no requests."""

from engine.runner.describe import ModelDescription, describe_checkpoint
from engine.runner.eager_runner import EagerRunner
from engine.runner.load import LoadedModel, choose_device, load_runner
from engine.runner.pool import share_of_free_memory
from engine.runner.tensor_parallel import follow_if_told_to, load_divided
from engine.runner.with_draft import LoadedPair, load_with_draft

__all__ = [
    "EagerRunner",
    "LoadedModel",
    "LoadedPair",
    "ModelDescription",
    "choose_device",
    "describe_checkpoint",
    "follow_if_told_to",
    "load_divided",
    "load_runner",
    "load_with_draft",
    "share_of_free_memory",
]
