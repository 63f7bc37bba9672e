"""Builds a model on C++ operators with its matrices in a packed weights file, which all workers of the checkpoint on
this machine map.

The first worker packs the matrices and writes the file. The others map it, and read only norms and biases from the
checkpoint. Where a shared file is of no use, a worker keeps a private copy, and the log says why.
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
from engine.kernels.cpu.packed_weights_files import PackedWeightsFiles, PackedWeightsUnavailable
from engine.kernels.cpu.weight_memory import PrivateMemory
from engine.loader import AnyCheckpoint
from engine.models.causal_lm import CausalLM
from engine.parallel.group import Place
from engine.parallel.sockets import num_nodes

_log = logging.getLogger(__name__)

#: Packing smaller models takes hardly any time, and their weights stay in a processor's caches.
_LEAST_BYTES = 32 << 20
_ENGINE = Path(__file__).parent.parent
#: The sources that decide the order of matrices and their layout.
_SOURCES = (
    "kernels/cpu/*.py",
    "kernels/cpu/*.cpp",
    "kernels/cpu/*.h",
    "kernels/quantised.py",
    "formats/**/*.py",
    "layers/*.py",
    "models/*.py",
    "loader/*.py",
    "runner/calibration*.py",
)

#: Builds the model; the argument says whether to read matrices from the checkpoint (False: they are packed already).
Make = Callable[[bool], CausalLM]


def build_with_packed_weights(
    make: Make, operators: CppOperators, checkpoint: AnyCheckpoint, config: EngineConfig, place: Place
) -> CausalLM:
    """The model, with its matrices in a packed weights file or in private memory. place: which part of the model this
    process holds. Sets operators.weight_memory."""
    if config.share_weights == "off":
        return make(True)
    reason = _why_not(config, checkpoint, operators)
    if reason is not None:
        _log.info("weights are not shared with other workers: %s", reason)
        return make(True)
    files = PackedWeightsFiles(packed_weights_folder(), only_huge=config.share_weights == "auto")
    key = packed_weights_key(operators, checkpoint, place)
    try:
        return _find(make, operators, files, key) or _pack(make, operators, files, key, _level(config))
    except PackedWeightsUnavailable as error:
        _log.log(_level(config), "weights are not shared with other workers: %s", error)
    operators.weight_memory = PrivateMemory()
    return make(True)


def _level(config: EngineConfig) -> int:
    """Log level of the reason why weights are not shared: a warning only where sharing was asked for."""
    return logging.WARNING if config.share_weights == "on" else logging.INFO


def packed_weights_folder() -> Path:
    """`weights` beside the folder of the built operators, in the cache folder."""
    return cache_folder().parent / "weights"


def packed_weights_key(operators: CppOperators, checkpoint: AnyCheckpoint, place: Place) -> str:
    """The name of the packed weights file: equal for two workers only if their files would be equal to the last
    byte."""
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


def _find(make: Make, operators: CppOperators, files: PackedWeightsFiles, key: str) -> CausalLM | None:
    """The model on an existing file; None: there is none."""
    started = time.perf_counter()
    memory = files.open(key)
    if memory is None:
        return None
    operators.weight_memory = memory
    try:
        model = make(False)
    except PackedWeightsUnavailable:
        files.remove(key)
        raise
    how = "shared with other workers" if memory.is_shared else "copied, since their file has no huge pages"
    _log.info("packed weights in %s: %s, %.2f s", files.folder, how, time.perf_counter() - started)
    return model


def _pack(make: Make, operators: CppOperators, files: PackedWeightsFiles, key: str, level: int) -> CausalLM:
    """Pack the model in private memory, write the file, and build the model again on the file."""
    with files.temporary_file(key) as temporary:
        if (model := _find(make, operators, files, key)) is not None:
            return model  # another worker has written the file meanwhile
        memory = operators.weight_memory = PrivateMemory()
        model = make(True)
        started = time.perf_counter()
        try:
            files.write(key, temporary, memory)
        except PackedWeightsUnavailable as error:
            _log.log(level, "weights are not shared with other workers: %s", error)
            return model
        _log.info("wrote the packed weights to %s in %.2f s", files.folder, time.perf_counter() - started)
    del model, memory  # before the file is mapped: otherwise the weights would be in memory twice
    operators.weight_memory = PrivateMemory()
    shared = _find(make, operators, files, key)
    if shared is None:
        raise PackedWeightsUnavailable(f"{files.folder} has lost what was written to it")
    return shared


def _why_not(config: EngineConfig, checkpoint: AnyCheckpoint, operators: CppOperators) -> str | None:
    """Why a packed weights file is of no use here; None: it is."""
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
