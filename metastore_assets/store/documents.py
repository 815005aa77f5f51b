"""Numbered documents of which the newest counts, each created once, by put-if-absent.

    <folder>/<n>.json    1, 2, 3, …: without a gap above the oldest that is kept
    <folder>/newest      the number of one of the last, as text

So the newest is found in a few requests, however many there are: the number in `newest` is a lower bound that must be
verified, and from there on it is asked for one document after the other, at distances that double. `newest` is written
after a document, so it may be behind, and it may be missing, nonsense, or ahead of a document that somebody has moved
away: then all are listed.
"""

from __future__ import annotations

import re
from contextlib import suppress

from metastore_assets.errors import ObjectExistsError, ObjectNotFoundError, StoreError
from metastore_assets.store.objects import ObjectStore

_NEWEST = "newest"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


class Documents:
    """The documents in one folder of a store."""

    def __init__(self, objects: ObjectStore, folder: str = "versions") -> None:
        self.objects = objects
        self.folder = folder

    def path(self, number: int) -> str:
        """Where a document is."""
        return f"{self.folder}/{number}.json"

    def number(self, path: str) -> int | None:
        """The number of the document at that path; None when it is another kind of file."""
        name = path.removeprefix(f"{self.folder}/").removesuffix(".json")
        return int(name) if _NUMBER.fullmatch(name) and path == self.path(int(name)) else None

    def owns(self, path: str) -> bool:
        """Whether that is a document, or tells which is the newest or the oldest."""
        return path in (f"{self.folder}/{_NEWEST}", self.oldest_path) or self.number(path) is not None

    @property
    def oldest_path(self) -> str:
        """Where it is kept which document is to be removed next (see `store.garbage`)."""
        return f"{self.folder}/oldest"

    def numbers(self) -> list[int]:
        """The numbers of all documents, ascending. Lists them: a request per thousand."""
        numbers = (self.number(info.path) for info in self.objects.list(self.folder))
        return sorted(number for number in numbers if number is not None)

    def newest(self) -> int:
        """The number of the newest document, 0 when there is none."""
        known = self._told()
        if not known or not self.exists(known):
            return max(self.numbers(), default=0)
        step = 1
        while self.exists(known + step):
            known += step
            step *= 2
        beyond = known + step
        while beyond - known > 1:
            middle = (known + beyond) // 2
            known, beyond = (middle, beyond) if self.exists(middle) else (known, middle)
        return known

    def exists(self, number: int) -> bool:
        """Whether a document is there."""
        return self.objects.info(self.path(number)) is not None

    def read(self, number: int) -> bytes:
        """One document. Raises ObjectNotFoundError."""
        return self.objects.read(self.path(number))

    def create(self, number: int, data: bytes) -> bool:
        """Make `data`, which must be unlike all that others write, a document; False when there is one already.

        After a StoreError there may be one or not.
        """
        path = self.path(number)
        try:
            self.objects.write(path, data, create=True)
        except ObjectExistsError:
            # A put whose answer was lost on the way is repeated by the client, and then finds its own object.
            if self.objects.read(path) != data:
                return False
        with suppress(StoreError):  # the document is there; this only spares whoever looks for it
            self.objects.write(f"{self.folder}/{_NEWEST}", str(number).encode())
        return True

    def _told(self) -> int:
        try:
            text = self.objects.read(f"{self.folder}/{_NEWEST}").decode("ascii", "replace")
        except ObjectNotFoundError:
            return 0
        return int(text) if _NUMBER.fullmatch(text) else 0
