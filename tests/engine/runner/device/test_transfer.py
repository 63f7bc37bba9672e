"""What goes to the device and back: one copy each way, from memory that is not written too early."""

import numpy as np
import torch

from engine.runner.device.transfer import Download, Upload

CPU = torch.device("cpu")


def upload(extra_bytes: int = 256) -> Upload:
    return Upload({"wide": np.int64, "narrow": np.float32}, 5, extra_bytes, CPU)


def test_a_step_brings_columns_and_arrays_of_any_type() -> None:
    sent = upload()
    sent.begin()
    sent.column("wide")[:] = [1, -2, 2**62, 4, 5]
    sent.column("narrow")[:3] = [0.5, 1.5, 2.5]
    pages = sent.put(np.array([7, 8, 9], np.int32))
    empty = sent.put(np.array([], np.int64))
    tokens = sent.put(np.array([2**40], np.int64))
    assert tokens.tolist() == [0], "nothing is there before it is sent"
    sent.send()
    assert sent.columns["wide"].tolist() == [1, -2, 2**62, 4, 5]
    assert sent.columns["narrow"][:3].tolist() == [0.5, 1.5, 2.5]
    assert (pages.tolist(), empty.tolist(), tokens.tolist()) == ([7, 8, 9], [], [2**40])


def test_columns_keep_their_address_and_the_host_writes_to_two_places_in_turn() -> None:
    sent = upload()
    addresses = [column.data_ptr() for column in sent.columns.values()]
    places = []
    for step in range(4):
        sent.begin()
        sent.put(np.arange(step, dtype=np.int64))
        places.append(sent.column("wide").ctypes.data)
        sent.send()
    assert [column.data_ptr() for column in sent.columns.values()] == addresses
    assert places[0] == places[2] != places[1] == places[3]
    assert all(address % 16 == 0 for address in addresses)


def test_what_finds_no_room_goes_by_itself() -> None:
    sent = upload(extra_bytes=64)
    sent.begin()
    large, small = np.arange(1000, dtype=np.int64), np.arange(8, dtype=np.int64)
    arrays = [sent.put(large), sent.put(small)]
    sent.send()
    large[:] = 0
    assert torch.equal(arrays[0], torch.arange(1000))
    assert torch.equal(arrays[1], torch.arange(8))


def test_tokens_come_back_as_they_were_when_the_copy_was_started() -> None:
    download, tokens, top = Download(64, CPU), torch.tensor([3, 1, 2]), torch.tensor([[0.5, 1.5], [2.5, 3.5]])
    download.start(tokens, top)
    tokens[:] = 0
    top[:] = 0
    assert [array.tolist() for array in download.wait()] == [[3, 1, 2], [[0.5, 1.5], [2.5, 3.5]]]
    download.start(tokens)
    assert [array.tolist() for array in download.wait()] == [[0, 0, 0]]
