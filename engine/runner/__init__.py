"""Runs the steps that the scheduler has planned. Runners own every device tensor and know no requests."""

from engine.runner.describe import ModelDescription, describe_checkpoint
from engine.runner.eager_runner import EagerRunner
from engine.runner.load import LoadedModel, load_runner
from engine.runner.tensor_parallel import follow_if_told_to, load_divided

__all__ = [
    "EagerRunner",
    "LoadedModel",
    "ModelDescription",
    "describe_checkpoint",
    "follow_if_told_to",
    "load_divided",
    "load_runner",
]
