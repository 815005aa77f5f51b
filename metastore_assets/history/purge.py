"""Taking values out of a history."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import StoreError
from metastore_assets.extras import is_installed
from metastore_assets.history.delta_table import ConflictError, HistoryTable, why_none
from metastore_assets.history.rows import hidden_columns, rows_of, without_values
from metastore_assets.store.versions import HISTORY, VersionStore

_ATTEMPTS = 5


def forget_values(versions: VersionStore, before: int) -> None:
    """Have the history tell nothing of values of versions below the number `before`, and no file of it that did.

    Counts stay. Columns whose values are hidden now tell nothing in any version. Versions that the history lacks are
    appended. Raises MissingPackageError where there is a history, and no `deltalake`; StoreError.
    """
    is_kept = is_installed("history") and why_none(versions.objects) is None
    if not is_kept and not versions.objects.list(f"{HISTORY}/_delta_log"):
        return
    table = HistoryTable(versions.objects)
    for _ in range(_ATTEMPTS):
        rows, last, commit = table.read()
        lacking = [number for number in versions.numbers() if number > last]
        newest = lacking[-1] if lacking else last
        hidden = hidden_columns(versions, newest)
        rows = pa.concat_tables([rows, rows_of(versions, lacking, hidden)])
        old = pc.less(rows["version"], before)
        rows = without_values(
            rows, pc.or_(old, pc.is_in(rows["field_id"], value_set=pa.array(sorted(hidden), pa.string())))
        )
        try:
            table.replace(rows, commit, newest)
        except ConflictError:
            continue
        return
    raise StoreError(f"the history of table {versions.table!r} changes all the time: try again")
