"""Records parts of decoder layers as steps, if all their operators are C++ ones. Computes nothing.

It refuses a part with other operators (a mixture of experts, a product that is summed over processes); the layers then
run that part themselves.
"""

from engine.kernels.cpu.functions import CppActivation, CppLinear, CppNorm, address
from engine.kernels.cpu.steps import STREAM, UPDATE, Kind, StepList
from engine.kernels.operators import Activation, HeadNormWeights, LinearFunction, NormFunction


class CppRecorder:
    """The Recorder of C++ operators; what it has recorded is in `steps`."""

    def __init__(self, panel_outputs: int) -> None:
        """panel_outputs: number of outputs in a panel of packed weights."""
        self._panel_outputs = panel_outputs
        self.steps = StepList()

    def attention(
        self,
        norm: NormFunction,
        qkv: LinearFunction,
        layer_id: int,
        rotation: int | None,
        head_norms: HeadNormWeights | None,
        output: LinearFunction,
        output_norm: NormFunction | None,
        *,
        has_update: bool,
    ) -> bool:
        """As Recorder.attention."""
        if not (isinstance(norm, CppNorm) and isinstance(qkv, CppLinear) and isinstance(output, CppLinear)):
            return False
        if not isinstance(output_norm, CppNorm | None):
            return False
        normed = self._norm(norm, STREAM, UPDATE if has_update else -1)
        projected = self.steps.buffer("wide", qkv.num_outputs)
        attended = self.steps.buffer("narrow", output.num_inputs)
        self._linear(qkv, normed, projected)
        self.steps.add_attention(layer_id, rotation, head_norms, input=projected, output=attended)
        self._output(output, attended, output_norm)
        return True

    def feed_forward(
        self,
        norm: NormFunction,
        up: LinearFunction,
        activation: Activation,
        down: LinearFunction,
        output_norm: NormFunction | None,
        *,
        is_parallel: bool,
    ) -> bool:
        """As Recorder.feed_forward."""
        if not (isinstance(norm, CppNorm) and isinstance(up, CppLinear) and isinstance(down, CppLinear)):
            return False
        if not (isinstance(activation, CppActivation) and isinstance(output_norm, CppNorm | None)):
            return False
        normed = self._norm(norm, STREAM, -1 if is_parallel else UPDATE)
        wide = self.steps.buffer("wide", up.num_outputs)
        narrow = self.steps.buffer("narrow", down.num_inputs)
        # The thread that has computed a panel of gates and the panel of their ups also computes the activation.
        if not activation.kind.is_gated or down.num_inputs % self._panel_outputs == 0:
            self._linear(up, normed, wide, activation=activation.kind, activated=narrow)
        else:
            self._linear(up, normed, wide)
            self.steps.add(
                Kind.ACTIVATE, input=wide, output=narrow, num_outputs=down.num_inputs, activation=activation.kind
            )
        if is_parallel:
            assert output_norm is None
            beside = self.steps.buffer("beside", down.num_outputs)
            self._linear(down, narrow, beside)
            self.steps.add(Kind.ADD, input=beside, output=UPDATE, num_inputs=down.num_outputs)
        else:
            self._output(down, narrow, output_norm)
        return True

    def _output(self, linear: CppLinear, source: int, norm: CppNorm | None) -> None:
        """Record a linear into the update, followed by the norm if there is one."""
        if norm is None:
            self._linear(linear, source, UPDATE)
            return
        raw = self.steps.buffer("raw", linear.num_outputs)
        self._linear(linear, source, raw)
        self._norm(norm, raw, -1, UPDATE)

    def _norm(self, norm: CppNorm, source: int, update: int, target: int | None = None) -> int:
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

    def _linear(self, linear: CppLinear, source: int, target: int, **then: int) -> None:
        self.steps.owners.append(linear)
        self.steps.widest_input = max(self.steps.widest_input, linear.row_bytes)
        self.steps.scale_bytes = max(self.steps.scale_bytes, linear.scale_bytes)
        self.steps.add(
            Kind.LINEAR,
            input=source,
            output=target,
            num_inputs=linear.num_inputs,
            num_outputs=linear.num_outputs,
            weight=address(linear.packed),
            bias=address(linear.bias),
            grouped=linear.grouped_address,
            output_scales=address(linear.output_scales),
            output_sums=address(linear.output_sums),
            **then,
        )
