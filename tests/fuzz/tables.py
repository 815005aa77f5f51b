"""Random tables of several formats that change with each commit, and their expected rows."""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from lance.file import LanceFileReader
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.types import DoubleType, LongType

from tests.formats.delta.log_writer import (
    add_file,
    commit,
    list_of,
    map_of,
    mapped,
    metadata,
    protocol,
    struct_of,
    write_vector,
)
from tests.fuzz.columns import (
    DELTA_KINDS,
    FILE_KINDS,
    ICEBERG_KINDS,
    NAMES,
    Drawer,
    Kind,
    Node,
    NodePath,
    node_paths_of,
)

Rows = dict[int, dict[int, Any]]
"""Rows by `id`; values by the key of a column."""
ID = 1
"""Key of the column `id`, which all tables have, and which comes first in all files."""
_PARTITIONS = ["x", "y/z", "é%", None]
_ONE_CASE = [name for at, name in enumerate(NAMES) if name.lower() not in {part.lower() for part in NAMES[:at]}]
"""Names that differ in more than upper and lower case, because Delta ignores case."""
_WIDER = {
    "byte": ["short", "integer", "long"],
    "short": ["integer", "long"],
    "integer": ["long"],
    "float": ["double"],
}


@dataclass(frozen=True)
class State:
    """The schema and rows of a table at one time."""

    columns: list[Node]
    rows: Rows

    @property
    def node_paths(self) -> list[NodePath]:
        return node_paths_of(self.columns)


class FuzzTable(ABC):
    """A table in a folder.

    The column `id` is unique.
    """

    kinds: ClassVar[Mapping[str, Kind]]
    steps: ClassVar[tuple[str, ...]]
    names: ClassVar[Sequence[str]] = NAMES
    supports_renames: ClassVar[bool] = True
    """Whether a renamed column is still the same column, and one that is added again another column."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.folder = folder
        self.draw = draw
        self.drawer = Drawer(draw, self.kinds, self.names)
        self.columns = [self.drawer.leaf("id", self.kinds["long"])]
        self.partition: Node | None = None
        if draw.random() < 0.5:
            self.partition = self.drawer.leaf(self._partition_name(), self.kinds["string"])
            self.columns.append(self.partition)
        used_names = {node.name for node in self.columns}
        for name in self.drawer.draw_names(draw.randrange(3, 8)):
            if name not in used_names:
                self.columns.append(self.drawer.node(name))
        self.rows: Rows = {}
        self.next_id = 0
        self.dropped: set[str] = set()
        self.files_written = 0
        self.nulls = draw.choice([0.02, 0.15, 0.4])
        self._create()
        self.append()

    @property
    def uri(self) -> Path:
        return self.folder / "lake"

    def state(self) -> State:
        """Return the current state."""
        return State([node.copied() for node in self.columns], dict(self.rows))

    def take_step(self) -> str:
        """Make a random change to the table, and return the name of the change."""
        step = self.draw.choice(self.steps)
        getattr(self, step)()
        return step

    def append(self) -> None:
        for _ in range(self.draw.choice([1, 1, 2, 3])):
            rows = self._drawn(self.draw.choice([1, 3, 12, 40]))
            self._append(rows)
            self.rows |= rows

    def delete(self) -> None:
        share = self.draw.choice([2, 4, 9])
        removed_ids = {number for number in self.rows if self.draw.randrange(share) == 0}
        self._delete(removed_ids)
        self.rows = {number: row for number, row in self.rows.items() if number not in removed_ids}

    def overwrite(self) -> None:
        rows = self._drawn(self.draw.choice([5, 30]))
        self._replace(rows)
        self.rows = rows

    def compact(self) -> None:
        """Rewrite the same rows to other files in another order."""
        numbers = list(self.rows)
        self.draw.shuffle(numbers)
        self.rows = {number: self.rows[number] for number in numbers}
        self._replace(self.rows)

    def add(self) -> None:
        """Add a column, or a field of a struct, perhaps with the name of a dropped one.

        Then append rows. Nothing happens if the format does not allow it.
        """
        structs = [node_path for node_path in node_paths_of(self.columns) if node_path.node.form == "struct"]
        above = self.draw.choice(structs) if structs and self.draw.random() < 0.4 else None
        beside = self.columns if above is None else above.node.children
        used_names = {node.name for node in beside}
        free = [name for name in [*self.dropped, *self.drawer.names] if name not in used_names]
        name = self.draw.choice(sorted(self.dropped & set(free)) or free) if self.draw.random() < 0.5 else free[-1]
        node = self.drawer.node(name, 1 if above is None else 2)
        if self._add(above, node):
            beside.append(node)
            self.append()

    def drop(self) -> None:
        """Drop a random column or field of a struct, if the format allows it and enough remain."""
        candidates = [
            node_path
            for node_path in node_paths_of(self.columns)
            if node_path.node.key != ID
            and node_path.node is not self.partition
            and (
                len(node_path.nodes) == 1
                or (node_path.nodes[-2].form == "struct" and len(node_path.nodes[-2].children) > 1)
            )
        ]
        if len(self.columns) > 3 and candidates:
            node_path = self.draw.choice(candidates)
            if self._drop(node_path):
                (self.columns if len(node_path.nodes) == 1 else node_path.nodes[-2].children).remove(node_path.node)
                self.dropped.add(node_path.node.name)
                self._after_schema()

    def rename(self) -> None:
        """Rename a random column or field of a struct, if the format allows it."""
        candidates = [
            node_path
            for node_path in node_paths_of(self.columns)
            if node_path.node.key != ID and (len(node_path.nodes) == 1 or node_path.nodes[-2].form == "struct")
        ]
        if not candidates:
            return
        node_path = self.draw.choice(candidates)
        beside = self.columns if len(node_path.nodes) == 1 else node_path.nodes[-2].children
        name = self.draw.choice([name for name in self.drawer.names if name not in {node.name for node in beside}])
        if self._rename(node_path, name):
            node_path.node.name = name
            self._after_schema()

    def widen(self) -> None:
        """Change the type of a random column to a wider one, if the format allows it.

        Then append rows.
        """
        candidates = [
            (node_path, wider)
            for node_path in node_paths_of(self.columns)
            if node_path.node.kind is not None and node_path.node is not self.partition and node_path.node.key != ID
            if not any(above.form == "map" for above in node_path.nodes)
            for name in _WIDER
            if self.kinds.get(name) == node_path.node.kind
            for wider in _WIDER[name]
            if wider in self.kinds
        ]
        if candidates:
            node_path, wider = self.draw.choice(candidates)
            if self._widen(node_path, wider):
                node_path.node.kind = self.kinds[wider]
                self._after_schema()
                self.append()

    def ids_of(self, path: str) -> set[int]:
        """Return the ids of all rows in a data file, including rows that were deleted later."""
        file = pq.ParquetFile(path.removeprefix("file://"))
        result: set[int] = set(file.read(columns=[file.schema_arrow.names[0]]).column(0).to_pylist())
        return result

    def arrow(self, rows: Rows, names: Mapping[int, str] | None = None, without: Collection[int] = ()) -> pa.Table:
        """Convert rows to an Arrow table.

        Args:
            rows: The rows.
            names: Names of columns by key that replace the table's names.
            without: Keys of columns that are left out.
        """
        nodes = [node for node in self.columns if node.key not in without]
        arrays = [node.array([row.get(node.key) for row in rows.values()], names) for node in nodes]
        labels = [node.name if names is None else names[node.key] for node in nodes]
        return pa.Table.from_arrays(arrays, names=labels)

    def _drawn(self, count: int) -> Rows:
        """Draw rows with new ids.

        About a third of the columns have at most two different values.
        """
        rows: Rows = {}
        columns = [node for node in self.columns if node.key != ID]
        few = {node.key: [node.drawn(self.draw, self.nulls) for _ in range(2)] for node in columns}
        alike = {node.key for node in columns if self.draw.random() < 0.3}
        for number in range(self.next_id, self.next_id + count):
            row: dict[int, Any] = {ID: number}
            for node in columns:
                row[node.key] = (
                    self.draw.choice(few[node.key]) if node.key in alike else node.drawn(self.draw, self.nulls)
                )
            if self.partition is not None:
                row[self.partition.key] = self.draw.choice(_PARTITIONS)
            rows[number] = row
        self.next_id += count
        return rows

    def _by_partition(self, rows: Rows) -> Iterable[tuple[str | None, Rows]]:
        if self.partition is None:
            return [(None, rows)] if rows else []
        key = self.partition.key
        result: dict[str | None, Rows] = {}
        for number, row in rows.items():
            result.setdefault(row[key], {})[number] = row
        return list(result.items())

    def _partition_name(self) -> str:
        return self.draw.choice(["p", "P q", "a.p", "größe p", 'p"p'])

    def _after_schema(self) -> None:  # noqa: B027 (most formats have nothing to do)
        """Commit a changed schema."""

    def _add(self, above: NodePath | None, node: Node) -> bool:
        """Add a column, or a field of the struct `above`.

        Return whether the format allows it.
        """
        return True

    def _drop(self, node_path: NodePath) -> bool:
        return True

    def _rename(self, node_path: NodePath, name: str) -> bool:
        return True

    def _widen(self, node_path: NodePath, wider: str) -> bool:
        return True

    @abstractmethod
    def _create(self) -> None: ...

    @abstractmethod
    def _append(self, rows: Rows) -> None: ...

    @abstractmethod
    def _delete(self, removed_ids: Collection[int]) -> None: ...

    @abstractmethod
    def _replace(self, rows: Rows) -> None: ...


class MappedDelta(FuzzTable):
    """A Delta table with column mapping and deletion vectors, whose log the test writes."""

    kinds = DELTA_KINDS
    names = _ONE_CASE
    steps = ("append", "append", "delete", "overwrite", "compact", "add", "add", "drop", "rename", "rename", "widen")

    def _create(self) -> None:
        self.live: dict[str, tuple[dict[str, Any], list[int], set[int]]] = {}
        commit(self.uri, protocol("columnMapping", "deletionVectors", "typeWidening", "timestampNtz"), self._metadata())

    def _metadata(self) -> dict[str, Any]:
        fields = [mapped(node.name, self._type(node), node.key) for node in self.columns]
        partition = [] if self.partition is None else [self.partition.name]
        return metadata(fields, partition, **{"delta.columnMapping.mode": "name"})

    def _type(self, node: Node) -> Any:
        """Return the type of a column in the JSON of a Delta schema."""
        if node.kind is not None:
            return next(name for name, kind in self.kinds.items() if kind is node.kind or kind == node.kind)
        if node.form == "struct":
            return struct_of(*(mapped(child.name, self._type(child), child.key) for child in node.children))
        types = [self._type(child) for child in node.children]
        return list_of(*types) if node.form == "list" else map_of(*types)

    def _write(self, rows: Rows) -> list[dict[str, Any]]:
        """Write a data file for each partition of the rows.

        Return the actions that add these files.
        """
        names = {node_path.node.key: f"p{node_path.node.key}" for node_path in node_paths_of(self.columns)}
        actions = []
        for value, part in self._by_partition(rows):
            self.files_written += 1
            path = f"f{self.files_written}.parquet"
            key = self.partition and self.partition.key
            data = self.arrow(part, names, () if key is None else (key,))
            action = add_file(self.uri, data, path, **({} if key is None else {names[key]: value}))
            self.live[path] = (action["add"], list(part), set())
            actions.append(action)
        return actions

    def _append(self, rows: Rows) -> None:
        commit(self.uri, *self._write(rows))

    def _delete(self, removed_ids: Collection[int]) -> None:
        actions: list[dict[str, Any]] = []
        for path, (add, numbers, before) in list(self.live.items()):
            deleted_positions = before | {position for position, number in enumerate(numbers) if number in removed_ids}
            if deleted_positions == before:
                continue
            actions.append(_removed(add))
            del self.live[path]
            if len(deleted_positions) < len(numbers):
                vector = write_vector(self.uri, sorted(deleted_positions), self.draw.choice("uip"))
                self.live[path] = (add | {"deletionVector": vector}, numbers, deleted_positions)
                actions.append({"add": self.live[path][0]})
        commit(self.uri, *actions)

    def _replace(self, rows: Rows) -> None:
        remove_actions = [_removed(add) for add, _, _ in self.live.values()]
        self.live.clear()
        commit(self.uri, *remove_actions, *self._write(rows))

    def _after_schema(self) -> None:
        commit(self.uri, self._metadata())

    def add(self) -> None:
        before = len(node_paths_of(self.columns))
        FuzzTable.add(self)
        if len(node_paths_of(self.columns)) != before:
            self._after_schema()


def _removed(add: Mapping[str, Any]) -> dict[str, Any]:
    return {"remove": {key: add[key] for key in ("path", "partitionValues", "deletionVector") if key in add}}


class PlainDelta(FuzzTable):
    """A Delta table written by deltalake, with file statistics in the log."""

    # deltalake omits the table feature that types in structs need.
    kinds: ClassVar = {name: kind for name, kind in DELTA_KINDS.items() if name != "timestamp_ntz"}
    names = _ONE_CASE
    steps = ("append", "append", "delete", "overwrite", "compact", "add", "optimize")
    supports_renames = False

    def _partition_name(self) -> str:
        return "p"

    def _create(self) -> None:
        schema = self.arrow({}).schema
        write_deltalake(
            self.uri,
            pa.RecordBatchReader.from_batches(schema, []),
            partition_by=None if self.partition is None else [self.partition.name],
        )

    def _append(self, rows: Rows) -> None:
        write_deltalake(self.uri, self.arrow(rows), mode="append", schema_mode="merge")

    def _delete(self, removed_ids: Collection[int]) -> None:
        DeltaTable(self.uri).delete(f"id in ({', '.join(map(str, sorted(removed_ids))) or 'null'})")

    def _replace(self, rows: Rows) -> None:
        write_deltalake(self.uri, self.arrow(rows), mode="overwrite")

    def optimize(self) -> None:
        DeltaTable(self.uri).optimize.compact()


class PlainIceberg(FuzzTable):
    """An Iceberg table written by pyiceberg."""

    kinds = ICEBERG_KINDS
    steps = ("append", "append", "delete", "overwrite", "compact", "add", "add", "drop", "rename", "rename", "widen")

    def _partition_name(self) -> str:
        return "p"

    def _create(self) -> None:
        catalog = SqlCatalog("c", uri="sqlite://", warehouse=self.folder.as_uri())
        catalog.create_namespace("n")
        self.columns = [node for node in self.columns if node.key == ID or self._is_accepted([self.columns[0], node])]
        while not self._is_accepted(self.columns):
            self.columns.pop()
        schema = self.arrow({}).schema
        self.table = catalog.create_table("n.t", schema, location=self.uri.as_uri())
        if self.partition is not None:
            with self.table.update_spec() as update:
                update.add_identity(self.partition.name)

    def _is_accepted(self, columns: list[Node]) -> bool:
        """Return whether pyiceberg can write columns with these names."""
        below = [
            node_path
            for node_path in node_paths_of(columns)
            if node_path.is_repeated and node_path.nodes[-2].form == "struct"
        ]
        if not all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", node_path.node.name) for node_path in below):
            return False  # inside lists, pyiceberg writes nulls for names that it escapes in files
        arrays = [node.array([]) for node in columns]
        try:
            schema = pa.schema([pa.field(node.name, array.type) for node, array in zip(columns, arrays, strict=True)])
            result = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
            for node_path in node_paths_of(columns):
                result.find_field(".".join(node_path.names))
        except ValueError:
            return False
        return True

    def _drawn(self, count: int) -> Rows:
        """Draw rows without null lists and maps, because pyiceberg writes these as empty ones."""
        return {
            number: {node.key: _without_null_lists(node, row[node.key]) for node in self.columns}
            for number, row in super()._drawn(count).items()
        }

    def _append(self, rows: Rows) -> None:
        self.table.append(self.arrow(rows))

    def _delete(self, removed_ids: Collection[int]) -> None:
        if removed_ids:
            self.table.delete(In("id", removed_ids))

    def _replace(self, rows: Rows) -> None:
        self.table.overwrite(self.arrow(rows))

    def _add(self, above: NodePath | None, node: Node) -> bool:
        """Add a column, or a field of the struct `above`.

        Return whether Iceberg accepts the new schema.
        """
        # Existing rows would have null lists.
        if (above is not None and above.is_repeated) or any(
            node_path.is_repeated for node_path in node_paths_of([node])
        ):
            return False
        trial = [part.copied() for part in self.columns]
        if above is None:
            trial.append(node)
        else:
            next(node_path for node_path in node_paths_of(trial) if node_path.keys == above.keys).node.children.append(
                node
            )
        if not self._is_accepted(trial):
            return False
        (field,) = _pyarrow_to_schema_without_ids(pa.schema([pa.field(node.name, node.array([]).type)])).fields
        with self.table.update_schema() as update:
            update.add_column((*(() if above is None else above.names), node.name), field.field_type)
        return True

    def _drop(self, node_path: NodePath) -> bool:
        with self.table.update_schema() as update:
            update.delete_column(node_path.names)
        return True

    def _rename(self, node_path: NodePath, name: str) -> bool:
        before, node_path.node.name = node_path.node.name, name
        is_accepted = self._is_accepted(self.columns)
        node_path.node.name = before
        if is_accepted and node_path.node is not self.partition:
            with self.table.update_schema() as update:
                update.rename_column(node_path.names, name)
            return True
        return False

    def _widen(self, node_path: NodePath, wider: str) -> bool:
        with self.table.update_schema() as update:
            update.update_column(node_path.names, {"long": LongType(), "double": DoubleType()}[wider])
        return True


def _without_null_lists(node: Node, value: Any) -> Any:
    """Return a value with empty lists and maps in place of null ones, at any depth."""
    if node.form == "struct" and value is not None:
        return {child.key: _without_null_lists(child, value.get(child.key)) for child in node.children}
    if node.form == "list":
        return [_without_null_lists(node.children[0], element) for element in value or ()]
    if node.form == "map":
        return [(key, _without_null_lists(node.children[1], item)) for key, item in value or ()]
    return value


class Files(FuzzTable):
    """Plain Parquet files, whose columns may have types that Delta tables do not support."""

    kinds = FILE_KINDS
    steps = ("append", "append", "delete", "overwrite", "compact", "add", "add", "drop", "rename", "move")
    supports_renames = False

    def _partition_name(self) -> str:
        return "p"

    def _create(self) -> None:
        self.uri.mkdir(parents=True)

    def _append(self, rows: Rows) -> None:
        for value, part in self._by_partition(rows):
            folder, without = self.uri, ()
            if self.partition is not None:
                text = "__HIVE_DEFAULT_PARTITION__" if value is None else quote(value, safe="")
                folder, without = self.uri / f"p={text}", (self.partition.key,)
                folder.mkdir(exist_ok=True)
            self.files_written += 1
            groups = self.draw.choice([None, None, 7])
            data = self.arrow(part, without=without)
            pq.write_table(data, folder / f"f{self.files_written}.parquet", row_group_size=groups)

    def _delete(self, removed_ids: Collection[int]) -> None:
        self._replace({number: row for number, row in self.rows.items() if number not in removed_ids})

    def _replace(self, rows: Rows) -> None:
        for path in self.uri.rglob("*.parquet"):
            path.unlink()
        # A folder without files is not a table.
        if not rows:
            rows = self._drawn(1)
            self.rows = rows
        halves = list(rows.items())
        at = self.draw.randrange(len(halves) + 1)
        for half in (halves[:at], halves[at:]):
            self._append(dict(half))

    def delete(self) -> None:
        before = dict(self.rows)
        removed_ids = {number for number in before if self.draw.randrange(3) == 0}
        self.rows = {number: row for number, row in before.items() if number not in removed_ids} or self._drawn(1)
        self._replace(self.rows)

    def _rename(self, node_path: NodePath, name: str) -> bool:
        return node_path.node is not self.partition

    def move(self) -> None:
        """Rename the files."""
        for path in self.uri.rglob("*.parquet"):
            self.files_written += 1
            path.rename(path.with_name(f"f{self.files_written}.parquet"))

    def _after_schema(self) -> None:
        """Rewrite all files with the new columns, because the table's schema is the union of their schemas."""
        self._replace(self.rows)


class Lance(FuzzTable):
    """A Lance table.

    Lance has no partitions, so the column drawn as the partition column is an ordinary one.
    """

    kinds = FILE_KINDS
    names: ClassVar = [name for name in _ONE_CASE if not {".", "`"} & set(name)]
    steps = (
        "append",
        "append",
        "delete",
        "overwrite",
        "compact",
        "optimize",
        "add",
        "drop",
        "rename",
        "widen",
        "restore",
    )

    def _partition_name(self) -> str:
        return "p"

    def _create(self) -> None:
        self.partition = None
        self.versions: dict[int, State] = {}
        lance.write_dataset(self.arrow({}), self.uri, data_storage_version="2.2")

    def take_step(self) -> str:
        step = super().take_step()
        self.versions[self._dataset.version] = self.state()
        return step

    def restore(self) -> None:
        """Restore an earlier version, with its columns and rows."""
        if self.versions:
            version = self.draw.choice(sorted(self.versions))
            self._dataset.checkout_version(version).restore()
            state = self.versions[version]
            self.columns, self.rows = [node.copied() for node in state.columns], dict(state.rows)

    @property
    def _dataset(self) -> Any:
        return lance.dataset(self.uri)

    def _append(self, rows: Rows) -> None:
        lance.write_dataset(self.arrow(rows), self.uri, mode="append")

    def _delete(self, removed_ids: Collection[int]) -> None:
        self._dataset.delete(f"id in ({', '.join(map(str, sorted(removed_ids))) or 'null'})")

    def _replace(self, rows: Rows) -> None:
        self._dataset.delete("true")
        self._append(rows)

    def ids_of(self, path: str) -> set[int]:
        return set(LanceFileReader(path).read_all().to_table()["id"].to_pylist())

    def optimize(self) -> None:
        self._dataset.optimize.compact_files(materialize_deletions_threshold=0)

    def _add(self, above: NodePath | None, node: Node) -> bool:
        if above is not None:
            return False
        self._dataset.add_columns(pa.schema([pa.field(node.name, node.array([]).type)]))
        return True

    def _drop(self, node_path: NodePath) -> bool:
        return self._altered(node_path, lambda dataset, path: dataset.drop_columns([path]))

    def _rename(self, node_path: NodePath, name: str) -> bool:
        return self._altered(node_path, lambda dataset, path: dataset.alter_columns({"path": path, "name": name}))

    def _widen(self, node_path: NodePath, wider: str) -> bool:
        """Cast a column.

        It gets another field id and is therefore another column.
        """
        type_ = self.kinds[wider].arrow
        if len(node_path.nodes) > 1 or not self._altered(
            node_path, lambda dataset, path: dataset.alter_columns({"path": path, "data_type": type_})
        ):
            return False
        (key,), node_path.node.key = node_path.keys, self.drawer.next_key()
        self.rows = {
            number: {node_path.node.key if other == key else other: value for other, value in row.items()}
            for number, row in self.rows.items()
        }
        return True

    def _altered(self, node_path: NodePath, alter: Callable[[Any, str], object]) -> bool:
        """Call `alter` with the dataset and the path of a column, and return True.

        Return False without a call if a name in the path is no identifier, because pylance does not resolve it.
        """
        if not all(name.isidentifier() for name in node_path.names):
            return False
        alter(self._dataset, ".".join(node_path.names))
        return True


def table_class(seed: int) -> type[FuzzTable]:
    """Return the class of the table for a seed.

    Consecutive seeds give the classes in `_TABLES` in turn, but every eighth seed gives `Lance` instead.
    """
    return Lance if seed % 8 == 6 else _TABLES[seed % len(_TABLES)]


_TABLES: tuple[type[FuzzTable], ...] = (MappedDelta, PlainDelta, PlainIceberg, Files)
__all__ = ["ID", "FuzzTable", "Rows", "State", "table_class"]
