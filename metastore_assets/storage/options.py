"""Storage options of object stores, of a root and of a table alike, as arguments of obstore."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

_VARIABLES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
"""What variables of the environment begin with, by the scheme of a URI."""
_PREFIX = re.compile(r"^(aws|google|azure)_")
_FLAGS = {"allow_http", "allow_invalid_certificates", "http1_only", "http2_only", "randomize_addresses"}
_CLIENT = _FLAGS | {
    "connect_timeout",
    "pool_idle_timeout",
    "proxy_url",
    "proxy_excludes",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
_WRITER = {"s3_allow_unsafe_rename", "s3_locking_provider", "conditional_put", "copy_if_not_exists"}
_S3 = {"s3", "s3a", "s3n"}
_IDENTITY = {"access_key_id", "secret_access_key", "session_token", "token", "skip_signature"}
_HOST = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
"""The variable that says where the host of a container gives out access."""
_BEFORE_HOST = {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}
"""Those of ways that come first, or that obstore knows."""
_FRESH = timedelta(minutes=5)
_MAX_RETRIES = 6
_RETRY_SECONDS = 60
"""obstore's own 10 retries over 3 minutes make a mistyped endpoint look like a hang; this gives up in some seconds."""


def obstore_arguments(scheme: str, options: Iterable[tuple[str, str]], *, reads_only: bool = False) -> dict[str, Any]:
    """What obstore's `from_url` is to be given beside the URL. Raises ValueError when a number is none.

    Options are obstore's, as text: `aws_endpoint`, `aws_region`, …; of its HTTP client, such as `allow_http` (also
    `aws_allow_http`); and `max_retries`, `retry_timeout` (seconds). What is absent comes from the environment. With
    `reads_only`, those that other libraries take and that only matter to who writes are left out.
    """
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    retry: dict[str, Any] = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
    for key, value in options:
        bare = _PREFIX.sub("", key.lower())
        if bare in _CLIENT:
            client[bare] = _client_value(bare, value)
        elif bare == "max_retries":
            retry[bare] = int(value)
        elif bare == "retry_timeout":
            retry[bare] = timedelta(seconds=float(value))
        elif not (reads_only and bare in _WRITER):
            config[key] = value
    if client and scheme in _VARIABLES:
        # Given any, obstore ignores all of the client's variables in the environment.
        for key in _CLIENT - set(client):
            if (inherited := os.environ.get(f"{_VARIABLES[scheme]}_{key.upper()}")) is not None:
                client[key] = _client_value(key, inherited)
    found = {"config": config, "client_options": client or None, "retry_config": retry}
    if scheme in _S3 and _is_given_out(config):
        found["credential_provider"] = _given_out()
    return found


def _is_given_out(config: Mapping[str, Any]) -> bool:
    """Whether access is what the host of a container gives out, in a way that obstore does not ask for itself: without
    a token, or with one that is no file."""
    own = {_PREFIX.sub("", key.lower()) for key in config} & _IDENTITY
    environment = {name for name, value in os.environ.items() if value}
    return not own and _HOST in environment and not environment & _BEFORE_HOST


def _given_out() -> Any:
    """Asks for that, by boto3, whenever what there is gets old. Raises ValueError without it."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ModuleNotFoundError as error:
        raise ValueError(f"${_HOST} says who gives out access, and asking takes the package {error.name}") from error
    return Boto3CredentialProvider(ttl=_FRESH)


def _client_value(key: str, value: str) -> bool | str:
    return value.strip().lower() in ("true", "1", "yes", "on") if key in _FLAGS else value
