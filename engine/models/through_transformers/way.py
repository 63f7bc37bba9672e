"""How an architecture without code of its own is served: by transformers' modelling code, where that is installed.

The only module of this package that may be imported before such a model is built: importing transformers takes seconds.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec

from engine.errors import CheckpointError
from engine.layers.weights import WeightSource
from engine.models.causal_lm import CausalLM
from engine.models.config_reader import ConfigReader

#: Measured on a Llama of 15 million parameters (benchmarks/engine/transformers_code.py).
COST = "transformers' modelling code runs it, slower"


def is_installed() -> bool:
    """Whether transformers can be imported."""
    return find_spec("transformers") is not None


def build_through_transformers(name: str, own: Iterable[str], config: ConfigReader, weights: WeightSource) -> CausalLM:
    """The model of that architecture. own: the names that Agon has code for.

    Raises CheckpointError, with the reason and the nearest of those names, where that code cannot run on pages.
    """
    from engine.models.through_transformers.model import build

    nearest = get_close_matches(name, list(own), 1, cutoff=0.0)[0]
    try:
        return build(config, weights, name)
    except Exception as error:  # with CheckpointError any that transformers' code raises where it does not fit
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"no code for architecture {name}, and transformers' code cannot run on pages: {reason}; the nearest "
            f"architecture with code is {nearest}"
        ) from error


def cost_of_transformers(name: str) -> str:
    """What serving by transformers' code costs, for logs and reports."""
    return f"{name}: Agon has no code of its own; {COST}"
