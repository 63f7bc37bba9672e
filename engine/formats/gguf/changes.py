"""How tensors in GGUF files differ from those that models take: other orders of rows and columns, other numbers.

O = outputs, I = inputs of a matrix. A config is the model's config.json.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.errors import CheckpointError

Config = Mapping[str, Any]
#: (config, size) -> [size]: for each place the one in the file
Order = Callable[[Config, int], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to a tensor, or to several that become one."""

    rows: Order | None = None
    columns: Order | None = None
    #: Makes the tensor of plain ones; quantised ones are dequantised. None: they are joined.
    values: Callable[[Sequence[torch.Tensor], Config], torch.Tensor] | None = None
    dim: int = 0  #: along which tensors are joined and rows counted: 1 in stacks of experts
    is_transposed: bool = False  #: the model takes a stack [experts, I, O], unless it is quantised


NOTHING = Change()


def paired(heads: str) -> Change:
    """Channels of heads are stored in pairs: channel i of the first half stands beside channel i of the second. heads:
    the number of them in the config."""

    def order(config: Config, size: int) -> torch.Tensor:
        return torch.arange(size).view(_dividing(config, heads, size, 2), -1, 2).transpose(1, 2).flatten()

    return Change(rows=order)


def tiled(per_head: str | int, *, before: str | None = None) -> Order:
    """Value heads of a delta net are stored by their place among those of a key head. per_head: channels of a head, or
    their name in the config. before: for a projection that has queries and keys first, the channels of their heads."""

    def order(config: Config, size: int) -> torch.Tensor:
        keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
        channels = config[per_head] if isinstance(per_head, str) else per_head
        first = 2 * keys * config[before] if before is not None else 0
        if values % keys or size - first != values * channels:
            raise CheckpointError(f"{size} channels are not those of {values} value heads over {keys} key heads")
        places = torch.arange(first, size).view(values // keys, keys, channels).transpose(0, 1).flatten()
        return torch.cat((torch.arange(first), places))

    return order


def alternating(config: Config, size: int) -> torch.Tensor:
    """All gates and then all ups become gate and up of each channel beside each other."""
    return torch.arange(size).view(2, -1).T.flatten()


def grouped_by_key_head(*parts: tuple[str, bool]) -> Order:
    """The parts of a projection one after another become those of each key head together. parts: channels of a head in
    the config, and whether there are as many heads as values."""

    def order(config: Config, size: int) -> torch.Tensor:
        keys, per_key = (
            config["linear_num_key_heads"],
            config["linear_num_value_heads"] // config["linear_num_key_heads"],
        )
        sizes = [(per_key if is_value else 1) * (config[name] if name else 1) for name, is_value in parts]
        if size != keys * sum(sizes):
            raise CheckpointError(f"{size} channels are not those of {keys} key heads")
        pieces = torch.arange(size).split([keys * each for each in sizes])
        return torch.cat([piece.view(keys, -1) for piece in pieces], dim=1).flatten()

    return order


def computed(function: Callable[[torch.Tensor], torch.Tensor], rows: Order | None = None) -> Change:
    """A plain tensor through a function, in float32."""
    return Change(rows=rows, values=lambda parts, _: function(parts[0].float()))


#: Norms around one are stored with the one added.
AROUND_ONE = computed(lambda scale: scale - 1)
#: Decays are stored as they are used: -exp(A_log), as a column in Mamba-2.
DECAY = computed(lambda decay: (-decay.flatten()).log())
FLAT = computed(torch.flatten)
#: The taps of a convolution [channels, taps] have a dimension more in the model.
TAPS = computed(lambda taps: taps[:, None])


def products_of_heads(parts: Sequence[torch.Tensor], config: Config) -> torch.Tensor:
    """Latent attention: keys [heads, latent, plain] and values [heads, value, latent] -> [heads * (plain + value),
    latent]. Older files have the result."""
    if len(parts) == 1:
        return parts[0]
    keys, values = parts
    return torch.cat((keys.transpose(1, 2), values), dim=1).flatten(0, 1)


def _dividing(config: Config, key: str, size: int, times: int) -> int:
    heads = config[key]
    if not isinstance(heads, int) or heads < 1 or size % (times * heads):
        raise CheckpointError(f"{size} rows are not those of {heads} heads")
    return heads
