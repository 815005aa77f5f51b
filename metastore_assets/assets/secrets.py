"""Removal of secrets from errors. Dagster stores an error with all its causes, which other libraries word."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from metastore_assets.errors import MetastoreError
from metastore_assets.messages import remove_secrets


@contextmanager
def hide_secrets() -> Iterator[None]:
    """Raise errors without secrets: an error passes unchanged unless its message or a cause contains one.

    A MetastoreError then loses its causes. Any other error becomes a MetastoreError with the secret removed.
    """
    try:
        yield
    except Exception as error:
        told = "".join(traceback.format_exception(error))
        if remove_secrets(told) == told:
            raise
        if not isinstance(error, MetastoreError) or remove_secrets(str(error)) != str(error):
            raise MetastoreError(f"{type(error).__name__}: {error}") from None
        error.__cause__, error.__suppress_context__ = None, True
        raise
