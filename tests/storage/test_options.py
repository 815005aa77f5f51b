"""Storage options become obstore's arguments for the store, its HTTP client, and retries."""

from __future__ import annotations

from datetime import timedelta

import pytest

from metastore_assets.storage.object_store import obstore_arguments


def parsed(scheme: str = "s3", *, reads_only: bool = False, **options: str) -> tuple[object, object, object]:
    result = obstore_arguments(scheme, options.items(), reads_only=reads_only)
    return result["config"], result["client_options"], result["retry_config"]


def test_there_are_no_options_by_default() -> None:
    config, client, retry = parsed()
    assert (config, client) == ({}, None)
    assert retry == {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}


def test_each_option_is_passed_to_its_library() -> None:
    config, client, retry = parsed(
        aws_endpoint="http://x",
        AWS_ALLOW_HTTP=" Yes",
        timeout="5s",
        http1_only="no",
        max_retries="2",
        retry_timeout="1.5",
    )
    assert config == {"aws_endpoint": "http://x"}
    assert client == {"allow_http": True, "timeout": "5s", "http1_only": False}
    assert retry == {"max_retries": 2, "retry_timeout": timedelta(seconds=1.5)}


def test_environment_variables_provide_missing_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an option of the HTTP client is set, environment variables provide the others.

    obstore itself reads these variables only if no such option is set.
    """
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_TIMEOUT", "7s")
    monkeypatch.setenv("GOOGLE_TIMEOUT", "9s")
    assert parsed()[1] is None
    assert parsed(timeout="5s")[1] == {"timeout": "5s", "allow_http": True}
    assert parsed("gs", user_agent="x")[1] == {"user_agent": "x", "timeout": "9s"}


def test_options_of_writers_are_not_passed_to_readers() -> None:
    options = {"conditional_put": "etag", "AWS_S3_ALLOW_UNSAFE_RENAME": "true", "aws_region": "x"}
    assert parsed(**options)[0] == options
    assert parsed(**options, reads_only=True)[0] == {"aws_region": "x"}


@pytest.mark.parametrize("options", [{"max_retries": "many"}, {"retry_timeout": "soon"}])
def test_an_invalid_number_is_an_error(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(options.values()))):
        parsed(**options)
