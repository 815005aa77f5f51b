"""Field ids for data files that have none, by the table's name mapping or by position.

A node (`Node`) is a field of the name mapping or of a schema: its names, its id, and the nodes of its nested fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any

import pyarrow as pa

from metastore_assets.digests import digest_bytes
from metastore_assets.formats.base import UNMAPPED_COLUMNS
from metastore_assets.formats.iceberg.metadata import TableMetadata
from metastore_assets.formats.metadata_json import as_integer, as_list, as_objects, as_text, parse_json
from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID, FieldMatcher, identity
from metastore_assets.storage.corrupt_input import metadata_errors
from metastore_assets.values.columns import FIELD_ID, child_fields

NAME_MAPPING = "schema.name-mapping.default"
_Tree = tuple["Node", ...]
_Deviations = tuple[tuple[int, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Node:
    """A field with its id and nested fields, from a name mapping or a schema."""

    names: tuple[str, ...]
    """Names that the field may have in files; unused if fields are matched by position."""
    id: int | None
    children: _Tree = ()


@dataclass(frozen=True)
class FallbackIds:
    """The rule that gives field ids to the columns of data files without field ids."""

    nodes: _Tree
    by_position: bool
    """Whether `nodes` apply to columns by position. ORC and Avro files have columns by name even then."""
    deviations: _Deviations = ()
    """(field id, names) of each field whose names in the mapping differ from those in the schemas, or are ambiguous.
    The names are:

    - those that only the schemas, or only the mapping, give to the field;
    - those in the schemas that the mapping also gives to another field of the same parent;
    - those in the mapping that some schema gives to another field of the same parent, such as a dropped one;
    - all names in the schemas, if a field of the current schema has no entry in the mapping.

    A renamed or added column is no deviation if the mapping was extended with its name, as engines do."""
    current: _Tree = dataclass_field(default=(), compare=False)
    """The fields of the schema with which the table is read. Without a mapping, columns of ORC and Avro files are found
    by their names."""
    reused_names: _Deviations = dataclass_field(default=(), compare=False)
    """(field id, tuple of names) of each field in `current` that had other names, or whose name another field had."""

    @cached_property
    def digest(self) -> str:
        """A digest of all fields of this object.

        It is part of the keys by which rows of delete files are cached.
        """
        return digest_bytes(repr(self).encode())

    @classmethod
    def of(cls, metadata: TableMetadata, schema: Mapping[str, Any]) -> FallbackIds:
        """Return the rule of a table: its name mapping or, without one, the rule of Iceberg's Java library.

        The rule of the library: the columns of a Parquet file have the field ids 1, 2, 3 and so on of the oldest
        schema, or 0, 1, 2 if it has the id 0. A column of an ORC or Avro file has the field id that its name has in
        `schema`.

        A mapping that contradicts the field ids of the schemas is ignored. Migrations from Hive write such mappings.

        Args:
            metadata: the table's metadata.
            schema: the schema with which the table is read.

        Raises:
            TableFormatError: the mapping does not have the form of the specification.
        """
        field_paths: dict[int | None, set[tuple[int | None, ...]]] = {}
        for field_path in (
            field_path
            for schema in metadata.schemas.values()
            for field_path in _field_paths(_struct_nodes(schema["fields"]))
        ):
            field_paths.setdefault(field_path[-1], set()).add(field_path)
        text = metadata.properties.get(NAME_MAPPING)
        if text:
            with metadata_errors(NAME_MAPPING, f"{metadata.location}: the property"):
                mapping = _parse_mapping(parse_json(text), NAME_MAPPING)
            if all(_is_among(field_path, field_paths.get(field_path[-1])) for field_path in _field_paths(mapping)):
                return cls(mapping, by_position=False, deviations=_deviations(mapping, metadata))
        return cls(
            _struct_nodes(metadata.schemas[min(metadata.schemas)]["fields"]),
            by_position=True,
            current=_struct_nodes(schema["fields"]),
            reused_names=_reused_names(schema, metadata),
        )

    def identity(self, kind: str) -> _Deviations:
        """Return a value that shows whether two table states read files without field ids in the same way.

        If the value is equal for two states, they read each column of the table from the same column of the file. This
        assumes that columns of Parquet files without field ids have the order of the oldest schema.

        Args:
            kind: the format of the files, such as `parquet`.

        Returns:
            The attribute `reused_names` for ORC and Avro files of a table without a usable mapping; otherwise the
            attribute `deviations`. Both are empty for most tables.
        """
        return self.reused_names if self.by_position and kind != "parquet" else self.deviations

    def matcher(self, kind: str, fields: Sequence[pa.Field], *, positions: bool = True) -> FieldMatcher:
        """Return a matcher that finds the table's fields among the fields of one file.

        Args:
            kind: the file format, such as `parquet`.
            fields: the fields of the file.
            positions: whether fields may be matched by position. Set it to False for files that lack columns of the
                table: positions in these files would be wrong. Then no field is found if only its position could match.
        """
        # The specification says so. ORC has an attribute for it, which not all writers set.
        longs_are_times = kind == "orc"
        by_position = self.by_position and kind == "parquet"
        if has_ids(fields) or (by_position and not positions):
            return FieldMatcher(by_id=True, longs_are_times=longs_are_times)
        nodes = self.current if self.by_position else self.nodes
        find_node = _node_by_name
        if by_position:
            nodes, find_node = _position_nodes(self.nodes, len(fields)), _node_by_position
        top_level = {
            field.name: str(node.id)
            for index, field in enumerate(fields)
            if (node := find_node(field, index, nodes)) is not None and node.id is not None
        }
        unmapped_identity = None if by_position else UNMAPPED_COLUMNS
        return _NamedMatcher(
            dict(_ids_and_names(fields, nodes, find_node)), top_level, unmapped_identity, longs_are_times
        )


def _ids_and_names(
    fields: Sequence[pa.Field], nodes: _Tree, find_node: Callable[[pa.Field, int, _Tree], Node | None]
) -> Iterator[tuple[str, str]]:
    """Yield (field id, name in the file) of the fields of a file, including nested fields.

    A field whose node has no id is left out. A field without a node is left out with all fields inside it.

    Args:
        fields: The fields of the file, which have no ids in the file.
        nodes: The nodes of the table among which `find_node` searches.
        find_node: Returns the node of a field, or None, given the field, its index in `fields`, and `nodes`.
    """
    for index, field in enumerate(fields):
        node = find_node(field, index, nodes)
        if node is not None:
            if node.id is not None:
                yield str(node.id), field.name
            yield from _ids_and_names(child_fields(field.type), node.children, find_node)


def _node_by_position(field: pa.Field, index: int, nodes: _Tree) -> Node | None:
    return nodes[index] if index < len(nodes) else None


def _node_by_name(field: pa.Field, index: int, nodes: _Tree) -> Node | None:
    return next((node for node in nodes if field.name in node.names), None)


class _NamedMatcher(FieldMatcher):
    """A matcher of the table's fields with the fields of one file that has no field ids.

    `names` maps field ids to names in the file. `top_level` maps the names of the file's columns to field ids.
    `unmapped_identity` is what `identity` returns for a column that is not in `top_level`. `longs_are_times` has the
    same meaning as in `FieldMatcher`.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        top_level: Mapping[str, str],
        unmapped_identity: str | None,
        longs_are_times: bool,
    ) -> None:
        super().__init__(by_id=True, longs_are_times=longs_are_times)
        self._names = names
        self._top_level = top_level
        self._unmapped = unmapped_identity

    def identity(self, stored_field: pa.Field) -> str | None:
        return self._top_level.get(stored_field.name, self._unmapped)

    def index_finder(self, stored_fields: Sequence[pa.Field]) -> Callable[[pa.Field], int | None]:
        """Return a function that finds the index of a table's field among the fields of the file."""
        find = FieldMatcher().index_finder(stored_fields)

        def find_named(table_field: pa.Field) -> int | None:
            if FIELD_ID not in (table_field.metadata or {}):
                return find(table_field)
            name = self._names.get(identity(table_field))  # the name in the file
            return None if name is None else find(pa.field(name, table_field.type))

        return find_named


def has_ids(fields: Sequence[pa.Field]) -> bool:
    """Return True if any field of a file has a field id."""
    return any(PARQUET_FIELD_ID in (field.metadata or {}) or has_ids(child_fields(field.type)) for field in fields)


def _parse_mapping(fields: Any, what: str) -> _Tree:
    """Return a name mapping from its JSON.

    Raises ValueError for a wrong type; `what` names the JSON in the message.
    """
    return tuple(
        Node(
            tuple(as_text(name, "names") for name in as_list(entry.get("names") or [], "names")),
            None if entry.get("field-id") is None else as_integer(entry["field-id"], "field-id"),
            _parse_mapping(entry.get("fields") or [], "fields"),
        )
        for entry in as_objects(fields, what)
    )


def _position_nodes(columns: _Tree, count: int) -> _Tree:
    """Return for each column of a file the table's column with the same id, if ids follow positions.

    The ids of the file's columns are taken to be 1, 2, 3 and so on; or 0, 1, 2 if the table has a column with the id 0.
    For an id that no column of the table has, the result has a node without names and id.

    Args:
        columns: the columns of the table.
        count: the number of columns of the file.
    """
    by_id = {node.id: node for node in columns}
    first = 0 if 0 in by_id else 1
    return tuple(by_id.get(number, Node((), None)) for number in range(first, first + count))


def _struct_nodes(fields: Sequence[Mapping[str, Any]]) -> _Tree:
    sorted_fields = sorted(fields, key=lambda field: field["id"])
    return tuple(Node((field["name"],), field["id"], _type_nodes(field["type"])) for field in sorted_fields)


def _type_nodes(type_: Any) -> _Tree:
    """Return the nodes of the fields inside a nested type."""
    if not isinstance(type_, dict):
        return ()
    if type_["type"] == "struct":
        return _struct_nodes(type_["fields"])
    parts = ("element",) if type_["type"] == "list" else ("key", "value")
    return tuple(Node((part,), type_[f"{part}-id"], _type_nodes(type_[part])) for part in parts)


def _reused_names(schema: Mapping[str, Any], metadata: TableMetadata) -> _Deviations:
    """Return (field id, (name,)) of each schema field whose name is ambiguous in the table's history.

    A name is ambiguous if the field has another name in some schema of the table. It is also ambiguous if some schema
    gives this name to another field of the same parent. Fields at all depths are examined.
    """
    names: dict[int | None, set[str]] = {}
    ids: dict[tuple[tuple[int | None, ...], str], set[int | None]] = {}
    for one in (schema, *metadata.schemas.values()):
        for above, node in _nodes(_struct_nodes(one["fields"])):
            names.setdefault(node.id, set()).update(node.names)
            ids.setdefault((above, node.names[0]), set()).add(node.id)
    return tuple(
        (node.id, node.names)
        for above, node in _nodes(_struct_nodes(schema["fields"]))
        if node.id is not None and (len(names[node.id]) > 1 or len(ids[above, node.names[0]]) > 1)
    )


def _deviations(mapping: _Tree, metadata: TableMetadata) -> _Deviations:
    """Return the deviations of a name mapping from the schemas; see `FallbackIds.deviations`."""
    names: dict[int | None, set[str]] = {}
    ids: dict[tuple[tuple[int | None, ...], str], set[int | None]] = {}
    for schema in metadata.schemas.values():
        for above, node in _nodes(_struct_nodes(schema["fields"])):
            names.setdefault(node.id, set()).update(node.names)
            ids.setdefault((above, node.names[0]), set()).add(node.id)
    deviations: dict[int, set[str]] = {}
    for nodes in _levels(mapping):
        uses = Counter(name for node in nodes for name in set(node.names))
        for node in nodes:
            if node.id is not None and node.id in names:
                mapped_names, schema_names = set(node.names), names[node.id]
                deviations[node.id] = (mapped_names ^ schema_names) | {name for name in schema_names if uses[name] > 1}
    for above, node in _nodes(mapping):
        if node.id in deviations:
            deviations[node.id] |= {name for name in node.names if ids.get((above, name), set()) - {node.id}}
    current = metadata.schemas.get(metadata.current_schema_id, {"fields": ()})["fields"]
    deviations |= {field["id"]: names[field["id"]] for field in current if field["id"] not in deviations}
    return tuple(
        (field_id, tuple(sorted(differing_names)))
        for field_id, differing_names in sorted(deviations.items())
        if differing_names
    )


def _levels(nodes: _Tree) -> Iterator[_Tree]:
    """Yield each group of sibling fields: first the top-level fields, then the children of each field.

    Fields at all depths are included.
    """
    if nodes:
        yield nodes
    for node in nodes:
        yield from _levels(node.children)


def _is_among(mapped_path: tuple[int | None, ...], field_paths: set[tuple[int | None, ...]] | None) -> bool:
    """Return True if a field has the same path in a name mapping as in one of the table's schemas.

    Also True if no schema has the id of the field.

    Args:
        mapped_path: the path of the field in the mapping: field ids from the top level down. A None in it matches every
            id.
        field_paths: the paths of the field with this id in the schemas; None if no schema has the id.
    """
    return field_paths is None or any(
        len(field_path) == len(mapped_path)
        and all(mapped_id in (None, field_id) for mapped_id, field_id in zip(mapped_path, field_path, strict=True))
        for field_path in field_paths
    )


def _field_paths(nodes: _Tree) -> Iterator[tuple[int | None, ...]]:
    """Yield the path of each field with an id: the ids from its top-level column down to the field.

    In a path, None stands for a field above that has no id.
    """
    for above, node in _nodes(nodes):
        if node.id is not None:
            yield (*above, node.id)


def _nodes(nodes: _Tree, above: tuple[int | None, ...] = ()) -> Iterator[tuple[tuple[int | None, ...], Node]]:
    """Yield (ids of the fields that a field is nested in, the field), for the fields at all depths.

    The ids begin with that of the top-level column. For example, a column `a` with id 1 and the field `b` in it yield
    ((), a) and ((1,), b).

    Args:
        nodes: the fields at one depth.
        above: the ids of the fields that these are nested in.
    """
    for node in nodes:
        yield above, node
        yield from _nodes(node.children, (*above, node.id))
