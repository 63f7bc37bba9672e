"""Freed memory is kept for the next allocations."""

import subprocess
import sys

#: Intermediates of a layer, of less than 32 MiB each and 41 together; prints the page faults of one layer after some.
_LAYERS = """
import resource, sys, torch
from engine.runner.free_heap import keep_free_heap
if sys.argv[1] == "kept":
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


def _faults(how: str) -> int:
    command = [sys.executable, "-c", _LAYERS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_a_layer_that_allocates_what_another_has_freed_causes_no_page_faults() -> None:
    assert _faults("kept") < 100
    assert _faults("as glibc does") > 1000
