"""Pruning, estimates and counts of a table that changes agree with DuckDB's results on its files.

A fragment is a data file together with the deletes that apply to it. A profile is the stored statistics of a fragment,
a partition or the table. A version has the statistics of one snapshot of the table. A hidden column has the policy
`values: hidden`: new versions have no values of it. A purge removes older versions and the values in their files.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ColumnNotFoundError, CorruptionError, LiteralError, PredicateError
from metastore_assets.index import IndexReader
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.fragment_index import read_rows
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SECTIONS
from metastore_assets.store.versions import VersionStore
from tests.pipeline.file_lake import Lake


def no_spark() -> Any:
    raise AssertionError("nothing here is worth a session")


def refreshed(lake: Lake) -> Table:
    config = lake.config().model_copy(update={"engine": "auto"})
    refresh(config, lake.table, no_spark)
    return open_table(config.root, "t")


def predicate(draw: random.Random, depth: int = 2) -> str:
    """Return a random SQL predicate that has the same meaning in this package and in DuckDB."""
    if depth and draw.random() < 0.6:
        parts = [predicate(draw, depth - 1) for _ in range(2)]
        return draw.choice(["({} and {})", "({} or {})", "(not ({}) and {})"]).format(*parts)
    leaf = draw.choice(["id", "group", "price", "ratio", "day", "tags", "part", "nan", "like"])
    operator = draw.choice(["=", "!=", "<", "<=", ">", ">="])
    number = draw.choice([0, draw.randrange(10**6), draw.randrange(10**6) + 0.5])
    day = f"date '{1970 + draw.randrange(55)}-0{draw.randrange(1, 10)}-15'"
    texts = draw.sample(["'a'", "'b'", "'ä'", "''", "'zz'", "'q'"], 2)
    return {
        "id": draw.choice([f"id {operator} {number}", f"id between {int(number) // 2} and {int(number)}"]),
        "group": draw.choice([f'"group" in ({", ".join(texts)})', f'"group" {operator} {texts[0]}', '"group" is null']),
        "price": draw.choice([f"price {operator} {number * 10}", "price is not null", f"price in ({number}, null)"]),
        "ratio": f"ratio {operator} {draw.choice([0.0, draw.gauss(0, 1e3)])!r}",
        "day": draw.choice([f"day {operator} {day}", f"day not in ({day})", "day is null"]),
        "tags": "tags is null",
        "part": draw.choice([f"part = '{draw.randrange(8)}'", f"part > '{draw.randrange(8)}'"]),
        "nan": draw.choice(["isnan(ratio)", "not isnan(ratio)"]),
        "like": draw.choice(["\"group\" like 'a%'", "\"group\" not like '%z%'", "\"group\" like '_'"]),
    }[leaf]


def matching_rows_by_file(lake: Lake, where: str) -> dict[str, int]:
    """Return the number of rows that DuckDB finds in each file that has matching rows."""
    options = "hive_partitioning=true, hive_types={'part': VARCHAR}, union_by_name=true, filename=true"
    files = f"'{lake.uri}/**/*.parquet', {options}"
    # Not as a filter of the scan: DuckDB would prune by Parquet's bounds, which ignore NaN, and lose rows.
    rows = duckdb.sql(
        f"select filename, count(*) filter (where {where}) as found from read_parquet({files}) group by 1"
    ).fetchall()
    return {str(name): int(count) for name, count in rows if count}


def check(lake: Lake, table: Table, where: str) -> None:
    """Compare `prune`, `estimate` and `count` of a condition with the rows of the files."""
    result = matching_rows_by_file(lake, where)
    total = sum(result.values())
    pruning = table.prune(where)
    assert pruning.row_bounds[0] <= total <= pruning.row_bounds[1], where
    assert {Path(path).resolve() for path in result} <= {Path(path).resolve() for path in pruning.paths}, where
    for fragment in pruning.fragments:
        assert fragment.least <= result.get(fragment.path, 0) <= fragment.most
    assert (
        pruning.fragment_count + sum(elimination.fragments for elimination in pruning.explanation)
        == pruning.fragments_total
    )
    assert pruning.bytes + sum(elimination.bytes for elimination in pruning.explanation) == pruning.bytes_total
    assert len(list(pruning.eliminated_fragments())) == pruning.fragments_total - pruning.fragment_count
    about = table.estimate(where)
    assert about.lower <= total <= about.upper, (where, total, about)
    assert about.lower <= about.value <= about.upper
    assert (about.guarantee == "exact") == (about.lower == about.upper)
    assert table.count(where, table=lake.table, snapshot="version").value == total, where


def check_index(table: Table) -> None:
    """Check that the fragment index has the live fragments, with the bounds of their stored profiles.

    Null counts are also compared. The index may be the result of any number of commits.
    """
    version = table.version
    assert version.index is not None
    live = list(version.fragments)
    index_rows = read_rows(Engine(no_spark, "auto"), table.objects, 7, live)
    index = IndexReader(table.objects, version.index).all
    ids = index.fragments(("id",))["id"].to_pylist()
    order = pa.array([ids.index(id_) for id_ in index_rows.fragments["id"].to_pylist()], pa.int64())
    everything = tuple(index_rows.fragments.schema.names)
    assert index.fragments(everything).take(order).equals(index_rows.fragments)
    for column in table.columns.all:
        if column.field_id not in index_rows.columns:
            continue
        cls = (
            next((bound.cls for bound in [table.predicate(f'"{column.path}" is null').column]), None)
            if not column.repeated
            else None
        )
        if cls is None or cls.kind == "null":
            continue
        index_column = index.column(column.field_id, cls)
        for name in ("minimum", "maximum"):
            bound_column = index_rows.columns[column.field_id][name].combine_chunks()
            at = bound_column.type.get_field_index(cls.name)
            expected = bound_column.flatten()[at].to_pylist() if at >= 0 else [None] * len(bound_column)
            assert index_column[name].take(order).to_pylist() == expected
        assert (
            index_column["null_count"].take(order).to_pylist()
            == index_rows.columns[column.field_id]["null_count"].to_pylist()
        )


@pytest.mark.parametrize("seed", [0])
def test_pruning_of_a_changing_table_is_correct(tmp_path: Path, seed: int) -> None:
    history(tmp_path, seed, commits=2, predicates=6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 21))
def test_pruning_of_a_changing_table_is_correct_long(tmp_path: Path, seed: int) -> None:
    history(tmp_path, seed, commits=14, predicates=20)


def history(folder: Path, seed: int, commits: int, predicates: int) -> None:
    lake = Lake(folder, random.Random(seed))
    for partition in range(5):
        lake.append(partition)
    for _ in range(commits):
        table = refreshed(lake)
        check_index(table)
        for _ in range(predicates):
            check(lake, table, predicate(lake.draw))
        lake.commit()
        where = predicate(lake.draw)
        assert table.count(where, table=lake.table).value == sum(matching_rows_by_file(lake, where).values()), where


def test_a_selective_predicate_prunes_most_of_a_clustered_table(tmp_path: Path) -> None:
    """At most three of 30 files remain for conditions on ranges, lists and prefixes.

    Rows in a range of values are counted without reading a file.
    """
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(30):
        rows = pa.table(
            {"id": range(number * 100, number * 100 + 100), "text": [f"{number:03d}-{at:03d}" for at in range(100)]}
        )
        pq.write_table(rows, folder / f"{number}.parquet")
    config = MetastoreConfig(
        root=str(tmp_path / "root"), tables=[TableConfig(name="t", uri=str(folder))], engine="auto"
    )
    refresh(config, config.tables[0], no_spark)
    table = open_table(config.root, "t")
    for where in ("id between 1210 and 1260", "id in (5, 7, 2999)", "text like '012-%'", "text = '029-050'"):
        pruning = table.prune(where)
        assert 1 <= pruning.fragment_count <= 3, where
    expression = (pc.field("id") >= 1210) & (pc.field("id") <= 1260)
    assert table.prune(expression).paths == [str(folder / "12.parquet")]
    count = table.count("id between 1200 and 1410", table=str(folder))
    assert (count.value, count.cost and count.cost.fragments_read) == (211, 0)  # by the value counts
    assert table.prune("id > 5000 or text is null").paths == []


def test_values_by_partition_exclude_more_than_bounds(tmp_path: Path) -> None:
    """With `by_partition: on`, a condition on a column excludes all partitions without a requested value.

    The bounds of these partitions include the value. The option stores how often each value of a column occurs in each
    partition.
    """
    lake = Lake(tmp_path, options={"columns": {"code": {"by_partition": "on"}}})
    for partition in range(6):
        folder = lake.uri / f"part={partition}"
        folder.mkdir(parents=True)
        codes = ["a", "z", f"m{partition}", f"m{partition}"]
        pq.write_table(pa.table({"id": range(4), "code": codes}), folder / "0.parquet")
    table = refreshed(lake)
    pruning = table.prune("code = 'm3'")
    assert [fragment.partition_key for fragment in pruning.fragments] == ["part=3"]
    assert pruning.row_bounds == (0, 2)
    assert [(elimination.statistic, elimination.fragments) for elimination in pruning.explanation] == [("partition", 5)]
    assert table.prune("code in ('m1', 'm2') and id < 3").fragment_count == 2
    assert table.prune("code = 'mm'").fragment_count == 0
    assert table.prune("not (code = 'm3')").fragment_count == 6
    assert table.prune("code = 'm3' or id = 0").fragment_count == 6
    for where in ("code = 'm3'", "code in ('m1', 'q') and id < 3", "code = 'm2' or code = 'm4'", "code not in ('a')"):
        check(lake, table, where)


def test_an_explanation_names_each_statistic_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(0)
    table = refreshed(lake)
    pruning = table.prune("id < -9 or price > 1e9 or id < -8 or price > 1e10")
    assert [elimination.statistic for elimination in pruning.explanation] == ["minimum, maximum"]


def test_names_literals_and_grammar_are_checked(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(0)
    table = refreshed(lake)
    with pytest.raises(ColumnNotFoundError, match=r"'prise'.*'price'"):
        table.prune("prise > 1")
    with pytest.raises(LiteralError, match=r"'x'.*'price'.*'t'"):
        table.estimate("price > 'x'")
    with pytest.raises(PredicateError, match=r"'price >'.*\b7\b"):
        table.prune("price >")
    with pytest.raises(PredicateError, match=r"tags\.element"):
        table.prune("tags.element = 'x'")
    with pytest.raises(PredicateError, match="LOWER"):
        table.prune("lower(\"group\") = 'x'")
    with pytest.raises(PredicateError, match=r"\bid\b.*\bprice\b"):
        table.prune("id = price")


def test_a_name_with_a_dot_is_not_a_field_of_a_struct(tmp_path: Path) -> None:
    """A table has a column `A.b`, and a struct `A` with a field `b`.

    Quotes distinguish them as in SQL.

    The predicate in the answer has the same meaning as the given one.
    """
    (tmp_path / "lake").mkdir()
    rows = pa.table({"A": [{"b": 1}, {"b": 2}], "A.b": [5, 2], "c.d": [8, 9]})
    pq.write_table(rows, tmp_path / "lake/rows.parquet")
    config = TableConfig(name="t", uri=str(tmp_path / "lake"))
    refresh(MetastoreConfig(root=str(tmp_path / "root"), tables=[config], engine="auto"), config, no_spark)
    table = open_table(str(tmp_path / "root"), "t", table_locations=[str(tmp_path)])
    for where in ("A.b = {}", '"A"."b" = {}', '"A.b" = {}', "`A.b` = {}", '"c.d" = {}', "c.d = {}"):
        plain = where.format("$1").replace("`", '"')
        name = {"c.d = $1": '"c.d" = $1'}.get(plain, plain)  # a dotted path here, and a field of a struct in DuckDB
        for value in (1, 2, 5, 9):
            with duckdb.connect() as connection:
                connection.register("rows", rows)
                (expected_count,) = (
                    connection.execute(f"select count(*) from rows where {name}", [value]).fetchone() or ()
                )
            predicate = where.format(value)
            answer = table.prune(predicate).to_json()["predicate"]
            assert table.count(predicate).value == table.count(str(answer)).value == expected_count, (predicate, answer)
    assert table.count(pc.field("A.b") == 5).value == table.count(pc.field("A", "b") == 1).value == 1


def test_pruning_follows_added_dropped_and_renamed_columns(tmp_path: Path) -> None:
    """A column that a file lacks is null in that file.

    Once no file has a column, predicates on it are refused.
    """
    lake = Lake(tmp_path)
    folder = lake.uri / "part=0"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2], "old": ["x", "y"]}), folder / "0.parquet")
    refreshed(lake)
    pq.write_table(pa.table({"id": [3], "new": [1.5]}), folder / "1.parquet")
    table = refreshed(lake)
    assert [fragment.path[-9:] for fragment in table.prune("new is not null").fragments] == ["1.parquet"]
    assert [fragment.path[-9:] for fragment in table.prune("new is null").fragments] == ["0.parquet"]
    assert table.prune("old = 'x'").row_bounds[1] == 2
    for where in ("new is null", "old is null", "new > 1 or old > 'x'", "not (new > 1)"):
        check(lake, table, where)
    check_index(table)
    (folder / "0.parquet").unlink()
    table = refreshed(lake)
    check_index(table)
    with pytest.raises(ColumnNotFoundError):
        table.prune("old = 'x'")


def test_hidden_values_are_in_no_index(tmp_path: Path) -> None:
    """Once a column is hidden, the index has only its counts.

    After a purge, no file contains its values.
    """
    lake = Lake(tmp_path)
    for partition in range(3):
        folder = lake.uri / f"part={partition}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [partition], "secret": [f"s3cret{partition}"]}), folder / "0.parquet")
    table = refreshed(lake)
    assert table.prune("secret = 's3cret1'").fragment_count == 1
    lake.options = {"columns": {"secret": {"values": "hidden"}}}
    table = refreshed(lake)
    pruning = table.prune("secret = 's3cret1'")
    assert (pruning.fragment_count, pruning.row_bounds) == (3, (0, 3))
    assert table.prune("secret is null").fragment_count == 0
    config = lake.config()
    purge(Engine(no_spark, "auto"), VersionStore(ObjectStore(config.root), "t"), table.version.number)
    for path in Path(config.root).rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes(), path
    check(lake, open_table(config.root, "t"), "secret = 's3cret1' and id < 2")


def test_purge_removes_index_entries_and_expiry_removes_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for partition in range(4):
        lake.append(partition)
    refreshed(lake)
    lake.files()[0].unlink()
    table = refreshed(lake)
    config = lake.config()
    versions = VersionStore(ObjectStore(config.root), "t")
    purge(Engine(no_spark, "auto"), versions, table.version.number)
    table = open_table(config.root, "t")
    assert table.version.index is not None
    assert [file.rows for file in table.version.index.files] == [3]
    check_index(table)
    stored_paths = {info.path for info in versions.objects.list("index")}
    assert stored_paths == set(table.version.index.paths())


def test_an_index_that_contradicts_the_profiles_is_reported(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for partition in range(3):
        lake.append(partition)
    table = refreshed(lake)
    config = lake.config().model_copy(update={"engine": "auto"})
    assert verify(config, lake.table, no_spark).is_right
    assert table.version.index is not None
    (path,) = table.version.index.paths()
    file = Path(config.root) / "t" / path
    full = pq.ParquetFile(file)
    rows = full.read()
    counts = [None if value is None else value + 1 for value in rows["null_count"].to_pylist()]
    at = rows.schema.get_field_index("null_count")
    with pq.ParquetWriter(file, rows.schema) as writer:
        writer.write_table(rows.set_column(at, "null_count", pa.array(counts, pa.int64())))
        writer.add_key_value_metadata({SECTIONS.encode(): full.metadata.metadata[SECTIONS.encode()]})
    result = verify(config, lake.table, no_spark)
    assert not result.is_right
    assert {difference.level for difference in result.differences} == {"index"}


def test_errors_name_a_damaged_index(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(0)
    table = refreshed(lake)
    assert table.version.index is not None
    path = Path(lake.config().root) / "t" / table.version.index.files[0].path
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptionError, match=path.name):
        open_table(lake.config().root, "t").prune("id > 1")
