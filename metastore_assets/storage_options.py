"""Storage options of object stores, of a root and of a table alike, as arguments of obstore."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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
    return {"config": config, "client_options": client or None, "retry_config": retry}


def _client_value(key: str, value: str) -> bool | str:
    return value.strip().lower() in ("true", "1", "yes", "on") if key in _FLAGS else value
