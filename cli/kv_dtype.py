"""The choices of --kv-dtype, as the commands that start an engine offer them."""

from enum import StrEnum


class KVDType(StrEnum):
    AUTO = "auto"
    INT8 = "int8"
    FP8 = "fp8"
