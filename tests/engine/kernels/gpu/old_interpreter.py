"""Triton 3.6's interpreter beside numpy 2.4: it makes a number of an array with one element, which numpy refuses now.
Triton 3.7 does not."""

from importlib.metadata import version
from typing import Any


def mend() -> None:
    """Let loops of kernels have bounds from memory; call it before the first kernel runs. Without effect elsewhere."""
    if not version("triton").startswith("3.6."):
        return
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_and_mend(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_and_mend
