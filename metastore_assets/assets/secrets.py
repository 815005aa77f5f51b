"""Errors as Dagster may store them: an event has all causes of an error, and those are in the words of others."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from metastore_assets.errors import MetastoreError
from metastore_assets.messages import remove_secrets


@contextmanager
def hide_secrets() -> Iterator[None]:
    """Whatever is raised inside comes out as it is, unless it or a cause of it has a secret in its message.

    Then an error of the Metastore loses its causes, and any other becomes one, with its message without the secret.
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
