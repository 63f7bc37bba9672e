"""A model on C++ operators whose matrices lie in an image that all workers of its checkpoint on this machine map.

The first worker packs them and writes the image, the others find it: they read norms and biases from the checkpoint and
nothing else. Where an image is of no use the worker keeps a copy of its own, and the log says why.
"""

import hashlib
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine.config import EngineConfig
from engine.kernels.cpu.build import cache_folder
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.cpu.weight_arena import PrivateArena
from engine.kernels.cpu.weight_image import ImageUnavailable, WeightImages
from engine.loader import Checkpoint
from engine.models.causal_lm import CausalLM
from engine.parallel.group import Place
from engine.parallel.sockets import num_nodes

_log = logging.getLogger(__name__)

#: Less is packed in no time, and stays in a processor's caches.
_LEAST_BYTES = 32 << 20
_ENGINE = Path(__file__).parent.parent
#: What decides on the order of matrices and on their layout.
_SOURCES = ("kernels/cpu/*.py", "kernels/cpu/*.cpp", "kernels/cpu/*.h", "layers/*.py", "models/*.py", "loader.py")

#: has_matrices -> the model
Make = Callable[[bool], CausalLM]


def build_on_image(
    make: Make, operators: CppOperators, checkpoint: Checkpoint, config: EngineConfig, place: Place
) -> CausalLM:
    """place: which part of the model this process holds."""
    if config.share_weights == "off":
        return make(True)
    reason = _why_not(config, checkpoint, operators)
    if reason is not None:
        _log.info("weights are not shared with other workers: %s", reason)
        return make(True)
    images = WeightImages(image_folder(), only_huge=config.share_weights == "auto")
    key = image_key(operators, checkpoint, place)
    try:
        return _find(make, operators, images, key) or _pack(make, operators, images, key, _level(config))
    except ImageUnavailable as error:
        _log.log(_level(config), "weights are not shared with other workers: %s", error)
    operators.arena = PrivateArena()
    return make(True)


def _level(config: EngineConfig) -> int:
    """Of the line that says why not: only who has asked for it need know."""
    return logging.WARNING if config.share_weights == "on" else logging.INFO


def image_folder() -> Path:
    return cache_folder().parent / "weights"


def image_key(operators: CppOperators, checkpoint: Checkpoint, place: Place) -> str:
    """The same for two workers whose images would be the same to the last byte; never for others."""
    digest = hashlib.sha256()
    for pattern in _SOURCES:
        for file in sorted(_ENGINE.glob(pattern)):
            digest.update(file.name.encode() + file.read_bytes())
    parts = (
        checkpoint.identity,
        operators.name,
        operators.dtype,
        operators.library.panel_outputs,
        place.rank,
        place.size,
    )
    digest.update(" ".join(map(str, parts)).encode())
    return digest.hexdigest()[:32]


def _find(make: Make, operators: CppOperators, images: WeightImages, key: str) -> CausalLM | None:
    started = time.perf_counter()
    arena = images.open(key)
    if arena is None:
        return None
    operators.arena = arena
    try:
        model = make(False)
    except ImageUnavailable:
        images.remove(key)
        raise
    how = "shared with other workers" if arena.is_shared else "copied, since their file has no huge pages"
    _log.info("packed weights in %s: %s, %.2f s", images.folder, how, time.perf_counter() - started)
    return model


def _pack(make: Make, operators: CppOperators, images: WeightImages, key: str, level: int) -> CausalLM:
    with images.draft(key) as draft:
        if (model := _find(make, operators, images, key)) is not None:
            return model  # made by another worker meanwhile
        arena = operators.arena = PrivateArena()
        model = make(True)
        started = time.perf_counter()
        try:
            images.write(key, draft, arena)
        except ImageUnavailable as error:
            _log.log(level, "weights are not shared with other workers: %s", error)
            return model
        _log.info("wrote the packed weights to %s in %.2f s", images.folder, time.perf_counter() - started)
    del model, arena  # before they are mapped: they would be there twice
    operators.arena = PrivateArena()
    shared = _find(make, operators, images, key)
    if shared is None:
        raise ImageUnavailable(f"{images.folder} has lost what was written to it")
    return shared


def _why_not(config: EngineConfig, checkpoint: Checkpoint, operators: CppOperators) -> str | None:
    if sys.platform != "linux":
        return "only Linux maps them in huge pages"
    if config.share_weights == "on":
        return None
    num_bytes = checkpoint.num_parameters * operators.dtype.itemsize
    if num_bytes < _LEAST_BYTES:
        return f"{num_bytes >> 20} MiB are packed in no time"
    if num_nodes() > 1:
        return "this machine has several NUMA nodes, and each worker reads its own node's memory faster"
    return None
