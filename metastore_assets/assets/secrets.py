"""Removal of secrets from errors, because Dagster stores the messages of an error and of all its causes."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from metastore_assets.errors import MetastoreError
from metastore_assets.messages import remove_secrets


@contextmanager
def hide_secrets() -> Iterator[None]:
    """Remove secrets from errors that the block raises.

    An error without a secret in its messages and causes is unchanged. A MetastoreError with a secret in its causes is
    raised without causes. Any other error becomes a MetastoreError whose message has the secret removed.
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
