"""What a model may be called: the one pattern of names in settings, flags, model cards and requests."""

import re
from typing import Annotated

from pydantic import StringConstraints

MAX_MODEL_NAME_CHARS = 128
_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._:/-]{{0,{MAX_MODEL_NAME_CHARS - 1}}}"
_MODEL_NAME = re.compile(_PATTERN)

#: A field of a wire model that holds a model's name.
ModelName = Annotated[str, StringConstraints(pattern=rf"^{_PATTERN}$")]


def is_model_name(text: str) -> bool:
    """True if a model may be called `text`: ASCII letters, digits and . _ : / -, the first a letter or a digit."""
    return _MODEL_NAME.fullmatch(text) is not None
