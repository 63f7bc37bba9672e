"""Ranks on a machine of several sockets."""

from pathlib import Path

import pytest

from engine.parallel.group import Place
from engine.parallel.sockets import cores_of

ALL = frozenset(range(8))


def machine(folder: Path, *lists: str) -> Path:
    for index, text in enumerate(lists):
        (folder / f"node{index}").mkdir()
        (folder / f"node{index}" / "cpulist").write_text(f"{text}\n")
    return folder


def shares(nodes: Path, size: int, allowed: frozenset[int] = ALL) -> list[set[int] | None]:
    found = [cores_of(Place(rank, size, rank, size), allowed, nodes) for rank in range(size)]
    return [None if cores is None else set(cores) for cores in found]


def test_each_rank_keeps_to_a_socket(tmp_path: Path) -> None:
    nodes = machine(tmp_path, "0-1,4-5", "2-3,6-7")
    assert shares(nodes, 2) == [{0, 1, 4, 5}, {2, 3, 6, 7}]
    assert shares(nodes, 2, frozenset({1, 2, 3})) == [{1}, {2, 3}], "no core that this process may not use"


def test_several_ranks_share_a_socket_and_several_sockets_make_a_rank(tmp_path: Path) -> None:
    nodes = machine(tmp_path, "0,4", "1,5", "2,6", "3,7")
    assert shares(nodes, 2) == [{0, 4, 1, 5}, {2, 6, 3, 7}]
    assert shares(nodes, 8) == [{0}, {4}, {1}, {5}, {2}, {6}, {3}, {7}]


@pytest.mark.parametrize("lists", [["0-7"], ["0-7", ""], ["0-3", "4-5", "6-7"]])
def test_where_there_is_nothing_to_deal_out_the_system_decides(tmp_path: Path, lists: list[str]) -> None:
    assert shares(machine(tmp_path, *lists), 2) == [None, None]


def test_a_machine_that_does_not_say_is_one_socket(tmp_path: Path) -> None:
    assert shares(tmp_path, 2) == [None, None]
