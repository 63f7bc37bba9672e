"""Post-sampling: rows with penalties, biases, forbidden tokens or filters are sampled again, log probabilities and
reports of beams are computed, and the results are read on the host. S = slots, V = vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from engine.batch import SampledToken, ScheduledSequence, TokenMasks
from engine.kernels.step_kernels import SamplingWorkspace, StepKernels
from engine.runner.device.beam_reports import BYTES_PER_BEAM, BeamReports
from engine.runner.device.changed_logits import ChangedLogits
from engine.runner.device.draws import Draw
from engine.runner.device.logprobs import BYTES_PER_DRAW, NUM_ARRAYS, AskedLogprobs
from engine.runner.device.mask_upload import MaskUpload
from engine.runner.device.transfer import Array, Upload

_TOKEN_BYTES = 8
_SECTION_BYTES = 96  #: for the alignment of the arrays in a download, 16 bytes each


def download_bytes(num_slots: int) -> int:
    """The largest download of a step."""
    return (_TOKEN_BYTES + max(BYTES_PER_DRAW, BYTES_PER_BEAM)) * num_slots + _SECTION_BYTES


@dataclass(frozen=True, slots=True)
class Drawn:
    """The tokens that a step samples, in the order of its output."""

    places: Sequence[int]  #: index of each draw's token among the step's tokens
    asked: AskedLogprobs | None
    beams: BeamReports | None
    #: On the device: tokens [n] int64, the requested log probabilities, and the reports of beams.
    tensors: tuple[torch.Tensor, ...]

    def read(self, token_ids: Array, *others: Array) -> list[SampledToken]:
        """One token for each draw. The arguments are the tensors, after their download."""
        known: list[int] = token_ids.tolist()
        if isinstance(self.places, range):  # in order
            tokens = [SampledToken(token_id) for token_id in known[: len(self.places)]]
        else:
            tokens = [SampledToken(known[place]) for place in self.places]
        if self.asked is not None:
            self.asked.read(tokens, *others[:NUM_ARRAYS])
            others = others[NUM_ARRAYS:]
        if self.beams is not None:
            self.beams.read(tokens, *others)
        return tokens

    @staticmethod
    def by_sequence(
        tokens: Sequence[SampledToken], sequences: Sequence[ScheduledSequence]
    ) -> tuple[tuple[SampledToken, ...], ...]:
        """The tokens that `read` has returned, by the sequence of the step that samples them."""
        if len(tokens) == len(sequences) and all([sequence.num_samples == 1 for sequence in sequences]):
            return tuple([(token,) for token in tokens])
        rest = iter(tokens)
        return tuple(tuple(islice(rest, sequence.num_samples)) for sequence in sequences)


#: Queues what follows a step's forward pass and its sampling, under the masks of the step if it needs some.
Finish = Callable[[TokenMasks | None], Drawn]


class PostSampling:
    """What follows the sampling kernel in a step. It is queued like the step, and never waits for the device."""

    def __init__(
        self,
        kernels: StepKernels,
        num_slots: int,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        workspace: SamplingWorkspace,
        last_tokens: torch.Tensor,
    ) -> None:
        """last_tokens [S + 1] int64: newest token of every slot."""
        self._kernels = kernels
        self._workspace = workspace
        self._last_tokens = last_tokens
        self._mask_upload: MaskUpload | None = None  # made by the first masks
        self._num_slots = num_slots
        self._changed_logits = ChangedLogits(
            kernels, num_slots, vocab_size, eos_token_ids, workspace, last_tokens.device
        )

    def send(
        self, upload: Upload, draws: Sequence[Draw], places: Sequence[int]
    ) -> Callable[[torch.Tensor, torch.Tensor, TokenMasks | None], Drawn]:
        """Put the inputs of post-sampling into the upload. draws: all of a step, or none where no request needs
        post-sampling; places: the row of logits and tokens of every draw. The result queues post-sampling after the
        sampling kernel; it takes logits [rows, V], tokens [rows] and the masks of the step, if it needs some."""
        changed = self._changed_logits.send(upload, draws, places) if draws else None
        asked = AskedLogprobs.send(upload, draws, places) if draws else None
        beams = BeamReports.send(upload, draws, places, self._changed_logits) if draws else None

        def compute(logits: torch.Tensor, tokens: torch.Tensor, masks: TokenMasks | None) -> Drawn:
            if changed is not None:
                sent = None
                if masks is not None and len(masks.draws):
                    sent = self._uploader(logits).send(masks, changed.draws)
                self._changed_logits.draw(changed, sent, logits, tokens, self._last_tokens)
            logprobs = () if asked is None else asked.take(self._kernels, logits, tokens, self._workspace)
            reports = () if beams is None else beams.take(logits, self._changed_logits)
            return Drawn(places, asked, beams, (tokens, *logprobs, *reports))

        return compute

    def _uploader(self, logits: torch.Tensor) -> MaskUpload:
        if self._mask_upload is None:
            self._mask_upload = MaskUpload(self._num_slots, logits.shape[1], logits.device)
        return self._mask_upload
