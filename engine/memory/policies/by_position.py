"""What all kinds have in common whose table entry i covers the tokens [i * page_tokens, (i + 1) * page_tokens)."""

from dataclasses import dataclass

from engine.memory.images import Images


@dataclass(frozen=True, slots=True)
class ByPosition:
    page_tokens: int

    def num_entries(self, num_tokens: int, images: Images) -> int:
        return -(-num_tokens // self.page_tokens)

    def capacity(self, num_entries: int, images: Images) -> int:
        return num_entries * self.page_tokens

    def first_written_page(self, position: int, images: Images) -> int:
        return position // self.page_tokens

    def num_complete(self, num_computed: int, images: Images) -> int:
        return num_computed // self.page_tokens

    def chunk_end(self, start: int, end: int) -> int:
        return end

    def _page_end(self, num_computed: int) -> int:
        return (num_computed // self.page_tokens + 1) * self.page_tokens
