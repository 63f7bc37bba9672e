"""What the page cache keeps for one sequence: its pages, how far they are written, and their names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engine.memory.hashing import PageChain, PageName, image_page_name
from engine.memory.images import Images, ImageSpan
from engine.memory.lockstep import LockstepGroup
from engine.memory.small_pool import RequestKey


@dataclass(slots=True, eq=False)
class SequenceTables:
    """Lists have one entry per lockstep group. Pages cover positions [0, num_slots), data is in [0, num_filled)."""

    request: RequestKey
    pages: list[list[int]]
    first_live: list[int]  # entries before this index are NULL_PAGE: dropped, or never needed
    num_published: list[int]
    chains: dict[int, PageChain]  # by page size
    image_names: dict[int, list[PageName]] = field(default_factory=dict)  # by page size, computed on first use
    images: Images = ()
    salt: bytes = b""
    num_slots: int = 0
    num_filled: int = 0
    next_boundary: int = 0  # nothing to publish or drop before that many tokens are filled
    may_share_tail: bool = False
    last_access: int = 0
    #: Length at which this text differs from all cached earlier ones, by full attention: a likely end of later hits.
    branch: int = 0
    is_suspended: bool = False  # swapped out: it has no pages, but its length is kept
    is_new_text: bool = True  # no prefix of it was cached when it was admitted
    #: By recurrent group the newest checkpoint. Its state has been copied and its page given up, but the next turn of a
    #: conversation will look for it, so it counts as used until there is a newer one.
    checkpoints: dict[int, tuple[int, PageName]] = field(default_factory=dict)

    def page_name(self, group: LockstepGroup, token_ids: Sequence[int], index: int) -> PageName:
        """The name of page `index` of the sequence: the content that it must hold."""
        return self.page_names(group, token_ids, index, index + 1)[0]

    def page_names(self, group: LockstepGroup, token_ids: Sequence[int], first: int, end: int) -> list[PageName]:
        """Names of the pages [first, end)."""
        if group.has_images:
            return self._names_of_images(group.page_tokens)[first:end]
        chain = self.chains[group.page_tokens]
        chain.extend(token_ids, end)
        return chain.names[first:end]

    def _names_of_images(self, size: int) -> list[PageName]:
        names = self.image_names.get(size)
        if names is None:
            names = self.image_names[size] = [
                image_page_name(image, index, size, self.salt)
                for image in self.images
                for index in range(-(-image.num_tokens // size))
            ]
        return names

    def missing_images(self, group: LockstepGroup, end: int) -> Iterator[tuple[int, ImageSpan]]:
        """Images before position `end` without table entries, each with the index that its first entry will have."""
        first = 0
        for image in self.images:
            if image.position < end and first >= len(self.pages[group.index]):
                yield first, image
            first += -(-image.num_tokens // group.page_tokens)

    def copy_to(self, other: "SequenceTables") -> None:
        """Give another sequence the same pages, text and images; its request stays."""
        other.pages = [list(pages) for pages in self.pages]
        other.first_live, other.num_published = list(self.first_live), list(self.num_published)
        # A chain may have names of pages that are not filled yet, where the other sequence may have other tokens.
        other.chains = {size: chain.copy(self.num_filled // size) for size, chain in self.chains.items()}
        other.images, other.salt = self.images, self.salt
        other.num_slots, other.num_filled, other.next_boundary = self.num_slots, self.num_filled, self.next_boundary
        other.branch, other.is_new_text, other.checkpoints = self.branch, self.is_new_text, dict(self.checkpoints)
