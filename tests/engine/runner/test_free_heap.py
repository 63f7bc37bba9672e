"""Freed memory is kept for the next allocations."""

import os
import subprocess
import sys

#: Intermediates of a layer, of less than 32 MiB each and 41 together; prints the page faults of one layer after some.
_LAYERS = """
import resource, torch
from engine.runner.free_heap import keep_free_heap
keep_free_heap()
def layer():
    wide, narrow = torch.ones(5 << 20), torch.ones(4 << 20)
    return torch.ones(1 << 20)
for _ in range(5):
    layer()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    layer()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10)
"""


def test_a_layer_that_allocates_what_another_has_freed_causes_no_page_faults() -> None:
    """Whatever glibc would keep by itself: here it is told to keep nothing. How many faults that is, is up to the
    system's huge pages."""
    nothing = {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}
    command = [sys.executable, "-c", _LAYERS]
    done = subprocess.run(command, env=os.environ | nothing, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100
