"""Removal of secrets, such as passwords in URIs, from errors.

Dagster stores the message of an error and the messages of all its causes.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from metastore_assets.errors import MetastoreError
from metastore_assets.messages import remove_secrets


@contextmanager
def hide_secrets() -> Iterator[None]:
    """Remove secrets from errors that the block raises.

    - An error without secrets in any message is raised unchanged.
    - A MetastoreError with secrets only in its causes is raised without causes.
    - Any other error becomes a MetastoreError without causes, whose message contains no secret.
    """
    try:
        yield
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        if remove_secrets(text) == text:
            raise
        if not isinstance(error, MetastoreError) or remove_secrets(str(error)) != str(error):
            raise MetastoreError(f"{type(error).__name__}: {error}") from None
        error.__cause__, error.__suppress_context__ = None, True
        raise
