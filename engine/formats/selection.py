"""Which format a checkpoint has: what config.json says under quantization_config."""

from engine.errors import CheckpointError
from engine.formats.awq import Awq
from engine.formats.bitsandbytes import BitsAndBytes
from engine.formats.compressed_tensors import CompressedTensors
from engine.formats.format import QuantisedFormat
from engine.formats.fp8 import Fp8
from engine.formats.gptq import Gptq
from engine.formats.mxfp4 import Mxfp4
from engine.json_files import quoted
from engine.models.config_reader import ConfigReader

_KEYS = ("quantization_config", "compression_config")


def read_format(config: ConfigReader) -> QuantisedFormat | None:
    """The format of the checkpoint's quantised layers; None: it has none. Raises CheckpointError for formats and
    settings that are not served."""
    places = (config, config.section("text_config"))
    found = [section for place in places if place is not None for key in _KEYS if (section := place.section(key))]
    if not found:
        return None
    method = found[0].require("quant_method", str)
    match method:
        case "gptq":
            return Gptq.from_config(found[0])
        case "awq":
            return Awq.from_config(found[0])
        case "compressed-tensors":
            return CompressedTensors.from_config(found[0])
        case "fp8":
            return Fp8.from_config(found[0])
        case "mxfp4":
            return Mxfp4()
        case "bitsandbytes":
            return BitsAndBytes.from_config(found[0])
    raise CheckpointError(f"config.json: a checkpoint quantised by {quoted(method)} is not served")
