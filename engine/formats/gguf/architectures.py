"""The architectures of GGUF files that are served, as data: what config.json says, which tensor is which, and what was
changed in them.

Names and changes are facts of llama.cpp: its table of tensors (gguf-py), its converter and its graphs.
"""

from collections.abc import Mapping

from engine.errors import CheckpointError
from engine.formats.gguf.families.dense import DENSE
from engine.formats.gguf.families.mixtures import MIXTURES
from engine.formats.gguf.families.recurrent import RECURRENT
from engine.formats.gguf.families.shared import Architecture
from engine.formats.gguf.file import GgufFile
from engine.json_files import quoted

#: By the name in general.architecture, or that of a variant (named_in).
ARCHITECTURES: Mapping[str, Architecture] = {**DENSE, **MIXTURES, **RECURRENT}


def architecture_in(file: GgufFile) -> Architecture:
    """The architecture of a file. Raises CheckpointError for one that is not served."""
    name, found = named_in(file)
    if name not in ARCHITECTURES:
        served = ", ".join(ARCHITECTURES)
        raise CheckpointError(
            f"{file.path.name}: GGUF files of architecture {quoted(name)} are not served, only {served}"
        )
    return ARCHITECTURES[found]


def named_in(file: GgufFile) -> tuple[str, str]:
    """The name of a file's architecture, and the one in the table: files of one name may have experts or not."""
    name = file.settings.get("general.architecture")
    if not isinstance(name, str):
        raise CheckpointError(f"{file.path.name} has no general.architecture")
    has_experts = bool(file.settings.get(f"{name}.expert_count"))
    has_correction = any(tensor.endswith(".exp_probs_b.bias") for tensor in file.tensors)
    scores = file.settings.get(f"{name}.expert_gating_func", _SIGMOID if has_correction else None)
    if name == "deepseek2" and scores == _SIGMOID:
        return name, "deepseek2 (sigmoid)"
    return name, "mixtral" if name == "llama" and has_experts else name


_SIGMOID = 2  #: the number of this way to make weights of scores
