"""Images of a prompt as pages see them: position, size in tokens, and a key for the content."""

from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """One image. The text refers to it at `position`; where images are tokens of the text they fill the
    `num_text_tokens` positions from there on (0 where layers reach them by cross attention)."""

    position: int
    num_tokens: int
    key: bytes  #: names the content: equal keys, equal pixels
    num_text_tokens: int = 0

    @property
    def end(self) -> int:
        """First position of the text behind the image."""
        return self.position + self.num_text_tokens

    @property
    def eviction_prefix(self) -> int:
        """A prefix length for eviction that all pages of the image share, so that they are evicted together (Jenga
        section 5.3). It is a hash of the content, so that runs are repeatable."""
        return int.from_bytes(blake2b(self.key, digest_size=3, person=b"image prefix").digest(), "little")


Images = tuple[ImageSpan, ...]  #: of one prompt, by position
