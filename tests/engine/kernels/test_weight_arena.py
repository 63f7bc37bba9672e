import torch

from engine.kernels.cpu.weight_arena import WeightArena


def test_tensors_do_not_overlap_and_start_on_cache_lines() -> None:
    arena = WeightArena()
    tensors = [
        arena.empty(count, dtype) for count, dtype in ((7, torch.int8), (100, torch.bfloat16), (3, torch.float32))
    ]
    for value, tensor in enumerate(tensors):
        tensor.fill_(value)
    assert [tensor.unique().tolist() for tensor in tensors] == [[0], [1], [2]]
    assert all(tensor.data_ptr() % 64 == 0 for tensor in tensors)


def test_what_is_larger_than_a_block_gets_one_of_its_own() -> None:
    arena = WeightArena()
    small, large, after = (arena.empty(count, torch.uint8) for count in (10, 70 << 20, 10))
    assert len(large) == 70 << 20
    large[-1] = 1
    small.fill_(2)
    after.fill_(3)
    assert large[-1] == 1


def test_memory_outlives_the_arena() -> None:
    tensor = WeightArena().empty(1000, torch.float32)
    tensor.fill_(1.5)
    assert tensor.sum() == 1500
