"""A history of statistics: appending of versions, reading, and removal of column values.

A history has a row for each version and column. While a version exists, its rows can be computed from it, so not
every publish of a version appends to the history. A version is missing if the history does not have its rows yet. A
publish appends all missing versions in any of three cases: the number of the new version is a multiple of 16, a missing
version is about to be removed, or the previous publish was at least 10 minutes earlier. Readers compute the rows of
missing versions.

Each commit of the Delta table records the last appended version. So an interrupted append is repeated, and concurrent
appends do not duplicate rows.

The root is the folder with all stored state, which includes histories. A version has the statistics of one snapshot of
the table. A hidden column has the policy `values: hidden`: new versions have no values of it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import ObjectNotFoundError, StoreError, VersionNotFoundError
from metastore_assets.extras import is_installed
from metastore_assets.history.delta_table import ConflictError, HistoryTable, explain_unavailable
from metastore_assets.history.version_rows import SCHEMA, find_hidden_columns, read_rows, remove_values_of
from metastore_assets.store.version import Version
from metastore_assets.store.versions import HISTORY, VersionStore

PAUSE = timedelta(minutes=10)
"""A publish appends to the history if the previous publish is at least this long ago."""
MAX_VERSIONS = 16
"""A publish also appends if its version number is a multiple of this, even after a shorter pause."""
_ATTEMPTS = 5
_CHANGED = (ConflictError, ObjectNotFoundError, VersionNotFoundError)
"""Errors after which an update is repeated: another process changed the history, or removed the newest version."""
_LAST_APPENDED = f"{HISTORY}/_last_appended"
"""A file with the number of the last appended version as text. It is a hint, so that a publish need not open the Delta
table."""
_one_at_a_time = Lock()
"""Allows one append at a time in this process: threads of `deltalake` sometimes hang when several commits conflict."""


def append_versions(versions: VersionStore) -> int:
    """Append to a table's history all stored versions that are newer than the last one in it.

    Returns:
        The number of the last version in the history; 0 if the table has no versions.

    Raises:
        MissingPackageError: `deltalake` is not installed.
        StoreError: The root or the history cannot be read or written, or other processes keep changing the history.
    """
    table = HistoryTable(versions.objects)
    for attempt in range(_ATTEMPTS):
        with _one_at_a_time:
            last_appended = table.last_appended()
            missing_numbers = [number for number in versions.numbers() if number > last_appended]
            if missing_numbers:
                try:
                    rows = read_rows(versions, missing_numbers, find_hidden_columns(versions, missing_numbers[-1]))
                    # If the root cannot be written, this error says why. Those of `deltalake` do not, and it panics.
                    _record_last_appended(versions, last_appended)
                    table.append(rows, last_appended, missing_numbers[-1])
                except _CHANGED as error:
                    if attempt + 1 == _ATTEMPTS:
                        raise _changed_error(versions) from error
                    continue
                last_appended = missing_numbers[-1]
        if missing_numbers or _read_last_appended(versions) != last_appended:
            _record_last_appended(versions, last_appended)
        return last_appended
    raise AssertionError("the last attempt returns or raises")


def append_when_due(
    versions: VersionStore, base: Version | None, new: Version, retained_versions: int, grace: timedelta
) -> int:
    """Append the versions that the history lacks, in the three cases of the module docstring.

    A version must not be removed before the history has its rows. If `deltalake` is not installed or cannot write to
    the location, there is no history, and all versions but the newest `retained_versions` ones may be removed.

    Args:
        versions: The versions of the table.
        base: The previous version; None if `new` is the first one.
        new: The version that was just published.
        retained_versions: The number of newest versions that are not removed.
        grace: The caller does not remove a version while the next version is younger than this.

    Returns:
        The number of the newest version that may be removed. All older ones may be removed, too. 0 or less means none.

    Raises:
        StoreError: The root cannot be read or written.
    """
    last_outdated = new.number - retained_versions
    if not is_installed("history") or explain_unavailable(versions.objects) is not None:
        return last_outdated
    last_appended = _read_last_appended(versions) if last_outdated > 0 else 0
    is_due = base is not None and (new.published_at - base.published_at >= PAUSE or new.number % MAX_VERSIONS == 0)
    if is_due or (last_appended < last_outdated and _may_be_removed(versions, last_appended + 1, grace)):
        last_appended = append_versions(versions)
    return min(last_outdated, last_appended)


def _record_last_appended(versions: VersionStore, last_appended: int) -> None:
    """Record in the root the number of the last version that was appended to the history.

    Raises StoreError if the root cannot be written.
    """
    versions.objects.refuse_links(HISTORY)
    versions.objects.write(_LAST_APPENDED, str(last_appended).encode())


def _read_last_appended(versions: VersionStore) -> int:
    """Return the recorded number of the last appended version; 0 if it is missing or invalid."""
    try:
        return int(versions.objects.read(_LAST_APPENDED))
    except (ObjectNotFoundError, ValueError):
        return 0


def _may_be_removed(versions: VersionStore, number: int, grace: timedelta) -> bool:
    """Return whether a version was replaced long enough ago that it may be removed.

    This is so if the next version is older than `grace`, or was already removed.
    """
    next_document = versions.objects.info(versions.documents.path(number + 1))
    return next_document is None or next_document.modified < datetime.now(UTC) - grace


def read_history(versions: VersionStore, newest: int) -> pa.Table:
    """Return the rows of all versions up to `newest`, including expired ones.

    They are sorted by version and column position. Columns whose values are hidden in `newest` have no values in any
    version.

    Args:
        versions: The versions of the table.
        newest: The number of the newest version in the result.

    Raises:
        MissingPackageError: There is a Delta table, and `deltalake` is not installed.
        StoreError: The root cannot be read.
    """
    rows, last_appended = SCHEMA.empty_table(), 0
    may_exist = is_installed("history") or versions.objects.list(f"{HISTORY}/_delta_log")
    if may_exist and explain_unavailable(versions.objects) is None:
        rows, last_appended, _ = HistoryTable(versions.objects).read()
    missing_numbers = [number for number in versions.numbers() if last_appended < number <= newest]
    hidden_columns = find_hidden_columns(versions, newest)
    stored_rows = rows.filter(pc.less_equal(rows["version"], newest))
    rows = pa.concat_tables([stored_rows, read_rows(versions, missing_numbers, hidden_columns)])
    if hidden_columns:
        rows = remove_values_of(rows, pc.is_in(rows["field_id"], value_set=pa.array(sorted(hidden_columns))))
    return rows.combine_chunks()


def remove_values(versions: VersionStore, before: int) -> None:
    """Remove the column values of old versions from a history, and the files that contained these values.

    Column values are statistics that reveal contents of rows, such as `minimum`. Counts are retained. A column whose
    values are hidden in the newest version loses its values in all versions. The same commit adds the versions that the
    history lacks.

    Args:
        versions: The versions of the table.
        before: The number of the oldest version whose values are retained.

    Raises:
        MissingPackageError: There is a history, and `deltalake` is not installed.
        StoreError: The root cannot be read or written.
    """
    may_exist = is_installed("history") and explain_unavailable(versions.objects) is None
    if not may_exist and not versions.objects.list(f"{HISTORY}/_delta_log"):
        return
    table = HistoryTable(versions.objects)
    for attempt in range(_ATTEMPTS):
        rows, last_appended, commit = table.read()
        missing_numbers = [number for number in versions.numbers() if number > last_appended]
        newest = missing_numbers[-1] if missing_numbers else last_appended
        try:
            hidden_columns = find_hidden_columns(versions, newest)
            rows = pa.concat_tables([rows, read_rows(versions, missing_numbers, hidden_columns)])
            is_hidden = pc.is_in(rows["field_id"], value_set=pa.array(sorted(hidden_columns), pa.string()))
            rows = remove_values_of(rows, pc.or_(pc.less(rows["version"], before), is_hidden))
            _record_last_appended(versions, last_appended)
            table.replace(rows, commit, newest)
        except _CHANGED as error:
            if attempt + 1 == _ATTEMPTS:
                raise _changed_error(versions) from error
            continue
        return


def _changed_error(versions: VersionStore) -> StoreError:
    """Return the error for an update that other processes interrupted in every attempt."""
    return StoreError(f"the history of table {versions.table!r} was changed during every attempt: try again")
