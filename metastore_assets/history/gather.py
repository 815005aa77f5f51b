"""When the history gets its rows: gathered from versions, several at a time, before they are removed.

A version says by itself all that the history says of it, as long as it is there. So a commit of a table does not wait
for a commit to its history: rows are appended when there was time between two publishes, after many of them, and before
versions are removed. Reading adds what is not appended yet. Which versions are appended the Delta table says itself, in
the commit that has their rows: so what was killed is made good by the next, and two at a time do not double.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.extras import is_installed
from metastore_assets.history.delta_table import ConflictError, HistoryTable, why_none
from metastore_assets.history.rows import SCHEMA, hidden_columns, rows_of, without_values
from metastore_assets.store.manifest import Version
from metastore_assets.store.versions import HISTORY, VersionStore

QUIET = timedelta(minutes=10)
"""Who publishes after so long a time appends what there is: that is little beside what it waited for."""
MOST = 16
"""Where publishes are closer, the last of so many appends."""
_ATTEMPTS = 5
_GATHERED = f"{HISTORY}/_gathered"
"""A hint: the number of the newest version that was appended, as text, for who asks what may be removed."""
_one_at_a_time = Lock()
"""The library's threads do not always end well when several commits were in conflict in one process."""


def gather(versions: VersionStore) -> int:
    """Append the versions that the history lacks; the number of the newest that it has then, 0 where there is none.

    Raises MissingPackageError without `deltalake`, StoreError.
    """
    table = HistoryTable(versions.objects)
    for attempt in range(_ATTEMPTS):
        with _one_at_a_time:
            last = table.last()
            lacking = [number for number in versions.numbers() if number > last]
            if lacking:
                try:
                    table.append(rows_of(versions, lacking, hidden_columns(versions, lacking[-1])), last, lacking[-1])
                except ConflictError:
                    if attempt + 1 == _ATTEMPTS:
                        raise
                    continue
                last = lacking[-1]
        versions.objects.write(_GATHERED, str(last).encode())
        return last
    raise AssertionError("the last attempt returns or raises")


def keep_history(versions: VersionStore, base: Version | None, new: Version, keep: int, grace: timedelta) -> int:
    """After `new` was published on top of `base`: append what the history lacks, if it is time for that.

    The number up to which versions may be removed: of all but the last `keep` those that the history has. A version is
    not removed while the one after it is younger than `grace`. Without `deltalake`, and where it cannot be, no history
    is kept, and all may go.

    Raises StoreError.
    """
    outdated = new.number - keep
    if not is_installed("history") or why_none(versions.objects) is not None:
        return outdated
    gathered = _gathered(versions) if outdated > 0 else 0
    is_time = base is not None and (new.published_at - base.published_at >= QUIET or new.number % MOST == 0)
    if is_time or (gathered < outdated and _is_replaced(versions, gathered + 1, grace)):
        gathered = gather(versions)
    return min(outdated, gathered)


def _gathered(versions: VersionStore) -> int:
    try:
        return int(versions.objects.read(_GATHERED))
    except (ObjectNotFoundError, ValueError):
        return 0


def _is_replaced(versions: VersionStore, number: int, grace: timedelta) -> bool:
    """Whether a version might be removed: the one after it is that old, or is not there."""
    following = versions.objects.info(versions.documents.path(number + 1))
    return following is None or following.modified < datetime.now(UTC) - grace


def read_history(versions: VersionStore, newest: int) -> pa.Table:
    """The rows of all versions up to `newest`, those that are gone included, by version and position of the column.

    Of columns whose values are hidden in that version nothing is told of values. Raises MissingPackageError where there
    is a Delta table and no `deltalake`, StoreError.
    """
    rows, last = SCHEMA.empty_table(), 0
    is_kept = is_installed("history") or versions.objects.list(f"{HISTORY}/_delta_log")
    if is_kept and why_none(versions.objects) is None:
        rows, last, _ = HistoryTable(versions.objects).read()
    lacking = [number for number in versions.numbers() if last < number <= newest]
    hidden = hidden_columns(versions, newest)
    found = pa.concat_tables([rows.filter(pc.less_equal(rows["version"], newest)), rows_of(versions, lacking, hidden)])
    if not hidden:
        return found.combine_chunks()
    return without_values(found, pc.is_in(found["field_id"], value_set=pa.array(sorted(hidden)))).combine_chunks()
