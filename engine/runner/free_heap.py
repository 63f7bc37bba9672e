"""What glibc keeps of freed heap memory; without effect with other C libraries.

Layers that run operator by operator allocate and free their intermediates, tens of megabytes, again and again. Without
a word glibc gives such memory back after each of them, and zeroing it anew takes longer than some operators: 20,000 to
30,000 page faults for a prompt of 2,048 tokens of eight layers of Qwen3.5-0.8B.
"""

import ctypes

#: Options of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 2**20  #: that mallopt takes
_KEPT_BYTES = 2 * _LARGEST_MMAP_THRESHOLD


def keep_free_heap() -> None:
    """Keep up to 64 MiB of freed memory for the next allocations, of up to 32 MiB each: for the whole process. These
    are the thresholds that glibc itself ends with where such blocks are freed; they are set before."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        set_option(_TRIM_THRESHOLD, _KEPT_BYTES)


def return_free_heap() -> None:
    """Return what glibc keeps: reading weights frees much. A few milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
