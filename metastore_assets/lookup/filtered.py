"""Questions about the rows that a predicate is true of: a part of `TableLookup`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from metastore_assets.index import IndexReader
from metastore_assets.lookup.missing import files_there
from metastore_assets.lookup.predicates import Predicate, parse_predicate
from metastore_assets.lookup.prune import Pruning, index_of
from metastore_assets.statistics.leaves import LeafColumn
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Sequence


class FilteredAnswers:
    """Answers about the rows that a predicate is true of, which is SQL text or a pyarrow expression."""

    _objects: ObjectStore
    _version: Version
    _leaves: Sequence[LeafColumn]

    def predicate(self, where: str | pc.Expression) -> Predicate:
        """A predicate on rows of this table, typed and without negations.

        Raises PredicateError, ColumnNotFoundError, LiteralError.
        """
        return parse_predicate(where, self._version.table, self._leaves)

    @files_there
    def prune(self, where: str | pc.Expression) -> Pruning:
        """Which fragments of the version may hold rows that a predicate is true of. Reads the index, a slice a column.

        A fragment is left out only where its statistics rule out that any row of it is meant. Raises as `predicate`.
        """
        return Pruning(self._version, index_of(self._version, lambda: self._index), self.predicate(where))

    @cached_property
    def _index(self) -> IndexReader:
        assert self._version.index is not None
        return IndexReader(self._objects, self._version.index)
