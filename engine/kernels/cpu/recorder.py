"""Records parts of decoder layers as steps, if all their operators are C++ ones. Computes nothing.

It refuses a part with other operators (a mixture of experts, a product that is summed over processes); the layers then
run that part themselves. Layers that can have adapters are recorded twice: for steps without adapters as if there were
none, and with the adapters' updates after each product.
"""

from dataclasses import dataclass

from engine.kernels.cpu.adapters import CppAdapterProduct
from engine.kernels.cpu.functions import CppActivation, CppLinear, CppNorm, address
from engine.kernels.cpu.steps import STREAM, UPDATE, Kind, StepList
from engine.kernels.operators import Activation, Adapted, HeadNormWeights, NormFunction


class CppRecorder:
    """The Recorder of C++ operators; what it has recorded is in `steps` and `adapted_steps`."""

    has_adapters = True

    def __init__(self, panel_outputs: int) -> None:
        """panel_outputs: number of outputs in a panel of packed weights."""
        self._panel_outputs = panel_outputs
        self.steps = StepList()
        self.adapted_steps = StepList()  #: for steps of which some rows have adapters

    def attention(
        self,
        norm: NormFunction,
        qkv: Adapted,
        layer_id: int,
        rotation: int | None,
        head_norms: HeadNormWeights | None,
        output: Adapted,
        output_norm: NormFunction | None,
        *,
        has_update: bool,
    ) -> bool:
        """As Recorder.attention."""
        heads, out = _linear_of(qkv), _linear_of(output)
        if heads is None or out is None or not isinstance(norm, CppNorm) or not isinstance(output_norm, CppNorm | None):
            return False
        for writer in self._writers():
            steps = writer.steps
            normed = writer.norm(norm, STREAM, UPDATE if has_update else -1)
            projected = steps.buffer("wide", heads.product.num_outputs)
            attended = steps.buffer("narrow", out.product.num_inputs)
            writer.linear(heads, normed, projected)
            steps.add_attention(layer_id, rotation, head_norms, input=projected, output=attended)
            writer.output(out, attended, output_norm)
        return True

    def feed_forward(
        self,
        norm: NormFunction,
        up: Adapted,
        activation: Activation,
        down: Adapted,
        output_norm: NormFunction | None,
        *,
        is_parallel: bool,
    ) -> bool:
        """As Recorder.feed_forward."""
        ups, downs = _linear_of(up), _linear_of(down)
        if ups is None or downs is None or not isinstance(norm, CppNorm):
            return False
        if not (isinstance(activation, CppActivation) and isinstance(output_norm, CppNorm | None)):
            return False
        num_outputs, size = downs.product.num_outputs, downs.product.num_inputs
        for writer in self._writers():
            steps = writer.steps
            normed = writer.norm(norm, STREAM, -1 if is_parallel else UPDATE)
            wide, narrow = steps.buffer("wide", ups.product.num_outputs), steps.buffer("narrow", size)
            # The thread that has computed a panel of gates and the panel of their ups also computes the activation.
            has_whole_panels = not activation.kind.is_gated or size % self._panel_outputs == 0
            if has_whole_panels and not writer.adapts(ups):
                writer.linear(ups, normed, wide, activation=activation.kind, activated=narrow)
            else:
                writer.linear(ups, normed, wide)
                steps.add(Kind.ACTIVATE, input=wide, output=narrow, num_outputs=size, activation=activation.kind)
            if is_parallel:
                assert output_norm is None
                beside = steps.buffer("beside", num_outputs)
                writer.linear(downs, narrow, beside)
                steps.add(Kind.ADD, input=beside, output=UPDATE, num_inputs=num_outputs)
            else:
                writer.output(downs, narrow, output_norm)
        return True

    def _writers(self) -> "tuple[_Writer, _Writer]":
        return _Writer(self.steps, is_adapted=False), _Writer(self.adapted_steps, is_adapted=True)


@dataclass(frozen=True, slots=True)
class _Linear:
    product: CppLinear
    adapters: CppAdapterProduct | None


def _linear_of(linear: Adapted) -> _Linear | None:
    """None: one of the two is no C++ operator."""
    multiply, adapters = linear
    if not (isinstance(multiply, CppLinear) and isinstance(adapters, CppAdapterProduct | None)):
        return None
    return _Linear(multiply, adapters)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Appends the steps of operators to a list."""

    steps: StepList
    is_adapted: bool  #: products are followed by the updates of adapters

    def adapts(self, linear: _Linear) -> bool:
        """Whether updates follow this product."""
        return self.is_adapted and linear.adapters is not None

    def output(self, linear: _Linear, source: int, norm: CppNorm | None) -> None:
        """Record a linear into the update, followed by the norm if there is one."""
        if norm is None:
            self.linear(linear, source, UPDATE)
            return
        raw = self.steps.buffer("raw", linear.product.num_outputs)
        self.linear(linear, source, raw)
        self.norm(norm, raw, -1, UPDATE)

    def norm(self, norm: CppNorm, source: int, update: int, target: int | None = None) -> int:
        """Record a norm; returns the buffer of its output."""
        size = len(norm.scales)
        output = self.steps.buffer("normed", size) if target is None else target
        self.steps.owners.append(norm)
        self.steps.add(
            Kind.NORM,
            input=source,
            update=update,
            output=output,
            num_inputs=size,
            weight=norm.scales.data_ptr(),
            bias=address(norm.shifts),
            eps=norm.eps,
        )
        return output

    def linear(self, linear: _Linear, source: int, target: int, **then: int) -> None:
        """Record a product and the updates of its adapters. then: the activation of its outputs."""
        product, adapters = linear.product, linear.adapters
        self.steps.owners.append(product)
        self.steps.widest_input = max(self.steps.widest_input, product.row_bytes)
        self.steps.block_bytes = max(self.steps.block_bytes, product.block_bytes)
        sizes = {"num_inputs": product.num_inputs, "num_outputs": product.num_outputs}
        self.steps.add(
            Kind.LINEAR,
            input=source,
            output=target,
            weight=address(product.packed),
            bias=address(product.bias),
            grouped=product.grouped_address,
            **sizes,
            **then,
        )
        if self.is_adapted and adapters is not None:
            self.steps.owners.append(adapters)
            self.steps.add(Kind.ADAPT, input=source, output=target, weight=adapters.slots_address, **sizes)
