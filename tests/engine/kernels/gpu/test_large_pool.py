"""Offsets beyond 2^31 elements and beyond 2^31 words of eight bytes. Without a device the pool is a sparse file, so
only touched pages take memory."""

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.kernels import gpu
from engine.kernels.step_kernels import AttentionOptions, SplitWorkspace

NUM_PAGES, PAGE_ELEMENTS = 4200, 2**21  # 8.8e9 elements of two bytes, 2.2e9 words


@pytest.mark.first_minutes
def test_pages_behind_two_thousand_million_elements_are_written_copied_gathered_and_read(
    tmp_path: Path, device: torch.device
) -> None:
    if device.type == "cpu":
        pool = torch.from_numpy(np.memmap(tmp_path / "pool", np.int16, "w+", shape=(NUM_PAGES * PAGE_ELEMENTS,)))
    else:
        if torch.cuda.get_device_properties(0).total_memory < 24 * 2**30:
            pytest.skip("needs a CUDA device with 24 GiB")
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
    gpu.scatter_pages(rows, torch.tensor([last - 2], device=device), staging)
    assert torch.equal(rows[last - 2], staging[0])

    query, output = qkv[:1, :1].expand(1, 2, 16).contiguous(), torch.empty(1, 2, 16, dtype=torch.float16, device=device)
    table, slots, lengths = torch.tensor([[last], [0], [4]], dtype=torch.int32, device=device)
    workspace = SplitWorkspace.allocate(1, 2, 1, 16, device)
    options = AttentionOptions(scale=0.5)
    gpu.attend_decode(query, layer, table[None], slots, lengths, output, options, workspace)
    key, value = layer[last, :, 0].float()
    expected = ((query[0].float() @ key.T) * 0.5).softmax(-1) @ value
    torch.testing.assert_close(output[0].float(), expected, atol=2e-3, rtol=2e-3)
