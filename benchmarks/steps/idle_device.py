"""A CUDA device that computes nothing, so that the host's work alone takes time, and no GPU is needed.

Triton compiles the engine's kernels for an H100 and launches them through its own launcher, on a libcuda that returns
at once (idle_cuda.c). Replays of graphs do nothing. Torch's operators run on the CPU, over a model of few channels; in
place of cuBLAS's products stand allocations of their results. So a step costs the host what it costs beside a GPU, but
for what the driver itself takes for a launch and torch for a product: both are left out.
"""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaDriver
from triton.runtime import driver

from engine.kernels import gpu
from engine.kernels.gpu.operators import GpuOperators
from engine.kernels.gpu.products import Products
from engine.kernels.gpu.quantised_products import TIMED_ROWS, QuantisedProduct, QuantisedProducts
from engine.kernels.operators import LinearFunction, WorkTimer
from engine.loader import DummyWeights, read_config
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.runner.build import Machinery, Parts, build_device_runner
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device.memory_profile import MemoryGauge

_SOURCE = Path(__file__).with_name("idle_cuda.c")
#: Compute capability of the H100.
_ARCHITECTURE = 90
_MULTIPROCESSORS = 132
#: What every row samples: a word of the model's tokenizer.
TOKEN = 300


class IdleDriver(CudaDriver):
    """Triton's CUDA driver over a libcuda that does nothing; `install` makes it the active one."""

    def __init__(self, folder: Path) -> None:
        library = folder / "libcuda.so.1"
        command = ["cc", "-shared", "-fPIC", "-O2", f"-Wl,-soname,{library.name}", "-o", str(library), str(_SOURCE)]
        subprocess.run(command, check=True)
        # Loaded before Triton's launcher, which asks the loader for a library of that name.
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self._library.agon_num_launches.restype = ctypes.c_int64
        knobs.nvidia.libcuda_path = str(folder)
        super().__init__()
        self.get_current_device = lambda: 0
        self.set_current_device = lambda device: None
        self.get_current_stream = lambda device: 0
        self.get_device_capability = lambda device=0: (_ARCHITECTURE // 10, _ARCHITECTURE % 10)

    @classmethod
    def install(cls) -> "IdleDriver":
        """Make Triton launch on this driver from now on, in this process."""
        with tempfile.TemporaryDirectory(prefix="agon-idle-cuda-") as folder:
            idle = cls(Path(folder))
        driver.set_active(idle)
        return idle

    def get_current_target(self) -> GPUTarget:
        """An H100."""
        return GPUTarget("cuda", _ARCHITECTURE, 32)

    @property
    def num_launches(self) -> int:
        """Kernels that Triton has launched so far."""
        return int(self._library.agon_num_launches())


@dataclass
class Launches:
    """What a piece of the program gives the device to do."""

    kernels: int = 0  #: of Triton
    products: int = 0  #: of cuBLAS
    torch: int = 0  #: torch's other operators, copies included
    graphs: int = 0  #: replays

    @property
    def total(self) -> int:
        return self.kernels + self.products + self.torch + self.graphs


class _TorchOperators(TorchDispatchMode):
    """Counts the operators that torch would launch on a device: all but views and allocations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        result = func(*args, **(kwargs or {}))
        is_view = any(returned.alias_info is not None for returned in schema.returns) and not schema.is_mutable
        if is_view and schema.name == "aten::to":  # a copy where the type changes
            is_view = result.dtype == args[0].dtype
        self.count += not is_view and "empty" not in schema.name
        return result


class IdleProducts(Products):
    """Products that nobody can measure: those of few rows are the engine's own, as where these are faster."""

    def is_faster(self, *args: Any) -> bool:
        return True


class IdleQuantisedProducts(QuantisedProducts):
    """Likewise: cuBLAS computes the largest number of rows that is timed, and more."""

    def is_faster(self, product: QuantisedProduct, num_rows: int, timer: WorkTimer) -> bool:
        return num_rows < TIMED_ROWS[-1]


class IdleOperators(GpuOperators):
    """The operators of CUDA. A product of cuBLAS is an allocation of its result, and is counted."""

    def __init__(self, weights: str = "auto", num_multiprocessors: int | None = _MULTIPROCESSORS) -> None:
        """weights: as in EngineConfig. num_multiprocessors: that products are divided among; None: as Products."""
        products = IdleProducts(library=self._multiply, num_multiprocessors=num_multiprocessors)
        quantised = IdleQuantisedProducts(products.workspace, library=self._multiply_into)
        super().__init__(products, quantised, has_int8_weights=weights == "int8", has_int4_weights=weights == "int4")
        self.num_products = 0

    def _multiply(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        self.num_products += 1
        return x.new_empty((x.shape[0], weight.shape[0]))

    def _multiply_into(self, x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor) -> None:
        self.num_products += 1

    def linear_by_head(self, weights: torch.Tensor) -> LinearFunction:
        """x [R, heads, in] -> [R, heads, out] for weights [heads, out, in]."""

        def multiply(x: torch.Tensor) -> torch.Tensor:
            self.num_products += 1
            return x.new_empty((weights.shape[0], len(x), weights.shape[1])).transpose(0, 1)

        return multiply


class CountsLaunches(Protocol):
    """A driver of Triton."""

    @property
    def num_launches(self) -> int:
        """Kernels that Triton has launched so far."""
        ...


class IdleDevice:
    """The device: its driver, its operators, and what has been launched on it."""

    def __init__(
        self, driver: CountsLaunches | None = None, operators: IdleOperators | None = None, *, warms_up: bool = True
    ) -> None:
        """driver: what Triton launches on; None: an IdleDriver, which is installed. warms_up: see Machinery."""
        self._driver = driver or IdleDriver.install()
        self._warms_up = warms_up
        self.operators = operators or IdleOperators()
        self._num_replays = 0
        self.recorded: list[Launches] = []  #: nodes of each graph, in the order of recording
        self.recorded_pieces: list[Launches] = []  #: likewise of each recording in pieces, all pieces together

    @contextmanager
    def counting(self) -> Any:
        """Yields Launches, complete at the end of the block."""
        launches, kernels, products = Launches(), self._driver.num_launches, self.operators.num_products
        replays = self._num_replays
        with _TorchOperators() as operators:
            yield launches
        launches.kernels = self._driver.num_launches - kernels
        launches.products = self.operators.num_products - products
        launches.torch = operators.count
        launches.graphs = self._num_replays - replays

    def record(self, program: Callable[[], None]) -> Callable[[], None]:
        """A GraphRecorder: runs the program once, to compile and to count it; the replay does nothing."""
        with self.counting() as launches:
            program()
        self.recorded.append(launches)
        return self._replay

    def record_pieces(self, program: Callable[[Callable[[], None]], None]) -> list[Callable[[], None]]:
        """Likewise for a program of several pieces."""
        num_pieces = 1

        def cut() -> None:
            nonlocal num_pieces
            num_pieces += 1

        with self.counting() as launches:
            program(cut)
        self.recorded_pieces.append(launches)
        return [self._replay] * num_pieces

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself: a few small ones may stay."""
        return tensor

    def _replay(self) -> None:
        self._num_replays += 1

    def build(self, parts: Parts) -> DeviceRunner:
        """A Builder for load_runner: the model is made again of this device's operators."""
        settings = ConfigReader(read_config(Path(parts.config.model)))
        weights = DummyWeights(dtype=parts.dtype, device=parts.device, seed=0, operators=self.operators)
        model = architecture_of(settings).build(settings, weights)
        return self.run(replace(parts, model=model, operators=self.operators))

    def run(self, parts: Parts) -> DeviceRunner:
        """A Builder of a runner for a model that was made of this device's operators."""
        kernels: Any = SimpleNamespace(**{name: getattr(gpu, name) for name in gpu.__all__} | {"sample": _sample})
        machinery = Machinery(
            kernels, "triton", lambda: self, _NoGauge(), timer=lambda work: 0.0, warms_up=self._warms_up
        )
        return build_device_runner(parts, machinery)


def _sample(*args: Any) -> None:
    """Samples the same token in each row: what the memory holds might be no token."""
    gpu.sample(*args)
    with torch._C._DisableTorchDispatch():  # not counted: a device does without
        for tokens in (args[7], *args[10:]):
            tokens.fill_(TOKEN)


class _NoGauge(MemoryGauge):
    """Not asked: the configuration gives the size of the page pool."""
