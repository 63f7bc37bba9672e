"""Names of pages by content: the key of a full page depends on its tokens and, through the previous page's key, on all
earlier tokens.

BLAKE2b with 128 bits, because prompts are untrusted: with a hash that can be made to collide, one user's request could
read another user's pages. The name also contains the content, and names are compared as a whole.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Self

from engine.memory.images import Images, ImageSpan

#: Key, and content: the token ids of the page as packed 64-bit integers, with the images that begin in it.
PageName = tuple[bytes, bytes]

_KEY_BYTES = 16


class PageChain:
    """Names of the full pages of one growing token sequence, for one page size.

    The salt gives users that must not share pages (tenants, adapters) different names from the first page on. An
    image changes the names from the page on that contains it, because placeholder tokens are the same for all images.
    """

    __slots__ = ("_images", "_page_tokens", "_root", "names")

    def __init__(self, page_tokens: int, salt: bytes = b"", images: Images = ()) -> None:
        self._page_tokens = page_tokens
        self._images = images
        self._root = blake2b(salt, digest_size=_KEY_BYTES, person=b"page chain").digest()
        self.names: list[PageName] = []

    def extend(self, token_ids: Sequence[int], num_pages: int) -> None:
        """Compute the names of the first num_pages pages. The tokens of pages with names must not have changed."""
        page_tokens, names = self._page_tokens, self.names
        if num_pages <= len(names):
            return
        key = names[-1][0] if names else self._root
        for index in range(len(names), num_pages):
            content = array("q", token_ids[index * page_tokens : (index + 1) * page_tokens]).tobytes()
            assert len(content) == 8 * page_tokens, "only full pages have names"
            for image in self._images:
                if index * page_tokens <= image.position < (index + 1) * page_tokens:
                    content += image.position.to_bytes(8, "little") + image.key
            key = blake2b(key + content, digest_size=_KEY_BYTES).digest()
            names.append((key, content))

    def copy(self, num_pages: int) -> Self:
        """A chain for a sequence with the same tokens in its first num_pages pages."""
        other = object.__new__(type(self))
        other._page_tokens, other._root, other._images = self._page_tokens, self._root, self._images
        other.names = self.names[:num_pages]
        return other


def image_page_name(image: ImageSpan, index: int, page_tokens: int, salt: bytes) -> PageName:
    """Name of page `index` of an image. It does not depend on the text, so the image may be at any position."""
    content = b"".join((index.to_bytes(8, "little"), page_tokens.to_bytes(8, "little"), image.key))
    root = blake2b(salt, digest_size=_KEY_BYTES, person=b"image pages").digest()
    return blake2b(root + content, digest_size=_KEY_BYTES).digest(), content
