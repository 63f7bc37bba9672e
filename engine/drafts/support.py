"""Which models proposed tokens are for, and which smaller model may propose them."""

from typing import Protocol

from engine.memory.spec import PoolPlan


class Tokens(Protocol):
    """What is compared of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes:
        """The text of a token, which may be a part of a character."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Whether the token is no text."""
        ...


def why_no_drafts(plan: PoolPlan) -> str | None:
    """Why no tokens can be proposed for a model with this pool; None: they can."""
    kinds = {layer_type.spec.kind for layer_type in plan.types}
    if "recurrent" in kinds:
        return "the model has recurrent layers, whose states cannot go back behind a token that was wrong"
    if "budgeted" in kinds:
        return "with kv_budget a token takes the place of an earlier one, which cannot be undone"
    return None


def why_not_the_same(target: Tokens, draft: Tokens, num_tokens: int) -> str | None:
    """The first difference between the first tokens of two tokenizers; None: they are the same. Heads may be padded by
    different numbers of tokens."""
    for token_id in range(num_tokens):
        one, other = (each.token_bytes(token_id) for each in (target, draft))
        if one != other or target.is_special(token_id) != draft.is_special(token_id):
            return f"token {token_id} is {other!r} instead of {one!r}"
    return None
