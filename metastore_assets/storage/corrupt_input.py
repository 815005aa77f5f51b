"""What decoders raise for bytes that are not what they should be, as errors of ours that name the file."""

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
from metastore_assets.messages import tidy
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
"""What a decoder may raise: of damaged bytes no library documents all."""
_MOST = 500
_DIGITS = re.compile(
    r"Exceeds the limit \((\d+) digits\) for integer string conversion(: value has \d+ digits.*limit)?"
)


class UnsupportedError(pa.ArrowInvalid):  # type: ignore[misc]
    """Raised for content that is sound and that this package cannot read: says what it is, and what to do."""


_UNSUPPORTED = re.compile(
    r"not (currently )?supported|Unsupported|[Nn]ot (yet )?implemented|encrypted metadata|decrypt", re.ASCII
)
"""What Arrow says in errors of its general type OSError."""


def is_unsupported(error: BaseException) -> bool:
    """Return whether a decoder's error means that support is missing, rather than that the bytes are damaged."""
    if isinstance(error, UnsupportedError | NotImplementedError):
        return True
    return type(error) is OSError and error.errno is None and _UNSUPPORTED.search(str(error)) is not None


class LimitError(ValueError):
    """Raised when a file claims, holds or unpacks to more than is believed: says what, how much, and the limit."""


class InvalidContentError(pa.ArrowInvalid):  # type: ignore[misc]
    """Raised when a file is not what it should be. Says what, and what it says quotes no value of a row.

    `without_values` is the message without any, where it does quote some.
    """

    def __init__(self, message: str, without_values: str | None = None) -> None:
        super().__init__(message)
        self.without_values = message if without_values is None else without_values

    def with_hint(self, hint: str) -> InvalidContentError:
        """Return the error with more text at its end, which quotes no value."""
        return InvalidContentError(f"{self}{hint}", f"{self.without_values}{hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return InvalidContentError, (str(self), self.without_values)


def check_limit(limit: int, number: int, what: str) -> None:
    """Raise LimitError for a number of something (`bytes unpacked`) that is beyond a limit."""
    if number > limit:
        raise LimitError(f"{number:,} {what}; at most {limit:,} are read")


@contextmanager
def metadata_errors(path: str, what: str = "") -> Iterator[None]:
    """Turn what goes wrong with the content of a file of metadata into a TableFormatError that names it.

    `what` it is goes before the path. That it is not there, whoever reads it explains.
    """
    try:
        yield
    except (MetastoreError, FileNotFoundError):
        raise
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{f'{what} {path}'.lstrip()} cannot be read", error) from error


def unreadable_error(what: str, error: BaseException) -> TableFormatError:
    """Return the error that says what cannot be read, and why. Where values are hidden, it can do without the why."""
    return with_redacted_message(TableFormatError(f"{what}: {error_reason(error)}"), what, error)


def with_redacted_message(made: E, what: str, error: BaseException) -> E:
    """Return an error that was made with the reason of another, and knows what it says without that: `what`."""
    quiet = getattr(error, "without_values", str(error) if isinstance(error, LimitError) else None)
    made.without_values = f"{what} ({type(error).__name__})" if quiet is None else f"{what}: {tidy(quiet)}"
    return made


def error_reason(error: BaseException) -> str:
    """Why something cannot be read, as a clause of bounded length: what the error says, or what its type means."""
    text = _DIGITS.sub(lambda found: f"it has a number of more than {found[1]} digits", " ".join(str(error).split()))
    if isinstance(error, RecursionError):
        text = "it is nested too deeply"
    elif isinstance(error, KeyError):
        text = f"it lacks the field {text}"
    elif isinstance(error, MemoryError):
        text = memory_exceeded_clause(current_limit())
    elif isinstance(error, TypeError | AttributeError | IndexError | AssertionError) or not text:
        text = f"it is not built as it should be ({type(error).__name__}{f': {text}' if text else ''})"
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
