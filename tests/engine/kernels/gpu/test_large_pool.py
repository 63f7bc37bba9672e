"""Offsets into a pool of more than 2^31 elements: the file behind it is sparse, only what is touched takes memory."""

from pathlib import Path

import numpy as np
import torch

from engine.kernels import gpu

NUM_PAGES, PAGE_ELEMENTS = 1600, 2**21  # 3.4e9 elements


def test_pages_behind_two_thousand_million_elements_are_written_copied_and_gathered(
    tmp_path: Path, device: torch.device
) -> None:
    if device.type == "cpu":
        pool = torch.from_numpy(np.memmap(tmp_path / "pool", np.int16, "w+", shape=(NUM_PAGES * PAGE_ELEMENTS,)))
    else:
        pool = torch.zeros(NUM_PAGES * PAGE_ELEMENTS, dtype=torch.int16, device=device)
    strides = (PAGE_ELEMENTS, 2**20, 2**19, 16, 1)
    layer = pool.view(torch.float16).as_strided((NUM_PAGES, 2, 1, 4, 16), strides)
    qkv = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0)).half().to(device)
    last = NUM_PAGES - 1
    gpu.store_heads(qkv, None, None, None, None, 0.0, layer, torch.tensor([last * 4 + 3, 1024 * 4], device=device))
    assert torch.equal(layer[last, :, 0, 3], qkv[0, 1:])
    assert torch.equal(layer[1024, :, 0, 0], qkv[1, 1:])

    rows = pool.as_strided((NUM_PAGES, 64), (PAGE_ELEMENTS, 1))  # the beginning of each page
    gpu.copy_pages(rows, torch.tensor([last], device=device), torch.tensor([last - 1], device=device))
    staging = torch.empty(1, 64, dtype=torch.int16, device=device)
    gpu.gather_pages(rows, torch.tensor([last - 1], device=device), staging)
    assert torch.equal(staging[0, 48:].view(torch.float16), qkv[0, 1])
