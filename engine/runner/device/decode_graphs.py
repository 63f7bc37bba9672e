"""Decode steps as CUDA graphs: one for each bucket, recorded when the model is loaded, and the inputs of their replays.

B = sequences of a step, S = slots, V = vocabulary.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import torch

from engine.batch import PageTableUpdate, ScheduledSequence
from engine.kernels.adapters import AdapterRows
from engine.runner.device.adapter_inputs import send_tiles
from engine.runner.device.buckets import Bucket, Buckets
from engine.runner.device.buffers import DecodeBuffers
from engine.runner.device.decode_program import DecodeProgram
from engine.runner.device.draws import draws_of
from engine.runner.device.graphs import GraphRecorder, Replay
from engine.runner.device.post_sampling import Finish, PostSampling
from engine.runner.device.prompt_rows import PromptRows
from engine.runner.device.shared_prefixes import SharedPrefixes
from engine.runner.device.slot_sampling import SlotSampling
from engine.runner.device.step_inputs import DecodeInputs, Shares
from engine.runner.device.transfer import Upload

_log = logging.getLogger(__name__)


class DecodeGraphs:
    """The graphs by bucket; none before `capture`."""

    def __init__(
        self,
        program: DecodeProgram,
        buckets: Buckets,
        upload: Upload,
        buffers: DecodeBuffers,
        last_tokens: torch.Tensor,
        slot_sampling: SlotSampling,
        post_sampling: PostSampling,
        prefixes: SharedPrefixes | None,
    ) -> None:
        """last_tokens [S + 1] int64: as DecodeProgram's. prefixes: None if no two sequences may begin with the same
        pages."""
        self.buckets = buckets
        self._program = program
        self._upload = upload
        self._buffers = buffers
        self._last_tokens = last_tokens
        self._slot_sampling = slot_sampling
        self._post_sampling = post_sampling
        self._prefixes = prefixes
        self._graphs: dict[Bucket, tuple[Replay, torch.Tensor]] = {}

    @property
    def are_captured(self) -> bool:
        """Whether steps may replay them."""
        return bool(self._graphs)

    @torch.inference_mode()
    def record(self, bucket: Bucket, recorder: GraphRecorder) -> tuple[Replay, torch.Tensor]:
        """Record a decode step of that bucket, over padding rows. The model must be capturable. Returns with the replay
        its logits [B, V], which hold until the next replay of any graph: all graphs share their memory."""
        self._upload.begin()
        self._upload.column("slots")[:] = -1
        self._upload.column("starts")[:] = 0
        self._upload.column("group_starts")[:] = bucket.num_rows
        self._upload.column("group_starts")[0] = 0
        self._upload.column("prefix_lengths")[:] = 0
        self._upload.column("tile_num_rows")[:] = 0
        self._upload.column("tile_slots")[:] = 0
        self._upload.send()
        logits: list[torch.Tensor] = []

        def program() -> None:
            logits[:] = [self._program(bucket)]

        replay = recorder.record(program)
        return replay, recorder.alias(logits.pop())

    def capture(self, recorder: GraphRecorder) -> None:
        """Record every bucket once, and log the progress."""
        started = time.perf_counter()
        order = self.buckets.all()
        for count, bucket in enumerate(order, start=1):
            self._graphs[bucket] = self.record(bucket, recorder)
            _log.info(
                "captured graph %d of %d: %d rows%s, %.1f s so far",
                count,
                len(order),
                bucket.num_rows,
                ", behind shared prefixes" if bucket.is_shared else ", with adapters" if bucket.is_adapted else "",
                time.perf_counter() - started,
            )

    def note(self, updates: Iterable[PageTableUpdate]) -> None:
        """Page tables change so before the next step."""
        if self._prefixes is not None:
            self._prefixes.note(updates)

    def send(
        self, sequences: tuple[ScheduledSequence, ...], shares: Shares, adapters: AdapterRows | None
    ) -> Callable[[], Finish] | None:
        """Put the inputs of a decode step into the upload. The result queues the replay; call it once the upload has
        been sent. None: no graph is for such a step."""
        if not self._graphs or shares.num_samples.max() > 1 or PromptRows.are_wanted(sequences):
            return None
        shared = None if self._prefixes is None or adapters is not None else self._prefixes.find(shares)
        bucket = self.buckets.bucket_for(len(sequences), is_shared=shared is not None, is_adapted=adapters is not None)
        if bucket is None:
            return None
        if adapters is not None:
            send_tiles(self._upload, adapters, bucket.num_rows)
        draws = draws_of(sequences) if self._slot_sampling.has_special(sequences) else []
        places: Sequence[int] = range(len(sequences))
        if shared is not None:
            places = shared.places
            shared.send(self._upload, bucket.num_rows)
            sequences = tuple(sequences[index] for index in shared.order)
            inputs = DecodeInputs.send(self._upload, sequences, shares.ordered(shared.order), bucket.num_rows)
        else:
            inputs = DecodeInputs.send(self._upload, sequences, shares, bucket.num_rows)
        if not shares.num_samples.all():  # a prompt of which this step computes one token, and not the last
            places = [places[index] for index in np.flatnonzero(shares.num_samples).tolist()]
        post_sampling = self._post_sampling.send(self._upload, draws, places)
        replay, logits = self._graphs[bucket]

        def compute() -> Finish:
            inputs.write_known(self._last_tokens)
            replay()
            return partial(post_sampling, logits, self._buffers.next_tokens[: len(sequences)])

        return compute
