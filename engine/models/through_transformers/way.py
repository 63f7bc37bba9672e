"""How an architecture without code of its own is served: by transformers' modelling code, where that is installed.

The only module of this package that may be imported before such a model is built: importing transformers takes seconds.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec

from engine.errors import CheckpointError
from engine.json_files import quoted
from engine.layers.weights import WeightSource
from engine.models.causal_lm import CausalLM
from engine.models.config_reader import ConfigReader

#: What the way costs, measured with benchmarks/engine/transformers_code.py.
COST = (
    "transformers' modelling code on our pages: a decode step takes about twice as long as with code of our own, more "
    "in tiny models (python -m benchmarks.engine.transformers_code)"
)
_MOST_COMPARED = 100  #: characters of a name
_MOST_REASON = 300  #: characters of what transformers' code says


def is_installed() -> bool:
    """Whether transformers can be imported."""
    return find_spec("transformers") is not None


def build_through_transformers(name: str, own: Iterable[str], config: ConfigReader, weights: WeightSource) -> CausalLM:
    """The model of that architecture. own: the names that Agon has code for.

    Raises CheckpointError, with the reason and the nearest of those names, where that code cannot run on pages.
    """
    from engine.models.through_transformers.model import build

    nearest = get_close_matches(name[:_MOST_COMPARED], list(own), 1, cutoff=0.0)[0]
    try:
        return build(config, weights, name)
    except Exception as error:  # with CheckpointError any that transformers' code raises where it does not fit
        reason = " ".join(str(error).split())[:_MOST_REASON] or type(error).__name__
        raise CheckpointError(
            f"no code for architecture {quoted(name)}, and transformers' code cannot run on pages: {reason}; the "
            f"nearest architecture with code is {nearest}"
        ) from error


def cost_of_transformers(name: str) -> str:
    """What serving by transformers' code costs, for logs and reports."""
    return f"{quoted(name)} has no code of its own and runs through {COST}"
