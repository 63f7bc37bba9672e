"""Layers whose pages hold images: cross attention, and the cache of vision embeddings.

The table has the prompt's images one after another, each from a new page on. So an image is a run of whole pages, and
prompts that have it at any position can share them. An image is computed as a whole: its pages are allocated before the
step that reaches its position, and final after it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from engine.memory.images import Images, ImageSpan


@dataclass(frozen=True, slots=True)
class _ByImage:
    page_tokens: int

    def pages_of(self, image: ImageSpan) -> int:
        return -(-image.num_tokens // self.page_tokens)

    def num_entries(self, num_tokens: int, images: Images) -> int:
        return sum(self.pages_of(image) for image in images if image.position < num_tokens)

    def capacity(self, num_entries: int, images: Images) -> int:
        for image in images:
            num_entries -= self.pages_of(image)
            if num_entries < 0:
                return image.position
        return sys.maxsize

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        return self.num_entries(num_tokens, images)

    def first_written_page(self, position: int, images: Images) -> int:
        return self.num_entries(position, images)

    def num_complete(self, num_computed: int, images: Images) -> int:
        return self.num_entries(num_computed, images)

    def chunk_end(self, start: int, end: int) -> int:
        return end

    def _first_page(self, which: int, images: Images) -> int:
        return sum(map(self.pages_of, images[:which]))

    def _is_whole(self, which: int, images: Images, is_cached: Callable[[int], bool]) -> bool:
        first = self._first_page(which, images)
        return all(map(is_cached, range(first, first + self.pages_of(images[which]))))


@dataclass(frozen=True, slots=True)
class CrossPolicy(_ByImage):
    """Cross attention: every later token reads every image; a hit ends before the first image not wholly cached."""

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        """All pages: every later token reads every image."""
        return self.num_entries(num_tokens, images)

    def first_live_page(self, num_computed: int, images: Images) -> int:
        """0: no page is dropped."""
        return 0

    def next_event(self, num_computed: int, images: Images) -> int:
        """Behind the position of the next image."""
        return min((image.position + 1 for image in images if image.position >= num_computed), default=sys.maxsize)

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        """Ends before the first image that is not wholly cached."""
        for which, image in enumerate(images):
            if image.position >= max_tokens:
                break
            if not self._is_whole(which, images, is_cached):
                return image.position
        return max_tokens


@dataclass(frozen=True, slots=True)
class VisionPolicy(_ByImage):
    """An image's embeddings are read while its own tokens are computed, and then dropped (Jenga section 6.2).

    So a prefix may end inside an image only if that image is wholly cached. Images before its end need no embeddings:
    their keys and values are in the pages of the other types.
    """

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        """0: embeddings are dropped behind the image."""
        return 0

    def first_live_page(self, num_computed: int, images: Images) -> int:
        """The first page of the first image that is not computed to its end."""
        return sum(
            self.pages_of(image) for image in images if image.position < num_computed and image.end <= num_computed
        )

    def next_event(self, num_computed: int, images: Images) -> int:
        """The beginning or the end of an image's tokens."""
        steps = (level for image in images for level in (image.position + 1, image.end))
        return min((level for level in steps if level > num_computed), default=sys.maxsize)

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        """Ends before an image that the prefix would cut and that is not wholly cached."""
        for which, image in enumerate(images):
            if image.position < max_tokens < image.end and not self._is_whole(which, images, is_cached):
                return image.position
        return max_tokens
