"""Lookups of retired (removed) fragments in files equal those in a list, also with shortened bounds.

Retired fragments are stored by keys that begin with the number of a version. The least and greatest keys of each file
are recorded, and may be shortened.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from metastore_assets.pipeline.retired_fragments import expired_fragments, find_retired
from metastore_assets.store.entries import RETIRED, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges, entries_of, write_entries
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segment_merge import shorten_bounds
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.store.version import RetiredFragment
from tests.store.sample_versions import fragment, version, write_small_segments


@pytest.mark.parametrize("numbers", [range(4, 12), (8, 9, 10, 11), (99, 1000, 1001, 2000), (1009, 1010, 12345)])
def test_a_bound_of_the_keys_may_have_only_the_first_digits_of_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    """Lookups and expiry are correct if the least key has only the first digits of a version's number.

    Each file has the fragments of one version. The test is repeated without the first file, without the first two, and
    so on.
    """
    write_small_segments(monkeypatch)
    objects = ObjectStore(str(tmp_path))
    retired_fragments = [RetiredFragment(number, fragment(f"{number}-{at}")) for number in numbers for at in range(4)]
    retired_fragments.sort(key=lambda entry: entry.key)
    changes = EntryChanges.between(RETIRED, None, retired_fragments)
    written_entries = write_entries(objects, changes, allow_step=True, may_merge=True)
    files = tuple(shorten_bounds(written_entries.files))
    assert [file.rows for file in files] == [4] * len(numbers)
    short_bound_count = 0
    for removed_count in range(len(files)):
        remaining_files = files[removed_count:]
        entries = retired_fragments[-sum(file.rows for file in remaining_files) :]
        stored_entries = StoredEntries(RETIRED, objects, SegmentFiles(len(entries), remaining_files))
        base = replace(version(numbers[-1] + 1, fragments=0), retired=stored_entries)
        least_key = entries_of(base, RETIRED).least_key()
        assert isinstance(least_key, str)
        short_bound_count += "\0" not in least_key
        for last_expired in (*numbers, 3, 999, 1005):
            expired_entries = [entry for entry in entries if entry.retired <= last_expired]
            assert expired_fragments(base, last_expired) == expired_entries
        for entry in entries:
            assert find_retired(base, [entry.fragment.id, "missing"]) == [entry]
    assert short_bound_count
