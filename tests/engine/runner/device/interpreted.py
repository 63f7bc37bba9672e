"""Runners of devices over Triton's kernels: on a CUDA device with its graphs where there is one, else in Triton's
interpreter, where a tape takes each kernel as one call. Not importable without Triton."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch

from engine.kernels import gpu
from engine.kernels.gpu import activation, dequantise, norm, quantised_product, skinny_product, state_kernels
from engine.kernels.gpu.norm import RMSNorm
from engine.kernels.gpu.operators import GpuOperators
from engine.kernels.gpu.products import Products
from engine.kernels.gpu.quantised_products import QuantisedProducts
from engine.kernels.operators import (
    PLAIN_EXPERTS,
    ExpertOptions,
    ExpertsFunction,
    GroupedExperts,
    NormFunction,
    QuantisedExperts,
    Routing,
    WorkTimer,
)
from engine.kernels.quantised import QuantisedStack
from engine.kernels.state_kernels import StateKernels
from engine.runner import LoadedModel, load_runner
from engine.runner.build import Machinery
from engine.runner.device.device_runner import DeviceRunner
from tests.engine.checkpoints import TinyModel, save
from tests.engine.runner.device.device_runners import FixedGauge, load_device, opaque_kernels, settings_for
from tests.engine.runner.device.tape import TapeRecorder, opaque

HAS_CUDA = torch.cuda.is_available()


class InterpretedOperators(GpuOperators):
    """Those of CUDA, with kernels that a tape takes as single calls."""

    silu_mul = staticmethod(opaque(activation.silu_mul))
    gelu_tanh_mul = staticmethod(opaque(activation.gelu_tanh_mul))
    gelu_tanh = staticmethod(opaque(activation.gelu_tanh))

    @property
    def state_kernels(self) -> StateKernels:
        assert super().state_kernels is state_kernels
        return opaque_kernels(state_kernels)

    def __init__(
        self,
        *,
        has_int8_weights: bool = False,
        has_int4_weights: bool = False,
        is_batch_invariant: bool = False,
    ) -> None:
        products = Products(multiply=opaque(skinny_product.multiply), is_batch_invariant=is_batch_invariant)
        quantised = QuantisedProducts(
            products.workspace,
            multiply=opaque(quantised_product.multiply),
            dequantise=opaque(dequantise.dequantise),
            look_up=opaque(dequantise.rows_of),
        )
        super().__init__(products, quantised, has_int8_weights=has_int8_weights, has_int4_weights=has_int4_weights)

    def rms_norm(self, weight: torch.Tensor, eps: float) -> RMSNorm:
        return RMSNorm(weight, eps, kernel=opaque(norm.rms_norm))

    @property
    def grouped_experts(self) -> GroupedExperts:
        bind = super().grouped_experts
        return lambda *matrices: opaque(bind(*matrices))

    @property
    def quantised_experts(self) -> QuantisedExperts:
        bind = super().quantised_experts

        def opaque_mixture(
            gate_up: QuantisedStack, down: QuantisedStack, routing: Routing, options: ExpertOptions = PLAIN_EXPERTS
        ) -> ExpertsFunction | None:
            mixture = bind(gate_up, down, routing, options)
            return None if mixture is None else opaque(mixture)

        return opaque_mixture

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        return opaque(super().layer_norm(weight, bias, eps))


class Later:
    """A WorkTimer by which each work takes longer than the one before: our products, which are timed first, are
    faster."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self, work: Callable[[], None]) -> float:
        self._seconds += 1.0
        return self._seconds


def triton_runner(
    folder: Path, *, timer: WorkTimer | None = None, warms_up: bool = False, **settings: object
) -> DeviceRunner:
    """A runner with two slots: graphs of one row and of two. timer: of products, where there is no device. warms_up:
    although nothing is compiled, for which half the time of a test goes."""
    settings = {"max_running": 2, "max_batched_tokens": 8, "max_model_len": 32, **settings}
    if HAS_CUDA:
        config = settings_for(folder, **{"device": "cuda", "dtype": "float32", "operators": "auto", **settings})
        runner = load_runner(config).runner
    else:
        runner = interpreted_model(folder, timer=timer, warms_up=warms_up, **settings).runner
    assert isinstance(runner, DeviceRunner)
    return runner


def interpreted_model(
    folder: Path, *, timer: WorkTimer | None = None, warms_up: bool = False, **settings: object
) -> LoadedModel:
    """A model on CPU, over Triton's interpreter; without a prefix cache. With operators="torch" products, norms and
    activations are torch's."""
    kernels = SimpleNamespace(**{name: opaque(getattr(gpu, name)) for name in gpu.__all__})
    machinery = Machinery(kernels, "triton", TapeRecorder, FixedGauge(), timer, warms_up=warms_up)
    weights = settings.pop("weights", "auto")
    operators = None
    if settings.pop("operators", "auto") == "auto":
        operators = InterpretedOperators(
            has_int8_weights=weights == "int8",
            has_int4_weights=weights == "int4",
            is_batch_invariant=bool(settings.get("batch_invariant")),
        )
    return load_device(folder, machinery, operators, **{"enable_prefix_caching": False, **settings})


def small(name: str, folder: Path) -> TinyModel:
    """Two layers, or what shows both kinds of a mixed model."""
    changes: dict[str, object] = {"n_layer" if name == "gpt2" else "num_hidden_layers": 2}
    if name == "qwen3.5":
        changes |= {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 1}
        changes |= {"linear_num_value_heads": 2, "linear_value_head_dim": 8}
    if name == "kimi-linear":
        changes |= {"layer_types": ["linear_attention", "full_attention"], "mlp_layer_types": ["dense", "sparse"]}
    return save(name, folder, **changes)
