"""Records what Triton is asked to launch, without a device and without compiling: every variant of a kernel, and how
often it is launched.

Triton binds the arguments of a launch as it does on a device of that architecture: types, alignment, constants,
options. Where it would compile and launch, the variant is noted. Triton's interpreter must be off.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from engine.kernels.hardware import Hardware, assume

#: An A100; an L4; an H100 or H200.
DEVICES = {80: Hardware(80, 108), 89: Hardware(89, 58), 90: Hardware(90, 132)}
#: Options of a compilation that are no property of the code: a path.
_PLACES = ("extern_libs",)


@dataclass(frozen=True, slots=True)
class Variant:
    """One compilation: all that Triton compiles a kernel for. Can be sent to another process."""

    kernel: str  #: "module:function"
    signature: Mapping[str, str]  #: argument -> Triton type, "constexpr" of constants
    constants: Mapping[tuple[int, ...], Any]  #: place of an argument -> value; functions as "module:function"
    attributes: Mapping[tuple[int, ...], Any]  #: place of an argument -> [["tt.divisibility", 16]]
    options: Mapping[str, Any]
    architecture: int

    @property
    def function(self) -> Any:
        """The kernel's JITFunction."""
        return _function(self.kernel)

    @property
    def source(self) -> ASTSource:
        """What Triton compiles."""
        constants = {place: _unpacked(value) for place, value in self.constants.items()}
        return ASTSource(self.function, dict(self.signature), constants, dict(self.attributes))

    def named_constants(self) -> dict[str, Any]:
        """The constants by the name of their argument."""
        names = self.function.arg_names
        return {names[place[0]]: value for place, value in self.constants.items() if len(place) == 1}

    def compile(self) -> CompiledKernel:
        """As a launch would. Raises the compiler's errors, which have no base class."""
        target = GPUTarget("cuda", self.architecture, 32)
        return triton.compile(self.source, target=target, options=dict(self.options))

    def digest(self) -> str:
        """Equal for two variants only if their machine code is: the source of the kernel and of all it calls, types,
        constants, alignment, options, and Triton's version. The same for every architecture unless options differ."""
        options = {name: value for name, value in self.options.items() if name not in (*_PLACES, "arch")}
        parts = (self.source.hash(), sorted(options.items(), key=repr), triton.__version__)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@dataclass
class Recorder:
    """Triton's driver while `recording`: stands for a device."""

    architecture: int
    variants: dict[Any, Variant] = field(default_factory=dict)  #: in the order of their first launch
    launches: Counter[str] = field(default_factory=Counter)  #: by "module:function"

    @property
    def num_launches(self) -> int:
        """Kernels that were launched so far."""
        return self.launches.total()

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        """Triton keeps what it knows of a device by its number."""
        return self.architecture

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def note(
        self,
        kernel: Any,
        key: Any,
        signature: Mapping[str, str],
        device: int,
        constants: Mapping[tuple[int, ...], Any],
        options: Any,
        attributes: Mapping[tuple[int, ...], Any],
        warmup: bool,
    ) -> None:
        """In place of JITFunction._do_compile. None: nothing is launched, and the next launch comes here again."""
        name = _name(kernel)
        self.launches[name] += 1
        if (name, key) not in self.variants:
            packed = {place: _packed(value) for place, value in constants.items()}
            self.variants[name, key] = Variant(
                name, dict(signature), packed, dict(attributes), dict(options.__dict__), self.architecture
            )


@contextmanager
def recording(architecture: int) -> Iterator[Recorder]:
    """In this block launches are recorded as on a device of that architecture, see DEVICES."""
    recorder = Recorder(architecture)
    compile_and_keep = JITFunction._do_compile
    JITFunction._do_compile = lambda kernel, *arguments: recorder.note(kernel, *arguments)
    driver.set_active(recorder)
    try:
        with assume(DEVICES[architecture]):
            yield recorder
    finally:
        JITFunction._do_compile = compile_and_keep  # the driver stays: there may be no other


def _name(kernel: Any) -> str:
    return f"{kernel.fn.__module__}:{kernel.fn.__qualname__}"


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def _packed(value: Any) -> Any:
    return _Called(_name(value)) if isinstance(value, JITFunction) else value


def _unpacked(value: Any) -> Any:
    return _function(value.name) if isinstance(value, _Called) else value


@dataclass(frozen=True, slots=True)
class _Called:
    """A function that a kernel is given as a constant."""

    name: str
