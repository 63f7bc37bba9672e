"""Base of the policies whose table entry i covers the tokens [i * page_tokens, (i + 1) * page_tokens)."""

from dataclasses import dataclass

from engine.memory.images import Images


@dataclass(frozen=True, slots=True)
class ByPosition:
    """The part of LayerPolicy that follows from positions alone."""

    page_tokens: int

    def num_entries(self, num_tokens: int, images: Images) -> int:
        """One for each page_tokens tokens begun."""
        return -(-num_tokens // self.page_tokens)

    def capacity(self, num_entries: int, images: Images) -> int:
        """page_tokens positions for each entry."""
        return num_entries * self.page_tokens

    def first_written_page(self, position: int, images: Images) -> int:
        """The page of the position."""
        return position // self.page_tokens

    def num_complete(self, num_computed: int, images: Images) -> int:
        """Full pages are final."""
        return num_computed // self.page_tokens

    def chunk_end(self, start: int, end: int) -> int:
        """Chunks end anywhere."""
        return end

    def _page_end(self, num_computed: int) -> int:
        return (num_computed // self.page_tokens + 1) * self.page_tokens
