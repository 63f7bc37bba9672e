"""Which tokens of a sequence one step computes where layers keep a budget of tokens. Pure functions of numbers.

What such a layer keeps of a prompt is chosen from all its keys, which its pages cannot hold: a prompt longer than the
smallest budget is computed in one step. A later token takes the place of an earlier one, which the tokens before it
still read: beyond the smallest budget, tokens are computed one by one, also where a preempted request is recomputed. So
a sequence's tokens depend neither on chunks nor on preemption.
"""


def budgeted_chunk_end(start: int, target: int, num_prompt_tokens: int, budget: int, room: int) -> int:
    """The end of the part of [start, target) that a step may compute. budget: the smallest of all layers. room: tokens
    that are left in the step, at least 1; a prompt that is computed at once may take more."""
    if start == 0 and num_prompt_tokens > budget:
        return num_prompt_tokens
    if start >= budget:
        return start + 1
    return min(target, start + room, budget)


def longest_prompt(budget: int | None, max_batched_tokens: int) -> int | None:
    """The longest prompt that can be served with that smallest budget; None: no layer has a budget."""
    return None if budget is None else max(budget, max_batched_tokens)
