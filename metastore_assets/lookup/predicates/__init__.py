"""Predicates on rows: from SQL or Arrow to a typed tree, what bounds say of it, and which rows of a table it is of."""

from metastore_assets.lookup.predicates.tree import Predicate
from metastore_assets.lookup.predicates.typed import parse_predicate

__all__ = ["Predicate", "parse_predicate"]
