"""User-defined statistics of rows that no stored profile is of: computed by classes that whoever asks has named.

A version says which classes its numbers are by, and of which source. They are code of whoever made the version, so
that none is imported for its sake alone: those are used that the one who asks names too, and those of this package.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.config import ResolvedPolicy
from metastore_assets.errors import ConfigError
from metastore_assets.pipeline.column_spec import DERIVED, parse_column_spec
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.user_defined.finalize import add_user_results
from metastore_assets.statistics.user_defined.loading import load_statistic
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.store.manifest import Version

_SHIPPED = "metastore_assets.statistics.user_defined.shipped:"
_UNNAMED = "is not imported unasked"


class UserDefined:
    """The user-defined statistics of a version's columns, as far as they can be computed of other rows. Safe to share.

    What cannot is absent, and says why: its class is not named here, cannot be imported, or is not the one that the
    version's numbers are by.
    """

    def __init__(self, version: Version, named: Collection[str]) -> None:
        """`named`: the classes, as `module:Class`, that may be imported beside those of this package."""
        self._version = version
        self._named = frozenset(named)

    def classes(self, field_id: str) -> tuple[str, ...]:
        """The classes that can be used of a leaf column, as `module:Class`."""
        return tuple(reference for reference, why_not in self._judged(field_id) if why_not is None)

    def told(
        self, row: ColumnStatistics, policy: ResolvedPolicy, listed: Frequencies | None, of_table: ColumnStatistics
    ) -> ColumnStatistics:
        """`row` with what its states and the list of its values say; of all that the table's row of the column has."""
        if not of_table.user_defined:
            return row
        if policy.statistics:
            row = add_user_results(row, policy, listed)
        missing = {name: own for name, own in of_table.user_defined.items() if name not in row.user_defined}
        if not missing:
            return row
        why_not = self._why_absent(row.field_id)
        absent = {name: UserResult(pa.nulls(1, own.array.type), "absent", why_not) for name, own in missing.items()}
        return replace(row, user_defined={**row.user_defined, **absent})

    def _why_absent(self, field_id: str) -> str:
        """Of those whose names only the classes tell that are not to be used."""
        judged = [(reference, why) for reference, why in self._judged(field_id) if why is not None]
        unnamed = [reference for reference, why in judged if why is _UNNAMED]
        reasons = [why for _, why in judged if why is not _UNNAMED]
        if unnamed:
            reasons.append(
                f"{' or '.join(map(repr, unnamed))} computes it, and {_UNNAMED}: name "
                f"{'it' if len(unnamed) == 1 else 'them'}, with `open_table(…, statistics={unnamed})` or in the "
                "configuration"
            )
        return "; ".join(reasons) or "the version does not say what computes it"

    def _judged(self, field_id: str) -> Iterator[tuple[str, str | None]]:
        """Each class of a leaf column, and why it is not to be used."""
        for key, source in self._keys.get(field_id, {}).items():
            reference, _, revision = key.removeprefix(DERIVED).rpartition("@")
            yield reference, self._why_not(reference, revision, source)

    def _why_not(self, reference: str, revision: str, source: str) -> str | None:
        if reference not in self._named and not reference.startswith(_SHIPPED):
            return _UNNAMED
        try:
            own = load_statistic(reference)
            has_changed = own.statistic.revision == revision and own.source != source
        except ConfigError as error:
            return str(error)
        if own.statistic.revision != revision:
            return (
                f"it was computed by revision {revision!r} of {reference!r}, which is {own.statistic.revision!r} here"
            )
        return f"it was computed by another source of {reference!r} than there is here" if has_changed else None

    @lock_free_cached_property
    def _keys(self) -> dict[str, dict[str, str]]:
        """By leaf column, the keys of its statistics and the digest of their sources."""
        found: dict[str, dict[str, str]] = {}
        for text in self._version.specs.get(self._version.spec_id, {}).values():
            own = parse_column_spec(text)
            for field_id, keys in ({} if own is None else own.user_defined).items():
                found[field_id] = dict(keys)
        return found
