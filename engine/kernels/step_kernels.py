"""The kernels of a CUDA step beside the layers' operators: they work on pages, page tables and a step's buffers.

Two packages have all of these functions, one file per operator: engine/kernels/gpu (Triton) and
engine/kernels/reference (plain torch, for CPU and for tests). Either package, as a module, is a StepKernels;
DeviceRunner is given one of them.

All inputs lie on the device in buffers whose addresses never change, so that a step can be captured as a CUDA graph;
grids depend on shapes and on bounds that the host knows. No function allocates unless it says so, and none waits for
the device. Padding rows have slot -1 and context length 0: they read and write nothing.

T = tokens of the step, B = rows (sequences of the step, with padding), S = slots, H, K = query and key/value heads,
D = head dimension, C = channels of a value, N = small pages, P = tokens in a page, V = vocabulary. Pages of a layer are
a strided view [N, 2 (key, value), K, P, D] of the pool with 64-bit strides: page stride, offset and base are multiples
of 16 elements; C is D. In multi-head latent attention pages hold keys alone, [N, 1, K, P, D]: values are their last C
channels, as many as outputs have.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class PageScales:
    """Factors that quantised keys and values (int8, float8_e4m3fn) are multiplied with: one for each token and
    key/value head, stored in the token's page. [N, K, P] float32, strided."""

    key: torch.Tensor
    value: torch.Tensor


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Options of one layer's attention; made by DeviceBackend."""

    scale: float  #: factor on query times key, positive
    window: int | None = None  #: tokens that a query reads, including its own; None: its whole context
    softcap: float | None = None  #: scores become softcap * tanh(score / softcap)
    alibi_slopes: torch.Tensor | None = None  #: [H] float32: slope * (key position - query position) is added
    sinks: torch.Tensor | None = None  #: [H] float32: a score that takes part in the softmax and has no value
    is_causal: bool = True  #: False: every query reads the whole context (cross attention, encoders)
    chunk: int | None = None  #: a query reads its own chunk of that many tokens, up to itself; beside no window

    @property
    def most_tokens(self) -> int | None:
        """Tokens that a query reads at most; None: its whole context."""
        return self.chunk if self.window is None else self.window


@dataclass(frozen=True, slots=True)
class SplitWorkspace:
    """Partial results (states) of contexts that are read in parts: allocated once, for the largest batch. Holds nothing
    between calls."""

    outputs: torch.Tensor  #: [rows, H, splits, C] float32
    lse: torch.Tensor  #: [rows, H, splits] float32: log of the sum of exponentials; -inf: the part was empty
    counts: torch.Tensor  #: [2, rows * splits] int32: number of states of each row, of those the ones of its prefix
    arrivals: torch.Tensor  #: [rows * H] int32: programs that have written their parts; zero between calls

    @classmethod
    def allocate(
        cls, num_rows: int, num_heads: int, num_splits: int, value_dim: int, device: torch.device
    ) -> "SplitWorkspace":
        """For rows of that many heads, in at most num_splits parts."""
        return cls(
            torch.empty((num_rows, num_heads, num_splits, value_dim), dtype=torch.float32, device=device),
            torch.empty((num_rows, num_heads, num_splits), dtype=torch.float32, device=device),
            torch.zeros((2, num_rows * num_splits), dtype=torch.int32, device=device),
            torch.zeros(num_rows * num_heads, dtype=torch.int32, device=device),
        )

    def shaped(self, num_rows: int, num_splits: int) -> "SplitWorkspace":
        """The same memory for more rows of fewer splits, or the reverse; no more than there are states."""
        _, num_heads, _, value_dim = self.outputs.shape
        outputs, lse = (num_rows, num_heads, num_splits, value_dim), (num_rows, num_heads, num_splits)
        size = num_rows * num_heads * num_splits
        return SplitWorkspace(
            self.outputs.view(-1)[: size * value_dim].view(outputs),
            self.lse.view(-1)[:size].view(lse),
            self.counts,
            self.arrivals,
        )


#: Number of neighbouring logits (a span) for which one maximum and one mass are kept: 2,000 of each for 128k logits.
SAMPLING_SPAN = 64
#: Scores among which the limits of top-k and top-p are found by comparing each with all others.
SAMPLING_CANDIDATES = 512


@dataclass(frozen=True, slots=True)
class SamplingWorkspace:
    """Figures of every span of logits: allocated once, for the largest batch. Holds nothing between calls."""

    maxima: torch.Tensor  #: [rows, spans] float32
    masses: torch.Tensor  #: [rows, spans] float32: sum of exponentials relative to the span's maximum
    chosen: torch.Tensor  #: [rows, spans] int32: spans that may hold tokens which truncation keeps, in order
    candidates: torch.Tensor  #: [rows, SAMPLING_CANDIDATES] float32: scores of these tokens, if they are few

    @classmethod
    def allocate(cls, num_rows: int, vocab_size: int, device: torch.device) -> "SamplingWorkspace":
        """For up to num_rows rows of logits."""
        shape = (num_rows, -(-vocab_size // SAMPLING_SPAN))
        maxima, masses = (torch.empty(shape, dtype=torch.float32, device=device) for _ in range(2))
        candidates = torch.empty((num_rows, SAMPLING_CANDIDATES), dtype=torch.float32, device=device)
        return cls(maxima, masses, torch.empty(shape, dtype=torch.int32, device=device), candidates)


#: int32 words of a slot's sampling parameters, in this order: temperature, top_k, top_p and min_p (floats by their
#: bits), the seed (two words, the lower half first), the counter of the slot's next random number less the length of
#: its context, and one word for alignment. The counter's difference does not change while a sequence has the slot.
SAMPLING_WORDS = 8


@dataclass(frozen=True, slots=True)
class SamplingColumns:
    """What `sample` reads beside the logits, one element for each row."""

    temperatures: torch.Tensor  #: [R] float32, 0: greedy
    top_k: torch.Tensor  #: [R] int32, 0: off
    top_p: torch.Tensor  #: [R] float32, 1: off
    min_p: torch.Tensor  #: [R] float32, 0: off
    seeds: torch.Tensor  #: [R] int64, the bits of an unsigned number
    counters: torch.Tensor  #: [R] int64: index of the random number of the seed

    @classmethod
    def allocate(cls, num_rows: int, device: torch.device) -> "SamplingColumns":
        """For up to num_rows rows, all greedy."""
        kinds = (torch.float32, torch.int32, torch.float32, torch.float32, torch.int64, torch.int64)
        return cls(*(torch.zeros(num_rows, dtype=kind, device=device) for kind in kinds))

    @property
    def all(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """In the order in which `sample` takes them."""
        return self.temperatures, self.top_k, self.top_p, self.min_p, self.seeds, self.counters

    def first(self, num_rows: int) -> "SamplingColumns":
        """The first num_rows rows, as views."""
        return SamplingColumns(*(column[:num_rows] for column in self.all))


class KeptLaunches(Protocol):
    """Launches that can be repeated on other tensors; made by StepKernels.keep_launches. Valid for one step."""

    def repeat(self, moved: Sequence[torch.Tensor | None]) -> bool:
        """Queue the launches again, on these tensors in place of the moving ones, which have the same shapes, strides
        and dtypes. False, with nothing queued: their alignment needs kernels compiled for it."""
        ...


class StepKernels(Protocol):
    """All kernels of a step; see the module docstring for what they have in common."""

    # Positions and places

    def prepare_decode(
        self,
        slots: torch.Tensor,
        starts: torch.Tensor,
        last_tokens: torch.Tensor,
        page_tables: Sequence[torch.Tensor],
        page_tokens: Sequence[int],
        parameters: torch.Tensor,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        context_lengths: torch.Tensor,
        page_places: Sequence[torch.Tensor],
        sampling: SamplingColumns,
    ) -> None:
        """Compute the inputs of a step of one token per row from slots and positions.

        In: slots [B] int32, -1: padding; starts [B] int32, position of the row's token; last_tokens [S] int64, newest
        token of every slot; page_tables: for each layer type [S, entries] int32; page_tokens: P of each type;
        parameters [S, SAMPLING_WORDS] int32, contiguous: sampling parameters of every slot.
        Out: token_ids [B] int64 and positions [B] int64 (0 for padding); context_lengths [B] int32 (start + 1, or 0);
        page_places: for each type [B] int64, page * P + offset of the row's token, or -1; sampling: columns [B] of the
        row's slot, greedy for padding.
        """
        ...

    # Attention

    def store_heads(
        self,
        qkv: torch.Tensor,
        cos: torch.Tensor | None,
        sin: torch.Tensor | None,
        query_norm: torch.Tensor | None,
        key_norm: torch.Tensor | None,
        norm_eps: float,
        pages: torch.Tensor | None,
        page_places: torch.Tensor,
        scales: PageScales | None = None,
        *,
        norms_values: bool = False,
    ) -> None:
        """RMS norm of query and key heads, rotation of both in the half-split form; stores keys and values in pages.

        qkv [T, H + 2 K, D], a token's heads adjacent; query heads are overwritten. Without pages qkv has query heads
        alone, [T, H, D], there is no key_norm, and nothing is stored. With pages of one part there are no value heads,
        [T, H + K, D]. cos, sin [T, R / 2] float32: the first R channels
        are rotated, in pairs (i, i + R / 2). query_norm, key_norm [D] float32, both or neither. norms_values: with
        them, value heads are divided by their root mean square, too. page_places [T] int64: page * P + offset, -1: not
        stored; all distinct. scales: written too, where pages are quantised.
        """
        ...

    def attend_decode(
        self,
        query: torch.Tensor,
        pages: torch.Tensor,
        page_table: torch.Tensor,
        slots: torch.Tensor,
        context_lengths: torch.Tensor,
        output: torch.Tensor,
        options: AttentionOptions,
        workspace: SplitWorkspace,
        scales: PageScales | None = None,
    ) -> None:
        """Attention of one query per row. query [B, H, D], strided rows; output [B, H, C]; page_table [S, entries]
        int32, row b of the step has row slots[b] of it (slots [B] int32, -1: padding, output zeros); context_lengths
        [B] int32 with the row's own token. With a workspace of the same number of splits, the bits of a row do not
        depend on the other rows.
        """
        ...

    def attend_shared_prefix(
        self,
        query: torch.Tensor,
        pages: torch.Tensor,
        page_table: torch.Tensor,
        slots: torch.Tensor,
        context_lengths: torch.Tensor,
        group_starts: torch.Tensor,
        prefix_lengths: torch.Tensor,
        output: torch.Tensor,
        options: AttentionOptions,
        workspace: SplitWorkspace,
        scales: PageScales | None = None,
    ) -> None:
        """As attend_decode, for rows in groups that begin with the same pages, which are read once per group.

        group_starts [g + 1] int32: rows of group i are [group_starts[i], group_starts[i + 1]); every row is in one,
        groups may be empty. prefix_lengths [B] int32: first tokens that a row has in common with its group, the same
        for all rows of it and less than any one's context; the first row's pages are read for them. 0: none. The
        workspace has two splits or more; no window.
        """
        ...

    def attend_mixed(
        self,
        query: torch.Tensor,
        pages: torch.Tensor,
        page_table: torch.Tensor,
        slots: torch.Tensor,
        context_lengths: torch.Tensor,
        query_starts: torch.Tensor,
        output: torch.Tensor,
        options: AttentionOptions,
        workspace: SplitWorkspace,
        max_queries: int,
        max_context: int,
        scales: PageScales | None = None,
    ) -> None:
        """Attention of any number of queries per row: prompts, chunks of prompts and decodes in one launch.

        query [T, H, D]; output [T, H, C]; query_starts [B + 1] int32: rows of sequence b are [query_starts[b],
        query_starts[b + 1]), the last ones of its context. max_queries, max_context: bounds known to the host on the
        queries of a row and on context_lengths. With T and B they decide whether few queries behind long contexts are
        read in parts. The output of tokens that no row has, or a row of padding, is not defined.
        """
        ...

    def keep_launches(self, work: Callable[[], None], moving: Sequence[torch.Tensor | None]) -> KeptLaunches | None:
        """Run `work`, which calls functions of this protocol, and keep what it launches, to repeat it on other tensors.

        moving: the tensors that a repetition replaces; those without gaps may be passed to the functions in slices,
        others only as they are. All else that the functions are given stays as it is. None: nothing can be kept.
        """
        ...

    # Whole pages

    def copy_pages(self, pages: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor) -> None:
        """pages[destinations[i]] = pages[sources[i]]. pages [N, words of any integer type]; sources, destinations [n]
        int64, negative: nothing is copied. No destination is a source of the same call, and none occurs twice."""
        ...

    def gather_pages(self, pages: torch.Tensor, page_ids: torch.Tensor, staging: torch.Tensor) -> None:
        """staging[i] = pages[page_ids[i]]; page_ids [n] int64, staging [n, words]."""
        ...

    def scatter_pages(self, pages: torch.Tensor, page_ids: torch.Tensor, staging: torch.Tensor) -> None:
        """pages[page_ids[i]] = staging[i]; page_ids distinct."""
        ...

    # Sampling

    def mask_tokens(self, logits: torch.Tensor, mask_rows: torch.Tensor, words: torch.Tensor) -> None:
        """Forbid tokens, in place: their logits become -inf. logits [R, V] float32; mask_rows [R] int64: row of words
        for each, -1: none; words [N, W] int32: token t may be sampled if bit t % 32 of word t // 32 is set."""
        ...

    def add_biases(self, logits: torch.Tensor, token_ids: torch.Tensor, biases: torch.Tensor) -> None:
        """Add biases to logits of single tokens, in place. logits [R, V] float32; token_ids [R, N] int32, distinct in a
        row, -1: padding; biases [R, N] float32, -inf: forbidden."""
        ...

    def penalise(
        self,
        logits: torch.Tensor,
        slots: torch.Tensor,
        counts: torch.Tensor,
        repetition: torch.Tensor,
        presence: torch.Tensor,
        frequency: torch.Tensor,
    ) -> None:
        """Apply penalties to tokens that have occurred, in place: repetition, then frequency, then presence.

        logits [R, V] float32; slots [R] int64: which row of counts each is for, -1: none; counts [S, V] int32: twice
        how often a token occurs in the slot's output, and one more where it occurs in its prompt; repetition [R]
        float32, 1: off: positive logits of tokens that occur are divided by it, others multiplied; frequency [R]
        float32, 0: off: subtracted once for every occurrence in the output; presence [R] float32, 0: off: subtracted
        once.
        """
        ...

    def sample(
        self,
        logits: torch.Tensor,
        temperatures: torch.Tensor,
        top_k: torch.Tensor,
        top_p: torch.Tensor,
        min_p: torch.Tensor,
        seeds: torch.Tensor,
        counters: torch.Tensor,
        token_ids: torch.Tensor,
        workspace: SamplingWorkspace,
        slots: torch.Tensor | None = None,
        last_tokens: torch.Tensor | None = None,
    ) -> None:
        """Sample one token per row into token_ids [R] int64, the same as engine/sampling draws from the same random
        number. With slots [R] int32 and last_tokens [S + 1] int64 it also becomes the newest token of the row's slot;
        -1: of none. A row whose largest logit is NaN, as with any NaN in it, or infinite gets NO_TOKEN (engine.batch),
        and a newest token that lies in the vocabulary.

        logits [R, V]; temperatures [R] float32, 0: greedy, of equal logits the first; top_k [R] int32, 0: off; top_p
        [R] float32, 1: off; min_p [R] float32, 0: off; seeds [R] int64, the bits of an unsigned number; counters [R]
        int64: index of the random number of the seed. Fast if rows of logits start at multiples of 16 elements.
        """
        ...

    def top_logprobs(
        self,
        logits: torch.Tensor,
        token_ids: torch.Tensor,
        chosen: torch.Tensor,
        top_ids: torch.Tensor,
        top: torch.Tensor,
        workspace: SamplingWorkspace,
    ) -> None:
        """Log probabilities of logits [R, V]: of token_ids [R] int64 into chosen [R] float32, of the k likeliest into
        top [R, k] float32, their ids into top_ids [R, k] int64: largest first; of equal logits the lowest id first. Log
        probabilities of a row that is not finite are NaN, and its ids mean nothing; its token may be NO_TOKEN."""
        ...
