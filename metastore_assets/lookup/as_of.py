"""Which of a table's published versions is meant by a number, a snapshot or a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.iso8601 import parse_timestamp
from metastore_assets.messages import listed
from metastore_assets.store.manifest import Version
from metastore_assets.store.versions import VersionStore

VersionChoice: TypeAlias = int | str | datetime
"""A version's number; a snapshot's id, or a time in ISO 8601, as text; or a time. Without a zone a time is in UTC."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def find_version(versions: VersionStore, wanted: VersionChoice) -> Version:
    """The version that is meant; of several of a snapshot, or up to a time, the newest. Raises VersionNotFoundError.

    At a time a version counts if its snapshot was committed by then or, where the table's format records no time, if it
    was published by then. Reads the documents of versions from the newest on.
    """
    if isinstance(wanted, int):
        return versions.read(wanted)
    moment = _moment(wanted)
    seen: list[str] = []
    for version in _from_newest(versions):
        if version.snapshot == wanted:
            return version
        seen.append(version.snapshot)
    if moment is not None:
        for version in _from_newest(versions):
            if (version.committed_at or version.published_at) <= moment:
                return version
        raise VersionNotFoundError(
            f"table {versions.table!r} has no published version of {moment.isoformat()} or before"
        )
    raise VersionNotFoundError(
        f"table {versions.table!r} has no published version of snapshot {wanted!r}; there are versions of the "
        f"snapshots {listed(list(dict.fromkeys(seen)))}. Versions by number are integers, times are in ISO 8601"
    )


def _from_newest(versions: VersionStore) -> Iterator[Version]:
    for number in reversed(versions.numbers()):
        try:
            yield versions.read(number)
        except VersionNotFoundError:
            continue  # expired since it was listed


def _moment(wanted: str | datetime) -> datetime | None:
    """A time, or a text that is one; None for any other text."""
    if isinstance(wanted, datetime):
        return wanted if wanted.tzinfo is not None else wanted.replace(tzinfo=UTC)
    try:
        ticks, _ = parse_timestamp(wanted, "us")
        return _EPOCH + timedelta(microseconds=ticks)
    except (ValueError, OverflowError):
        return None
