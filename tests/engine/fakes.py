"""A runner without a model, strict about pages: it keeps a real pool and reads every context through its page tables.

The next token is a function of the whole context as it stands in the pages, of the seed and of the output index. A page
that was reused too early, not copied, or wrongly shared therefore changes the tokens, which `continuation` predicts.
"""

import random
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.batch import PENDING_TOKEN, SampledToken, ScheduledSequence, StepOutput, StepPlan, TokenMasks
from engine.config import EngineConfig, ModelLimits
from engine.core import EngineCore
from engine.drafts.proposer import Proposal, Proposer, Wanted
from engine.loaded_engine import LoadedEngine
from engine.memory.planning.grouping import group_layers, large_page_bytes
from engine.memory.spec import LayerSpec, PoolPlan
from engine.request import sample_seed
from engine.sampling_params import SamplingParams
from tests.engine.late_runner import LateRunner

VOCAB_SIZE = 128
EOS = 1
ALPHABET = "abcdefghijklmnopqrstuvwxyz     "
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)

#: How an engine steps: one after the other; with one in flight; with one in flight that computes at the worst moment.
Steps = Literal["in turn", "overlapping", "late"]

ONE_TYPE = (LayerSpec("full", 32, "float32"),) * 2
#: Two types with small pages of 2 and 3 units, so that a large page holds 3 of one or 2 of the other.
TWO_TYPES = (LayerSpec("full", 64, "float32"), LayerSpec("full", 96, "bfloat16", model="draft"))


def pool_plan(num_pages: int, *, layers: Sequence[LayerSpec] = ONE_TYPE, page_tokens: int = 4) -> PoolPlan:
    """A pool with that many large pages for requests, and the null page."""
    types = group_layers(layers, page_tokens=page_tokens)
    return PoolPlan(types, large_page_bytes(types), num_pages + 1)


def next_token(context: Sequence[int], params: SamplingParams, seed: int, output_index: int) -> int:
    salt = "greedy" if params.is_greedy else f"{seed}/{output_index}"
    return zlib.crc32(f"{list(context)}/{salt}".encode()) % VOCAB_SIZE


def continuation(prompt: Sequence[int], params: SamplingParams, *, seed: int = 0, index: int = 0) -> list[int]:
    """The output tokens that sample `index` must have when nothing but max_tokens ends it."""
    tokens, seed = list(prompt), sample_seed(seed, index)
    for output_index in range(params.max_tokens):
        tokens.append(next_token(tokens, params, seed, output_index))
    return tokens[len(prompt) :]


def token_text(token_id: int) -> str:
    return ALPHABET[token_id % len(ALPHABET)]


def text_of(token_ids: Iterable[int]) -> str:
    return "".join(map(token_text, token_ids))


class LetterDetokenizer:
    """Every token is one letter or a space."""

    def push(self, token_ids: Sequence[int]) -> str:
        return text_of(token_ids)

    def flush(self) -> str:
        return ""


class LetterTokenizer:
    """The tokenizer to LetterDetokenizer."""

    eos_token_ids = frozenset({EOS})

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [EOS] * add_special_tokens + [ALPHABET.index(letter) for letter in text]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return text_of(ids)

    def token_bytes(self, token_id: int) -> bytes:
        return text_of([token_id]).encode() if token_id < len(ALPHABET) else b""

    def is_special(self, token_id: int) -> bool:
        return token_id == EOS

    def render_chat(
        self,
        messages: Sequence[dict[str, str]],
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> list[int]:
        return [token_id for message in messages for token_id in (EOS, *self.encode(message["content"]))]


@dataclass
class PagedFakeRunner:
    """Executes step plans on a pool of (token, position) entries. Records every plan."""

    pool_plan: PoolPlan
    max_running: int
    limits: ModelLimits = field(default_factory=lambda: ModelLimits(1024, VOCAB_SIZE, frozenset({EOS})))
    mirror_plan: PoolPlan | None = None
    max_in_flight: int = 1
    seconds_per_token: float = 1.0  #: what it says to have measured
    seconds_per_step: float = 0.0
    seconds_per_byte: float = 0.0
    plans: list[StepPlan] = field(default_factory=list)
    is_closed: bool = False

    def __post_init__(self) -> None:
        self._page_tokens = {kind.name: kind.page_tokens for kind in self.pool_plan.types}
        self._ratios = {kind.name: self.pool_plan.ratio(kind) for kind in self.pool_plan.types}
        self._memory: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in self._page_tokens}
        self._mirror: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}  # (type, host page) -> entries by offset
        self._tables: dict[tuple[int, str], list[int]] = {}
        self._owner_of_slot: dict[int, int] = {}
        self._outputs: deque[StepOutput] = deque()
        self._newest: dict[int, tuple[int, int]] = {}  # slot -> (step, the token that it drew there)

    def launch(self, plan: StepPlan) -> None:
        assert len(self._outputs) < self.max_in_flight
        self._outputs.append(self._run(plan))

    def supply_masks(self, masks: TokenMasks) -> None:
        raise NotImplementedError("its tokens follow from their context alone")

    def collect(self) -> StepOutput:
        return self._outputs.popleft()

    def _run(self, plan: StepPlan) -> StepOutput:
        self.plans.append(plan)
        self._update_tables(plan)
        self._swap(plan)
        self._copy(plan)
        for sequence in plan.sequences:
            self._write(sequence, plan.step)
        samples = tuple(self._sample(sequence) for sequence in plan.sequences)
        for sequence, drawn in zip(plan.sequences, samples, strict=True):
            if sequence.has_own_newest_token:
                self._newest[sequence.slot] = plan.step, drawn[0].token_id
        page_bytes = {kind.name: kind.small_page_bytes for kind in self.pool_plan.types}
        return StepOutput(
            plan.step,
            samples,
            compute_s=plan.num_tokens * self.seconds_per_token + self.seconds_per_step,
            move_s=sum(page_bytes[move.layer_type] for move in plan.swap_outs + plan.swap_ins) * self.seconds_per_byte,
        )

    def close(self) -> None:
        self.is_closed = True

    def _update_tables(self, plan: StepPlan) -> None:
        slots = {sequence.slot: sequence.sequence_id for sequence in plan.sequences}
        assert len(slots) == len(plan.sequences), "a slot occurs twice"
        lengths = [len(sequence.token_ids) for sequence in plan.sequences]
        assert all(lengths)
        assert lengths == sorted(lengths, key=lambda length: length > 1), "decodes come first"
        for update in plan.page_table_updates:
            assert update.slot < self.max_running
            largest = self.pool_plan.num_large_pages * self._ratios[update.layer_type]
            assert all(self._ratios[update.layer_type] <= page < largest for page in update.page_ids)
            if self._owner_of_slot.get(update.slot) != slots[update.slot]:
                assert update.start == 0, "a new sequence in a slot brings its whole table"
                for name in self._page_tokens:
                    self._tables[update.slot, name] = []
                self._owner_of_slot[update.slot] = slots[update.slot]
            table = self._tables[update.slot, update.layer_type]
            if update.start == 0:
                table.clear()
            assert update.start <= len(table)
            table[update.start : update.start + len(update.page_ids)] = update.page_ids

    def _swap(self, plan: StepPlan) -> None:
        """A page that comes in holds what went out and nothing else, and it leaves the mirror."""
        for moves, pages in (
            (plan.swap_outs, [(move.layer_type, move.host_page) for move in plan.swap_outs]),
            (plan.swap_ins, [(move.layer_type, move.device_page) for move in plan.swap_ins]),
        ):
            assert len(set(pages)) == len(moves), "two moves have one destination"
        for move in plan.swap_outs:
            assert self.mirror_plan is not None
            ratio, size = self._ratios[move.layer_type], self._page_tokens[move.layer_type]
            is_trial = not plan.sequences and move.host_page < ratio  # in null pages
            assert is_trial or ratio <= move.host_page < self.mirror_plan.num_large_pages * ratio
            memory, start = self._memory[move.layer_type], move.device_page * size
            self._mirror[move.layer_type, move.host_page] = {
                offset: memory[start + offset] for offset in range(size) if start + offset in memory
            }
        for move in plan.swap_ins:
            memory, size = self._memory[move.layer_type], self._page_tokens[move.layer_type]
            entries = self._mirror.pop((move.layer_type, move.host_page))
            for offset in range(size):
                memory.pop(move.device_page * size + offset, None)
                if offset in entries:
                    memory[move.device_page * size + offset] = entries[offset]

    def _copy(self, plan: StepPlan) -> None:
        sources = {(copy.layer_type, copy.src) for copy in plan.copies}
        targets = [(copy.layer_type, copy.dst) for copy in plan.copies]
        assert len(set(targets)) == len(targets)
        assert not sources & set(targets)
        for copy in plan.copies:
            memory, size = self._memory[copy.layer_type], self._page_tokens[copy.layer_type]
            for offset in range(size):
                memory.pop(copy.dst * size + offset, None)
                if copy.src * size + offset in memory:
                    memory[copy.dst * size + offset] = memory[copy.src * size + offset]

    def _address(self, slot: int, name: str, position: int) -> int:
        size = self._page_tokens[name]
        return self._tables[slot, name][position // size] * size + position % size

    def _write(self, sequence: ScheduledSequence, step: int) -> None:
        token_ids = list(sequence.token_ids)
        assert PENDING_TOKEN not in token_ids[:-1]
        if token_ids[-1] == PENDING_TOKEN:
            drawn_in, token_ids[-1] = self._newest[sequence.slot]
            assert drawn_in == step - 1, "only the step before can have drawn a pending token"
        for name, memory in self._memory.items():
            for position, token_id in enumerate(token_ids, start=sequence.start):
                memory[self._address(sequence.slot, name, position)] = (token_id, position)

    def _sample(self, sequence: ScheduledSequence) -> tuple[SampledToken, ...]:
        end = sequence.start + len(sequence.token_ids)
        contexts = []
        for name, memory in self._memory.items():
            entries = [memory[self._address(sequence.slot, name, position)] for position in range(end)]
            assert [position for _, position in entries] == list(range(end)), "a page holds another position's data"
            contexts.append([token_id for token_id, _ in entries])
        assert all(context == contexts[0] for context in contexts)
        assert len(sequence.seeds) == sequence.num_samples
        result = []
        for place, seed in enumerate(sequence.seeds):
            context, output_index = contexts[0], sequence.output_index
            if sequence.num_drafts:
                context = context[: end - sequence.num_drafts + place]
                output_index += place
            token_id = next_token(context, sequence.params, seed, output_index)
            wants_logprobs = sequence.params.logprobs is not None
            top = tuple((token, -1.0 - token) for token in range(sequence.params.logprobs or 0))
            result.append(SampledToken(token_id, -0.5, top) if wants_logprobs else SampledToken(token_id))
        return tuple(result)


class Oracle:
    """A proposer that knows what comes, and says something else at random."""

    name = "oracle"
    num_sources = 3
    max_rows = None

    def __init__(self, seed: int, *, is_free: bool = True, share_right: float = 0.8) -> None:
        self.is_free = is_free
        self._random = random.Random(seed)
        self._share_right = share_right

    def propose(self, wanted: Sequence[Wanted]) -> list[Proposal | None]:
        return [self._propose(each) for each in wanted]

    def seconds_per_token(self) -> float:
        return 0.0

    def free_pages(self) -> bool:
        return False

    def forget(self, sequence_id: int) -> None:
        pass

    def close(self) -> None:
        pass

    def _propose(self, wanted: Wanted) -> Proposal | None:
        request, sequence, most = wanted
        if self._random.random() < 0.1:
            return None
        tokens, drafts = list(sequence.token_ids), []
        for _ in range(self._random.randint(1, most)):
            first = len(tokens) - sequence.num_prompt_tokens
            tokens.append(next_token(tokens, request.params, sequence.seed, first))
            if self._random.random() > self._share_right:
                tokens[-1] = self._random.randrange(VOCAB_SIZE)
            drafts.append(tokens[-1])
        return Proposal(tuple(drafts), self._random.randrange(self.num_sources))


def make_core(
    num_pages: int = 64,
    *,
    layers: Sequence[LayerSpec] = ONE_TYPE,
    page_tokens: int = 4,
    max_model_len: int = 1024,
    has_queue_bound: bool = True,
    clock: "Clock | None" = None,
    num_mirror_pages: int = 0,
    seconds_per_byte: float = 0.0,
    steps: Steps = "in turn",
    proposer: Proposer | None = None,
    seconds_per_step: float = 0.0,
    **settings: object,
) -> tuple[EngineCore, PagedFakeRunner]:
    """A core over the fake runner; num_pages large pages for requests, num_mirror_pages for swapped-out ones.

    steps "late": executed by a LateRunner."""
    config = EngineConfig("fake", page_tokens=page_tokens, **settings)  # type: ignore[arg-type]
    runner = PagedFakeRunner(
        pool_plan(num_pages, layers=layers, page_tokens=page_tokens),
        2 * config.step_limits.max_running if steps == "late" else config.step_limits.max_running,
        ModelLimits(max_model_len, VOCAB_SIZE, frozenset({EOS})),
        pool_plan(num_mirror_pages, layers=layers, page_tokens=page_tokens) if num_mirror_pages else None,
        max_in_flight=1 if steps == "in turn" else 2,
        seconds_per_byte=seconds_per_byte,
        seconds_per_step=seconds_per_step,
    )
    clock = clock or Clock()
    core = EngineCore(
        LateRunner(runner, config.step_limits.max_running) if steps == "late" else runner,
        config,
        lambda skip, shown, prompt: LetterDetokenizer(),
        has_queue_bound=has_queue_bound,
        clock=clock,
        proposer=proposer,
    )
    return core, runner


def loaded(core: EngineCore, is_alive: Callable[[], bool] = lambda: True) -> LoadedEngine:
    """An engine around a core of make_core, with letters for tokens and without a model to tell of."""
    # LoadedEngine names the tokenizer's class, not a protocol; and nothing under test asks for the model.
    return LoadedEngine(core, LetterTokenizer(), None, is_alive)  # type: ignore[arg-type]


@dataclass
class Clock:
    """A clock that a test moves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Sample:
    """What a test keeps of one sample of a request."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    num_cached_tokens: int = 0


def run_all(core: EngineCore, max_steps: int = 10_000) -> dict[str, list[Sample]]:
    """Step until idle, checking the pool's integrity on the way; samples by request id."""
    samples: dict[str, dict[int, Sample]] = {}
    for _ in range(max_steps):
        if core.is_idle:
            core.check_integrity()
            return {request_id: [by_index[i] for i in sorted(by_index)] for request_id, by_index in samples.items()}
        for delta in core.step():
            sample = samples.setdefault(delta.request_id, {}).setdefault(delta.index, Sample())
            assert sample.finish_reason is None, "a delta after the last one"
            sample.text += delta.text
            sample.token_ids += delta.token_ids
            sample.finish_reason = delta.finish_reason
            sample.num_cached_tokens = delta.num_cached_tokens
        core.check_integrity()
    raise AssertionError("the engine does not finish")


def run_one(
    core: EngineCore,
    prompt: list[int],
    params: SamplingParams,
    *,
    resume_token_ids: Sequence[int] = (),
    cache_salt: bytes = b"",
) -> list[Sample]:
    """The samples of a request in an engine that has no other."""
    core.add_request("only", prompt, params, resume_token_ids=resume_token_ids, cache_salt=cache_salt)
    return run_all(core)["only"]
