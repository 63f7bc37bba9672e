"""Synthetic requests in the shape of published loads. The real traces are not public or not ours to ship; lengths
follow their published means, tokens are arbitrary but equal where requests share text."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.memory.images import Images, ImageSpan


@dataclass(frozen=True)
class TraceRequest:
    """One request. Its answer is part of the trace, so that a later turn can contain it."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    arrival_s: float = 0.0
    after: int | None = None  #: index of the request whose end it waits for: the turn before
    num_samples: int = 1
    images: Images = ()


def _tokens(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randrange(1, 1 << 30) for _ in range(max(1, count)))


def _lognormal(rng: random.Random, mean: float, sigma: float, largest: int) -> int:
    return max(1, min(largest, round(rng.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma))))


def chats(
    num_requests: int,
    mean_prompt: float,
    mean_output: float,
    *,
    rate_per_s: float | None = None,
    sigma: float = 1.0,
    largest: int = 2048,
    seed: int = 0,
) -> list[TraceRequest]:
    """Independent requests with log-normal lengths, all at once or by a Poisson process.

    ShareGPT: 161 tokens in, 338 out; Alpaca: 19 in, 58 out (PagedAttention section 6.1); MMLU-pro: about 1,000 in,
    20 out.
    """
    rng = random.Random(seed)
    now, requests = 0.0, []
    for _ in range(num_requests):
        if rate_per_s is not None:
            now += rng.expovariate(rate_per_s)
        prompt = _tokens(rng, _lognormal(rng, mean_prompt, sigma, largest))
        requests.append(TraceRequest(prompt, _tokens(rng, _lognormal(rng, mean_output, sigma, largest)), now))
    return requests


def long_documents(
    num_requests: int, *, shortest: int = 55_000, longest: int = 110_000, seed: int = 0
) -> list[TraceRequest]:
    """Questions on documents of their own: 55,000 to 110,000 tokens in, 50 to 100 out (Jenga section 7.2)."""
    rng = random.Random(seed)
    return [
        TraceRequest(_tokens(rng, rng.randint(shortest, longest)), _tokens(rng, rng.randint(50, 100)))
        for _ in range(num_requests)
    ]


def shared_articles(
    num_articles: int, num_requests: int, *, article_tokens: int, question_tokens: int = 100, seed: int = 0
) -> list[TraceRequest]:
    """Questions, one after another, each on one of a few articles (Jenga section 7.4)."""
    rng = random.Random(seed)
    articles = [_tokens(rng, article_tokens) for _ in range(num_articles)]
    return [
        TraceRequest(
            rng.choice(articles) + _tokens(rng, question_tokens),
            _tokens(rng, 50),
            after=index - 1 if index else None,
        )
        for index in range(num_requests)
    ]


def sessions(
    num_sessions: int, num_turns: int, *, first_tokens: int, turn_tokens: int, answer_tokens: int, seed: int = 0
) -> list[TraceRequest]:
    """Conversations that continue in random order, one turn at a time; every turn contains all earlier ones. One
    conversation in four gets most of the turns."""
    rng = random.Random(seed)
    histories = [_tokens(rng, first_tokens) for _ in range(num_sessions)]
    weights = [4.0 if index % 4 == 0 else 1.0 for index in range(num_sessions)]
    requests: list[TraceRequest] = []
    for _ in range(num_turns):
        (index,) = rng.choices(range(num_sessions), weights)
        answer = _tokens(rng, answer_tokens)
        requests.append(TraceRequest(histories[index], answer, after=len(requests) - 1 if requests else None))
        histories[index] = histories[index] + answer + _tokens(rng, turn_tokens)
    return requests


def vision_chats(
    num_requests: int, *, image_tokens: int = 6193, num_images: int = 40, seed: int = 0
) -> list[TraceRequest]:
    """Short questions on images, MMMU-pro-like: 43 text tokens and 6,193 image tokens, 200 out (Jenga section 3)."""
    rng = random.Random(seed)
    requests = []
    for _ in range(num_requests):
        image = ImageSpan(1, image_tokens, b"image %d" % rng.randrange(num_images))
        requests.append(TraceRequest(_tokens(rng, 43), _tokens(rng, 200), images=(image,)))
    return requests


def images_as_text(trace: Sequence[TraceRequest]) -> list[TraceRequest]:
    """The same requests for a cache that knows only tokens: each image as that many tokens before the text."""
    return [
        replace(
            item,
            prompt=tuple(
                int.from_bytes(image.key, "big") % (1 << 30) for image in item.images for _ in range(image.num_tokens)
            )
            + item.prompt,
            images=(),
        )
        for item in trace
    ]


def battles(num_battles: int, *, rate_per_s: float, seed: int = 0) -> list[TraceRequest]:
    """One side of an arena's battles: a system prompt that all share, short messages, one to four turns."""
    rng = random.Random(seed)
    system = _tokens(rng, 60)
    requests: list[TraceRequest] = []
    now = 0.0
    for _ in range(num_battles):
        now += rng.expovariate(rate_per_s)
        history, previous = system, None
        for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
            history = history + _tokens(rng, _lognormal(rng, 60, 0.9, 1000))
            answer = _tokens(rng, _lognormal(rng, 250, 0.7, 1000))
            requests.append(TraceRequest(history, answer, now, previous))
            previous = len(requests) - 1
            history = history + answer
    return requests


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
