"""User-defined statistics of the rows of a filtered view.

No stored profile has them, so they are computed.

A version names the classes that computed its statistics, and has digests of their source code. A forged version could
name any class. So a class is imported only if the caller names it, too, or if it belongs to this package. A version has
the statistics of one snapshot of the table. A profile has the statistics of a set of rows.
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
from metastore_assets.store.version import Version

_SHIPPED_PREFIX = "metastore_assets.statistics.user_defined.shipped:"
_NOT_ALLOWED = "is not imported because you have not named it"


class UserDefined:
    """The user-defined statistics of a version's columns, computed over the rows of one view.

    A statistic is absent, with a reason, if its class is not allowed or cannot be imported. It is absent too if the
    class was changed after the version was written. Threads may share the object.
    """

    def __init__(self, version: Version, allowed_references: Collection[str]) -> None:
        """Create an object for one version.

        Args:
            version: The version.
            allowed_references: Classes that may be imported, as `module:Class`, besides those of this package.
        """
        self._version = version
        self._allowed = frozenset(allowed_references)

    def classes(self, field_id: str) -> tuple[str, ...]:
        """Return the classes of the user-defined statistics of a column, as `module:Class`.

        A class is omitted if the caller does not allow its import, if the import fails, or if the class has changed
        since the version was written.
        """
        return tuple(reference for reference, problem in self._check_classes(field_id) if problem is None)

    def add_results(
        self,
        row: ColumnStatistics,
        policy: ResolvedPolicy,
        frequencies: Frequencies | None,
        table_row: ColumnStatistics,
    ) -> ColumnStatistics:
        """Return `row` with a result for each user-defined statistic that the column has in the table.

        Results are computed for the rows of the view. A result that cannot be computed is absent, with a reason.

        Args:
            row: The statistics of the column over the rows of the view.
            policy: The policy under which the states (mergeable forms of statistics) in `row` were computed.
            frequencies: The frequencies of all values in these rows; None if not all are stored.
            table_row: The statistics of the same column over the whole table.
        """
        if not table_row.user_defined:
            return row
        if policy.statistics:
            row = add_user_results(row, policy, frequencies)
        missing_results = {
            name: result for name, result in table_row.user_defined.items() if name not in row.user_defined
        }
        if not missing_results:
            return row
        reason = self._absence_reason(row.field_id)
        absent_results = {
            name: UserResult(pa.nulls(1, result.array.type), "absent", reason)
            for name, result in missing_results.items()
        }
        return replace(row, user_defined={**row.user_defined, **absent_results})

    def _absence_reason(self, field_id: str) -> str:
        """Return why a user-defined statistic of a column has no result, with advice."""
        problems = [(reference, problem) for reference, problem in self._check_classes(field_id) if problem is not None]
        disallowed_references = [reference for reference, problem in problems if problem is _NOT_ALLOWED]
        reasons = [problem for _, problem in problems if problem is not _NOT_ALLOWED]
        if disallowed_references:
            reasons.append(
                f"{' or '.join(map(repr, disallowed_references))} computes it, and {_NOT_ALLOWED}: name "
                f"{'it' if len(disallowed_references) == 1 else 'them'}, with "
                f"`open_table(…, statistic_classes={disallowed_references})` or in the configuration"
            )
        return "; ".join(reasons) or "the version does not say which class computes it"

    def _check_classes(self, field_id: str) -> Iterator[tuple[str, str | None]]:
        """Yield (`module:Class`, reason) for each class that computed a user-defined statistic of a column.

        The reason says why the class cannot be used; None if it can.
        """
        for key, source in self._source_digests.get(field_id, {}).items():
            reference, _, revision = key.removeprefix(DERIVED).rpartition("@")
            yield reference, self._check_class(reference, revision, source)

    def _check_class(self, reference: str, revision: str, source: str) -> str | None:
        """Return why a class cannot be used; None if it can.

        Args:
            reference: The class, as `module:Class`.
            revision: The revision of the class that the version records.
            source: The digest of the class's source code that the version records.
        """
        if reference not in self._allowed and not reference.startswith(_SHIPPED_PREFIX):
            return _NOT_ALLOWED
        try:
            loaded_statistic = load_statistic(reference)
            is_other_source = loaded_statistic.statistic.revision == revision and loaded_statistic.source != source
        except ConfigError as error:
            return str(error)
        if loaded_statistic.statistic.revision != revision:
            return (
                f"revision {revision!r} of {reference!r} computed it, and the installed revision is "
                f"{loaded_statistic.statistic.revision!r}"
            )
        return f"another source of {reference!r} than the installed one computed it" if is_other_source else None

    @lock_free_cached_property
    def _source_digests(self) -> dict[str, dict[str, str]]:
        """Digests of statistics' source code: {field id of a column: {key of a statistic: digest}}."""
        digests: dict[str, dict[str, str]] = {}
        for text in self._version.specs.get(self._version.spec_id, {}).values():
            spec = parse_column_spec(text)
            for field_id, keys in ({} if spec is None else spec.user_defined).items():
                digests[field_id] = dict(keys)
        return digests
