"""What a model may be called, in flags and in model cards."""

import pytest
from pydantic import TypeAdapter, ValidationError

from wire.model_names import MAX_MODEL_NAME_CHARS, ModelName, is_model_name

_FIELD: TypeAdapter[str] = TypeAdapter(ModelName)


@pytest.mark.parametrize("name", ["raven", "Qwen/Qwen3-0.6B", "a:b_c.d-e", "7", "x" * MAX_MODEL_NAME_CHARS])
def test_usable_names(name: str) -> None:
    assert is_model_name(name)
    assert _FIELD.validate_python(name) == name


@pytest.mark.parametrize(
    "name", ["", "-raven", "/raven", "a b", "raven\n", "r\u00e4ven", "<b>", "x" * (MAX_MODEL_NAME_CHARS + 1)]
)
def test_unusable_names_are_refused_by_flags_and_fields_alike(name: str) -> None:
    assert not is_model_name(name)
    with pytest.raises(ValidationError):
        _FIELD.validate_python(name)
