"""The source form of hosted models: what it says, and that it never has a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.hosted_models import HostedModel


def test_a_source_names_model_url_and_options() -> None:
    found = HostedModel.parse('openai:org/model@2024@https://h.x:8/v1/#key_env=K&max_running=3&body={"a":null}')
    assert (found.model, found.url) == ("org/model@2024", "https://h.x:8/v1")
    assert (found.key_env, found.max_running, found.body) == ("K", 3, {"a": None})


@given(
    st.builds(
        HostedModel,
        model=st.just("m"),
        url=st.just("https://h/v1"),
        key_file=st.none() | st.text("ab/&#=% +,\u00e9", min_size=1, max_size=20),
        requests_per_minute=st.none() | st.integers(1, 100),
        stream_usage=st.booleans(),
        body=st.dictionaries(
            st.text("xyz&=#", max_size=5), st.none() | st.text(max_size=5) | st.booleans(), max_size=2
        ),
        headers=st.just({"x-team": "a&b=c"}),
    )
)
def test_a_source_is_read_back_as_it_was_written(hosted: HostedModel) -> None:
    assert HostedModel.parse(str(hosted)) == hosted


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("openai:m@ftp://h", "is named openai:MODEL@https://HOST/v1"),
        ("openai:@https://h/v1", "is named openai:MODEL@https://HOST/v1"),
        ("openai:m@https://me:hunter2@h/v1", "no user and password"),
        ("openai:m@https://h/v1?key=hunter2", "no query but api-version"),
        ("openai:m@https://h/v1#key=hunter2", "have no option 'key'"),
        ("openai:m@https://h/v1#key_env=A&key_file=/k", "exclude each other"),
        ("openai:m@https://h/v1#key_env=A&key_env=B", "given twice"),
        ("openai:m@https://h/v1#key_env=agon_worker_token", "of Agon's own"),
        ('openai:m@https://h/v1#headers={"Authorization":"hunter2"}', "has a secret"),
        ('openai:m@https://h/v1#headers={"x":"hunter2\\n"}', "headers"),
        ('openai:m@https://h/v1#body={"messages":"hunter2"}', "set by the adapter"),
        ("openai:m@https://h/v1#body=hunter2", "body: a JSON object"),
        ("openai:m@https://h/v1#tokens_per_day=hunter2", "tokens_per_day"),
        ("openai:m@https://h/v1#cost_per_day=3", "needs prompt_price or answer_price"),
        ("openai:m@https://h/v1#model=other", "no options"),
    ],
)
def test_a_source_that_is_not_understood_is_refused_by_a_sentence_without_its_values(
    source: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=r".+") as refusal:
        HostedModel.parse(source)
    assert sentence in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
