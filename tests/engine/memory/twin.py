"""A naive twin of the page cache: it stores the content of every page, and finds hits by definition.

Everything is recomputed from scratch: contents are prefixes of token sequences, a hit is found by trying all lengths.
Slow, short, and without a line in common with the real thing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.memory.growth import Extension
from engine.memory.images import Images
from engine.memory.kv_cache import KVCache
from engine.memory.spec import NULL_PAGE, LayerType

Content = dict[int, object]  # slot in a page -> what is in it


def prefix(tokens: Sequence[int], images: Images, length: int) -> object:
    """What keys, values and states behind that many tokens depend on."""
    return tuple(tokens[:length]), tuple(image.key for image in images if image.position < length)


@dataclass
class Twin:
    cache: KVCache
    memory: list[dict[int, Content]] = field(init=False)

    def __post_init__(self) -> None:
        self.memory = [{} for _ in self.cache.plan.types]

    def copy(self, extension: Extension) -> None:
        sources = {(copy.layer_type, copy.src) for copy in extension.copies}
        targets = [(copy.layer_type, copy.dst) for copy in extension.copies]
        assert not sources & set(targets)
        assert len(set(targets)) == len(targets)
        for copy in extension.copies:
            self.memory[copy.layer_type][copy.dst] = dict(self.memory[copy.layer_type].get(copy.src, {}))

    def write(self, sequence: int, tokens: Sequence[int], images: Images, start: int, end: int) -> None:
        """Compute positions [start, end): read what they need, which must be there, and write what they add."""
        tables = self.cache.page_table(sequence)
        for which, kind in enumerate(self.cache.plan.types):
            pages, memory, size = tables[which], self.memory[which], kind.page_tokens
            match kind.spec.kind:
                case "recurrent":
                    assert start // size == (end - 1) // size, "a step crosses a checkpoint"
                    page = pages[start // size]
                    state = memory.get(page, {}).get(0) if start else prefix((), (), 0)
                    assert state == prefix(tokens, images, start), "the running state is another one's"
                    memory[page] = {0: prefix(tokens, images, end)}
                case "budgeted":
                    assert len(pages) * size >= min(end, kind.spec.span)
                    assert NULL_PAGE not in pages
                case "cross" | "vision":
                    for entry, name in self._image_entries(kind, images):
                        image = next(image for image in images if image.key == name[0])
                        if start <= image.position < end:
                            held = memory.get(pages[entry], {}).get(0)
                            assert held in (None, name) or pages[entry] not in self._published_pages(which)
                            memory[pages[entry]] = {0: name}
                        is_read = image.position < end and (kind.spec.kind == "cross" or image.end > start)
                        assert not is_read or memory[pages[entry]] == {0: name}
                case _:
                    for position in range(start, end):
                        assert pages[position // size] != NULL_PAGE
                        content = memory.setdefault(pages[position // size], {})
                        content[position % size] = prefix(tokens, images, position + 1)
                    for position in range(self._first_read(kind, start), end):
                        content = memory[pages[position // size]]
                        assert content[position % size] == prefix(tokens, images, position + 1), "another one's tokens"

    def longest_hit(self, tokens: Sequence[int], images: Images, max_tokens: int) -> int:
        """The longest length at which every type finds all pages it needs, by trying every length."""
        cached = [self._published(which) for which in range(len(self.memory))]
        for length in range(max_tokens, 0, -1):
            if all(self._is_valid(which, cached[which], tokens, images, length) for which in range(len(self.memory))):
                return length
        return 0

    def _is_valid(self, which: int, cached: list[Content], tokens: Sequence[int], images: Images, length: int) -> bool:
        kind = self.cache.plan.types[which]
        size = kind.page_tokens
        match kind.spec.kind:
            case "budgeted":
                return False
            case "recurrent":
                return length % size == 0 and {0: prefix(tokens, images, length)} in cached
            case "cross" | "vision":
                is_cross = kind.spec.kind == "cross"
                needed = [
                    name
                    for image in images
                    for _, name in self._image_entries(kind, images)
                    if name[0] == image.key and image.position < length and (is_cross or image.end > length)
                ]
                return all({0: name} in cached for name in needed)
            case _:
                if length % size:
                    return False
                first = self._first_read(kind, length) // size
                wanted = [
                    {slot: prefix(tokens, images, page * size + slot + 1) for slot in range(size)}
                    for page in range(first, length // size)
                ]
                return all(content in cached for content in wanted)

    def _published(self, which: int) -> list[Content]:
        return [self.memory[which][page] for page in self._published_pages(which)]

    def _published_pages(self, which: int) -> list[int]:
        group = next(group for group in self.cache.groups if which in group.types)
        place = group.types.index(which)
        return [group.pool.beside(page)[place] for page in group.pool.published_pages()]

    def _first_read(self, kind: LayerType, position: int) -> int:
        match kind.spec.kind:
            case "window":
                return max(0, position - kind.spec.span + 1)
            case "chunked":
                return position // kind.spec.span * kind.spec.span
            case _:
                return 0

    def _image_entries(self, kind: LayerType, images: Images) -> list[tuple[int, tuple[bytes, int]]]:
        names = [(image.key, index) for image in images for index in range(-(-image.num_tokens // kind.page_tokens))]
        return list(enumerate(names))
