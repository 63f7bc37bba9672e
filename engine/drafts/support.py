"""Which models proposed tokens are for."""

from engine.memory.spec import PoolPlan


def why_no_drafts(plan: PoolPlan) -> str | None:
    """Why no tokens can be proposed for a model with this pool; None: they can."""
    kinds = {layer_type.spec.kind for layer_type in plan.types}
    if "recurrent" in kinds:
        return "the model has recurrent layers, whose states cannot go back behind a token that was wrong"
    if "budgeted" in kinds:
        return "with kv_budget a token takes the place of an earlier one, which cannot be undone"
    return None
