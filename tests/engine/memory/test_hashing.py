"""Names of pages: chained hashes of token ids, separated by salt."""

from collections.abc import Sequence

from engine.memory.hashing import PageChain


def keys(token_ids: Sequence[int], *, salt: bytes = b"", page_tokens: int = 2) -> list[bytes]:
    chain = PageChain(page_tokens, salt)
    chain.extend(token_ids, len(token_ids) // page_tokens)
    return [key for key, _ in chain.names]


def test_equal_prefixes_have_equal_keys_up_to_the_first_difference() -> None:
    left, right = keys([1, 2, 3, 4, 5, 6]), keys([1, 2, 9, 4, 5, 6])
    assert left[0] == right[0]
    assert left[1] != right[1]
    assert left[2] != right[2], "the key of a page depends on all pages before it"


def test_a_salt_separates_equal_texts() -> None:
    assert keys([1, 2]) != keys([1, 2], salt=b"tenant")


def test_a_chain_extended_in_parts_equals_one_extended_at_once() -> None:
    chain = PageChain(2)
    tokens = list(range(10))
    chain.extend(tokens, 1)
    chain.extend(tokens, 5)
    assert [key for key, _ in chain.names] == keys(tokens)


def test_a_copied_chain_goes_on_differently_after_the_copied_pages() -> None:
    chain = PageChain(2)
    chain.extend([1, 2, 3, 4], 2)
    other = chain.copy(1)
    other.extend([1, 2, 8, 8], 2)
    assert [key for key, _ in other.names] == keys([1, 2, 8, 8])
    assert [key for key, _ in chain.names] == keys([1, 2, 3, 4])
