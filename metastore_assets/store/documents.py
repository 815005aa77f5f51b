"""Numbered JSON documents.

Each is created once, by put-if-absent. The one with the highest number is current.

    <folder>/<n>.json    n = 1, 2, 3, …, without a gap above the oldest retained document
    <folder>/newest      hint: the number of a recent document, as text
    <folder>/oldest      JSON with the number of the document that `store.garbage` deletes next

The newest document is found in a few requests: from the document of the hint, by doubling steps upwards, then by
bisection. The hint is written after its document, so it may be outdated. Without a valid hint, all documents are
listed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from metastore_assets.errors import (
    CorruptionError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    VersionConflictError,
    VersionNotFoundError,
)
from metastore_assets.store.json_fields import mapping, parse_json
from metastore_assets.store.objects import ObjectStore

_NEWEST = "newest"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")

Decoded = TypeVar("Decoded")


class Documents:
    """The documents in one folder of a store."""

    def __init__(self, objects: ObjectStore, folder: str = "versions") -> None:
        self.objects = objects
        self.folder = folder

    def path(self, number: int) -> str:
        """Return the path of a document in the store."""
        return f"{self.folder}/{number}.json"

    def number(self, path: str) -> int | None:
        """Return the number of the document at a path; None if it is no path of a document."""
        name = path.removeprefix(f"{self.folder}/").removesuffix(".json")
        return int(name) if _NUMBER.fullmatch(name) and path == self.path(int(name)) else None

    def contains(self, path: str) -> bool:
        """Return whether a path is that of a numbered document, or of one of the files `newest` and `oldest`."""
        return path in (f"{self.folder}/{_NEWEST}", self.oldest_path) or self.number(path) is not None

    @property
    def oldest_path(self) -> str:
        """The path of the file `oldest`, which names the document that `store.garbage` deletes next."""
        return f"{self.folder}/oldest"

    def numbers(self) -> list[int]:
        """Return the numbers of all documents, ascending.

        Takes one request per thousand documents.
        """
        numbers = (self.number(info.path) for info in self.objects.list(self.folder))
        return sorted(number for number in numbers if number is not None)

    def batches(self) -> Iterator[Sequence[int]]:
        """Yield lists of numbers that together contain all documents.

        Each list is ascending and not empty.

        Read the documents of one list before you request the next one. The last lists have the documents that other
        processes created meanwhile. So the newest document is always read, even if other processes delete older ones at
        the same time: a document is only deleted after a newer one was created.
        """
        listed_numbers: set[int] = set()
        while numbers := [number for number in self.numbers() if number not in listed_numbers]:
            listed_numbers.update(numbers)
            yield numbers

    def newest(self, read_before: int = 0, hint: int | None = None) -> int:
        """Return the number of the newest document, or 0 if there is none.

        Args:
            read_before: Number of a document that exists, because the caller has read it; 0 for none.
            hint: Result of `read_hint`; None to read the hint.
        """
        existing = self.read_hint() if hint is None else hint
        if not existing or (existing != read_before and not self.exists(existing)):
            return max(self.numbers(), default=0)
        step = 1
        while self.exists(existing + step):
            existing += step
            step *= 2
        missing = existing + step
        while missing - existing > 1:
            middle = (existing + missing) // 2
            existing, missing = (middle, missing) if self.exists(middle) else (existing, middle)
        return existing

    def exists(self, number: int) -> bool:
        """Return whether a document exists."""
        return self.objects.info(self.path(number)) is not None

    def read(self, number: int) -> bytes:
        """Return the bytes of one document.

        Raises ObjectNotFoundError if it does not exist.
        """
        return self.objects.read(self.path(number))

    def load(self, number: int, decode: Callable[[Mapping[str, Any]], Decoded], advice: str = "") -> Decoded:
        """Read one document and decode its fields.

        Args:
            number: Number of the document.
            decode: Decodes the fields. It raises ValueError, KeyError, TypeError, AttributeError or CorruptionError for
                damaged fields, and another StoreError for valid fields that cannot be used.
            advice: What a user can do about a damaged document, for the message.

        Raises:
            VersionNotFoundError: There is no such document.
            CorruptionError: The document is damaged.
            StoreError: The document cannot be read or used.
        """
        uri = self.objects.uri(self.path(number))
        try:
            data = self.read(number)
        except ObjectNotFoundError:
            raise VersionNotFoundError(f"{uri} does not exist, or has expired") from None
        try:
            return decode(mapping(parse_json(data), "the document"))
        except (CorruptionError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            cause = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
            raise CorruptionError(f"{uri} is damaged ({cause}){advice and f'; {advice}'}") from error
        except StoreError as error:
            raise type(error)(f"{uri}: {error}") from None

    def publish(self, number: int, fields: Mapping[str, Any]) -> None:
        """Create a document from fields and a unique id of the publisher.

        Update the `newest` hint.

        Raises:
            VersionConflictError: Another publisher has created the document first.
            StoreError: Writing failed. The document may or may not exist.
        """
        # The publisher id makes the documents of two attempts differ, even if everything else is equal.
        data = json.dumps({"publisher": uuid.uuid4().hex, **fields}, indent=1, ensure_ascii=False).encode()
        path = self.path(number)
        try:
            self.objects.write(path, data, create=True)
        except ObjectExistsError:
            # A client that repeats a put whose response was lost finds its own object.
            if self.objects.read(path) != data:
                raise VersionConflictError(
                    f"{self.objects.uri(path)} was published by another process first; plan again from the newest"
                ) from None
        with suppress(StoreError):  # the document exists; the hint only saves requests
            self.objects.write(f"{self.folder}/{_NEWEST}", str(number).encode())

    def read_hint(self) -> int:
        """Return the number in the `newest` hint; 0 without a valid hint.

        The document with this number need not exist.
        """
        try:
            text = self.objects.read(f"{self.folder}/{_NEWEST}").decode("ascii", "replace")
        except ObjectNotFoundError:
            return 0
        return int(text) if _NUMBER.fullmatch(text) else 0
