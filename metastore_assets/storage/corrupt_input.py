"""Conversion of decoder exceptions to errors that name the corrupt file."""

from __future__ import annotations

import lzma
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa

from metastore_assets.errors import MetastoreError, TableFormatError
from metastore_assets.messages import clean_message
from metastore_assets.storage.process_memory import current_limit, memory_exceeded_clause

E = TypeVar("E", bound=MetastoreError)

CORRUPTION_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    MemoryError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    pa.ArrowException,
)
"""Exceptions that decoders raise for corrupt bytes. Libraries do not document all of their exceptions."""
_MAX_REASON_LENGTH = 500
_DIGITS = re.compile(
    r"Exceeds the limit \((\d+) digits\) for integer string conversion(: value has \d+ digits.*limit)?"
)


class UnsupportedError(pa.ArrowInvalid):  # type: ignore[misc]
    """An error about valid content that this package cannot read.

    The message names the content and gives advice.
    """


_UNSUPPORTED = re.compile(
    r"not (currently )?supported|Unsupported|[Nn]ot (yet )?implemented|encrypted metadata|decrypt", re.ASCII
)
"""Matches messages of Arrow about missing support, which it raises as plain OSError."""


def is_unsupported(error: BaseException) -> bool:
    """Return True if a decoder's error means that valid content is not supported."""
    if isinstance(error, UnsupportedError | pa.ArrowNotImplementedError):
        return True
    return type(error) is OSError and error.errno is None and _UNSUPPORTED.search(str(error)) is not None


class LimitError(ValueError):
    """An error about a file that exceeds a limit, such as the greatest number of fields."""


class InvalidContentError(pa.ArrowInvalid):  # type: ignore[misc]
    """An error about invalid content of a file.

    `without_values` is the message for columns whose values are hidden. By default, it is the normal message.
    """

    def __init__(self, message: str, without_values: str | None = None) -> None:
        super().__init__(message)
        self.without_values = message if without_values is None else without_values

    def with_hint(self, hint: str) -> InvalidContentError:
        """Return a copy with a hint at the end of the normal message and of `without_values`.

        The hint must not contain values of rows.
        """
        return InvalidContentError(f"{self}{hint}", f"{self.without_values}{hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return InvalidContentError, (str(self), self.without_values)


def check_limit(limit: int, number: int, what: str) -> None:
    """Raise LimitError if a number exceeds a limit.

    Args:
        limit: The greatest allowed number.
        number: The number.
        what: What is counted, for the message, such as `bytes after decompression`.
    """
    if number > limit:
        raise LimitError(f"{number:,} {what}; at most {limit:,} are read")


@contextmanager
def metadata_errors(path: str, what: str = "") -> Iterator[None]:
    """Convert errors of decoders in the block to a TableFormatError that names the metadata file.

    A FileNotFoundError and any MetastoreError pass unchanged.

    Args:
        path: Path or URI of the file.
        what: The kind of file, for the message, such as `manifest`.
    """
    try:
        yield
    except (MetastoreError, FileNotFoundError):
        raise
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{f'{what} {path}'.lstrip()} cannot be read", error) from error


def unreadable_error(what: str, error: BaseException) -> TableFormatError:
    """Return a TableFormatError that says what failed and why.

    Its `without_values` is the message without values of rows.

    Args:
        what: What failed, without values of rows.
        error: The exception of the decoder.
    """
    return with_redacted_message(TableFormatError(f"{what}: {error_reason(error)}"), what, error)


def with_redacted_message(error: E, what: str, cause: BaseException) -> E:
    """Set `error.without_values`, the message to show if values are hidden, and return the error.

    Args:
        error: The error. Its message may quote values through the message of its cause.
        what: What failed, without values of rows.
        cause: The exception of the decoder.
    """
    safe_cause = getattr(cause, "without_values", str(cause) if isinstance(cause, LimitError) else None)
    error.without_values = (
        f"{what} ({type(cause).__name__})" if safe_cause is None else f"{what}: {clean_message(safe_cause)}"
    )
    return error


def error_reason(error: BaseException) -> str:
    """Return why a file cannot be read.

    The text is cut after 500 characters.
    """
    text = _DIGITS.sub(lambda match: f"it has a number of more than {match[1]} digits", " ".join(str(error).split()))
    if isinstance(error, RecursionError):
        text = "it is nested too deeply"
    elif isinstance(error, KeyError):
        text = f"it lacks the field {text}"
    elif isinstance(error, MemoryError):
        text = memory_exceeded_clause(current_limit())
    elif isinstance(error, TypeError | AttributeError | IndexError | AssertionError) or not text:
        text = f"its structure is invalid ({type(error).__name__}{f': {text}' if text else ''})"
    return text if len(text) <= _MAX_REASON_LENGTH else f"{text[:_MAX_REASON_LENGTH]}…"
