"""Retired fragments: removed by a recent version, but with profiles that are retained for a restore.

A fragment is a data file with its deletes, and its profile is its statistics. A version is the published statistics of
a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Collection

from metastore_assets.store.entries import RETIRED
from metastore_assets.store.entry_changes import entries_of
from metastore_assets.store.version import RetiredFragment, Version, least_retiring_version, retired_prefix


def find_retired(version: Version, ids: Collection[str]) -> list[RetiredFragment]:
    """Return the retired fragments in a version that have one of these ids."""
    numbers = _retiring_versions(version)
    if len(numbers) * len(ids) > len(version.retired):
        wanted_ids = set(ids)
        return [entry for entry in version.retired if entry.fragment.id in wanted_ids]
    keys = [f"{retired_prefix(number)}{id_}" for number in numbers for id_ in ids]
    return list(entries_of(version, RETIRED).find_all(keys).values())


def expired_fragments(version: Version, last_expired: int) -> list[RetiredFragment]:
    """Return the retired fragments that the version `last_expired` or an earlier one removed."""
    prefixes = [retired_prefix(number) for number in _retiring_versions(version) if number <= last_expired]
    return entries_of(version, RETIRED).find_prefixes(prefixes)


def _retiring_versions(version: Version) -> range:
    """Return a range of version numbers that includes each version that removed a retired fragment.

    It may also include versions that removed none. It is empty if `version` has no retired fragments.
    """
    if not len(version.retired):
        return range(0)
    least_key = entries_of(version, RETIRED).least_key()
    return range(1 if least_key is None else least_retiring_version(least_key), version.number + 1)
