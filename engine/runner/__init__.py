"""Runs the steps that the scheduler has planned. Owns every device tensor; knows no requests."""

from engine.runner.eager import Runner
from engine.runner.load import LoadedModel, ModelInfo, load_runner

__all__ = ["LoadedModel", "ModelInfo", "Runner", "load_runner"]
