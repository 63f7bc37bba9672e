"""Gives freed heap memory back to the system: reading weights frees much, which glibc would keep."""

import ctypes


def return_free_heap() -> None:
    """Return what glibc keeps of freed memory; without effect with other C libraries. A few milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
