"""A mixture of experts in one call of the library (experts.cpp), over the products that its experts are bound to.

T = tokens, C = experts chosen for each token.
"""

import ctypes
from collections.abc import Sequence

import torch

from engine.kernels.cpu.functions import CppActivation, CppGroupedLinear, CppLinear, address
from engine.kernels.cpu.library import Library
from engine.kernels.cpu.steps import ActivationKind
from engine.kernels.operators import ExpertParts, Routing
from engine.kernels.reference import choose_experts

_I, _P = ctypes.c_int64, ctypes.c_void_p


class _Matrix(ctypes.Structure):
    """ExpertMatrix of experts.cpp."""

    _fields_ = (
        ("packed", _P),
        ("bias", _P),
        ("grouped", _P),
        ("num_inputs", _I),
        ("num_outputs", _I),
    )


class _Expert(ctypes.Structure):
    """Expert of experts.cpp."""

    _fields_ = (("up", _Matrix), ("down", _Matrix))


class _Mixture(ctypes.Structure):
    """Mixture of experts.cpp."""

    _fields_ = (
        ("experts", _P),
        ("num_experts", _I),
        ("num_chosen", _I),
        ("activation", _I),
        ("scales_inputs", _I),
    )


class CppExperts:
    """An ExpertsFunction: the experts' outputs are added in float32, in the order of experts."""

    def __init__(
        self,
        library: Library,
        dtype: torch.dtype,
        ups: Sequence[CppLinear],
        downs: Sequence[CppLinear],
        activation: ActivationKind,
        routing: Routing,
    ) -> None:
        """dtype: of activations. ups [size or 2 * size, hidden] and downs [hidden, size]: of one form each."""
        self._owners = (ups, downs)
        self._experts = (_Expert * len(ups))(
            *(_Expert(_matrix(up), _matrix(down)) for up, down in zip(ups, downs, strict=True))
        )
        self._mixture = _Mixture(
            ctypes.addressof(self._experts), len(ups), routing.num_chosen, activation, routing.scales_inputs
        )
        self._num_outputs = downs[0].num_outputs
        self._routing = routing
        self._num_threads = library.num_threads
        self._choose = library.function("choose_experts", dtype)
        self._mix = library.function("mix_experts", dtype)

    @classmethod
    def of(
        cls, library: Library, dtype: torch.dtype, experts: Sequence[ExpertParts], routing: Routing
    ) -> "CppExperts | None":
        """None where an operator is not of the library, or where experts differ in size or form."""
        ups = [expert.up for expert in experts if isinstance(expert.up, CppLinear)]
        downs = [expert.down for expert in experts if isinstance(expert.down, CppLinear)]
        kinds = [expert.activation.kind for expert in experts if isinstance(expert.activation, CppActivation)]
        if not len(ups) == len(downs) == len(kinds) == len(experts):
            return None
        if any(len(set(forms)) > 1 for forms in (map(_form, ups), map(_form, downs), kinds)):
            return None
        return cls(library, dtype, ups, downs, kinds[0], routing)

    def __call__(self, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """x [T, hidden], scores [T, experts] -> [T, hidden]."""
        assert x.stride(1) == 1
        assert scores.stride(1) == 1
        num_tokens, routing = len(x), self._routing
        if routing.is_plain:
            chosen = torch.empty((num_tokens, routing.num_chosen), dtype=torch.int32)
            weights = torch.empty((num_tokens, routing.num_chosen))
            self._choose(
                scores.data_ptr(), scores.stride(0), chosen.data_ptr(), weights.data_ptr(), *scores.shape,
                routing.num_chosen, routing.sums_to_one, self._num_threads,
            )  # fmt: skip
        else:
            chosen, weights = (part.contiguous() for part in choose_experts(scores, routing))
        y = torch.empty((num_tokens, self._num_outputs), dtype=x.dtype)
        self._mix(
            ctypes.addressof(self._mixture), x.data_ptr(), x.stride(0), chosen.data_ptr(), weights.data_ptr(),
            y.data_ptr(), num_tokens, self._num_threads,
        )  # fmt: skip
        return y


def _matrix(linear: CppLinear) -> _Matrix:
    return _Matrix(
        address(linear.packed),
        address(linear.bias),
        linear.grouped_address,
        linear.num_inputs,
        linear.num_outputs,
    )


def _form(linear: CppLinear) -> tuple[object, ...]:
    """What the matrices of all experts must agree in."""
    sizes = linear.num_inputs, linear.num_outputs, linear.row_bytes, linear.block_bytes
    return sizes if not isinstance(linear, CppGroupedLinear) else (*sizes, linear.bits, linear.has_book)
