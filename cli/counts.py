"""Counts with their noun, as the commands print them."""


def votes(count: int) -> str:
    """`1 vote`, `2,000 votes`."""
    return "1 vote" if count == 1 else f"{count:,} votes"
