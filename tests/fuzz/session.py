"""Sessions that change a random table and compare all answers with plain Python.

Policies are random, too. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import random
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from metastore_assets.checks.configured_checks import read_named_checks
from metastore_assets.checks.evaluation import evaluate_checks
from metastore_assets.checks.subject import create_check_context
from metastore_assets.checks.suggest import suggest
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, PredicateError
from metastore_assets.formats import decode_partition_key
from metastore_assets.lookup import Table
from metastore_assets.lookup.json import columns_json
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.sql import query
from tests.fuzz.columns import NodePath, paths_of
from tests.fuzz.expectations import (
    ColumnTruth,
    answered_point,
    check_answers,
    check_hidden,
    check_row,
    expect,
    expect_true,
)
from tests.fuzz.policies import Policies, drawn_policies
from tests.fuzz.predicates import Predicate, PredicateDrawer, point
from tests.fuzz.tables import FuzzTable, State, table_class


@dataclass(frozen=True)
class Finding:
    """A difference between an answer and the one computed in plain Python, or an unexpected error."""

    seed: int
    question: str
    text: str

    def __str__(self) -> str:
        return f"METASTORE_FUZZ_SEED={self.seed}: {self.question}: {self.text}"


@dataclass
class Report:
    """The results of sessions: numbers of questions and tables, refused inputs, and findings.

    `pairs` is the number of questions. Refused inputs are counted by kind.
    """

    pairs: int = 0
    tables: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def run_session(seed: int, report: Report, *, versions: int = 4, predicates: int = 30) -> None:
    """Change the table of a seed, check answers after each change, and add the results to a report.

    Args:
        seed: The seed of the table, its changes and all questions.
        report: The report.
        versions: How many versions are published at most.
        predicates: How many predicates are checked for each version.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draw = random.Random(seed)
        table = table_class(seed)(Path(folder), draw)
        session = Session(seed, table, report)
        for _ in range(versions):
            if not session.step(predicates):
                break
        report.tables += 1


def _no_spark() -> Any:
    raise AssertionError("Spark was started for little work")


class Session:
    """A table and its Metastore, about which random questions are asked."""

    def __init__(self, seed: int, table: FuzzTable, report: Report) -> None:
        self.seed = seed
        self.table = table
        self.draw = table.draw
        self.report = report
        self.policies = Policies()
        self.states: dict[int, State] = {}
        self.hidden: dict[int, set[tuple[int, ...]]] = {}
        self.root = str(table.folder / "root")
        self.steps: list[str] = []
        self.lookup: Table | None = None

    @property
    def config(self) -> TableConfig:
        return TableConfig.model_validate({"name": "t", "uri": str(self.table.uri), "columns": self.policies.columns})

    @property
    def metastore(self) -> Metastore:
        return Metastore(self.root)

    def step(self, predicates: int) -> bool:
        """Change the table and perhaps its policies, refresh, and check answers.

        Return False if no refresh succeeded.

        The first call does not change the table. `predicates` is the number of predicates to check.
        """
        if self.lookup is not None:
            for _ in range(self.draw.choice([1, 1, 2, 3])):
                self.steps.append(self.table.take_step())
            for _ in range(3):
                self._ask("count of a table that moved on", self._check_count_now)
        # A policy of a column that does not exist is an error.
        self.policies = self.policies.of_columns(self.table.columns)
        if self.lookup is None or self.draw.random() < 0.5:
            self.policies = drawn_policies(self.draw, self.table.columns, self.table.partition)
        if not self._refreshed():
            return False
        for _ in range(predicates):
            self._ask("predicate", self._predicate)
        self._ask("statistics", self._statistics)
        self._ask("partitions", self._partitions)
        self._ask("sql", self._sql)
        self._ask("suggested checks", self._suggest)
        self._ask("show --json", self._show)
        if len(self.states) > 1:
            self._ask("diff", self._diff)
            self._ask("changes", self._changes)
        return True

    def _refreshed(self) -> bool:
        for _ in range(20):
            try:
                config = MetastoreConfig(root=self.root, tables=[self.config], engine="auto", keep_versions=10)
                number = refresh(config, self.config, _no_spark).version
            except (ConfigError, ValidationError):
                self.report.refused["policies"] += 1
                self.policies = drawn_policies(self.draw, self.table.columns, self.table.partition)
                continue
            except Exception as error:  # noqa: BLE001 (whatever it is, it is a finding)
                self._note("refresh", error)
                return False
            self.lookup = self.metastore.table("t")
            number = self.lookup.version.number
            self.states[number] = self.table.state()
            self.hidden[number] = self.policies.hidden(self.table.columns)
            return True
        return False

    def _ask(self, question: str, ask: Callable[[], None]) -> None:
        self.report.pairs += 1
        state = self.draw.getstate()
        try:
            ask()
        except Exception as error:  # noqa: BLE001 (any error of the tested code is noted)
            self._note(question, error)
        # The random state does not depend on where a question failed.
        self.draw.setstate(state)
        self.draw.random()
        self.draw.seed(self.draw.getrandbits(64))

    def _note(self, question: str, error: Exception) -> None:
        """Add an error to the report.

        The report then has the error, the question, and the changes of the table before the error. Unless an assertion
        failed, the report also has the innermost line outside of this folder that the error passed.
        """
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/fuzz/" not in frame.filename]
        location = (
            ""
            if isinstance(error, AssertionError) or not frames
            else f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}"
        )
        text = f"{type(error).__name__}: {_short(error)}{location}"
        notes = "".join(f"\n    {note}" for note in getattr(error, "__notes__", ()))
        name = f"{type(self.table).__name__} after {', '.join(self.steps) or 'nothing'}, {question}"
        self.report.findings.append(Finding(self.seed, name, text + notes))

    @property
    def state(self) -> State:
        return self.states[self._current.version.number]

    @property
    def _current(self) -> Table:
        assert self.lookup is not None
        return self.lookup

    def _drawn(self, state: State) -> tuple[Predicate, Any]:
        """Draw a predicate.

        Return it, and the same predicate as SQL text or as an Arrow expression.
        """
        ieee = self.draw.random() < 0.35
        drawer = PredicateDrawer(self.draw, state.node_paths, list(state.rows.values()))
        predicate = drawer.drawn(self.draw.choice([0, 1, 2, 3]), ieee=ieee)
        return predicate, predicate.arrow() if ieee else predicate.sql()

    def _check_count_now(self) -> None:
        """Check `count`, which counts in the current rows of the table.

        The rows may have changed since the version was published.
        """
        predicate, where = self._drawn(self.table.state())
        with _noting(where, self.policies), self._tolerate_uncertainty():
            expected_count = sum(predicate.holds(row) is True for row in self.table.rows.values())
            answer = self._current.count(where, table=self.config)
            expect(answer.value, expected_count, "count now")

    def _predicate(self) -> None:
        predicate, where = self._drawn(self.state)
        with _noting(where, self.policies), self._tolerate_uncertainty():
            self._check_predicate(predicate, where)

    @contextmanager
    def _tolerate_uncertainty(self) -> Iterator[None]:
        """Accept that the package refuses an Arrow expression whose text cannot be parsed unambiguously.

        The report counts these refusals.
        """
        try:
            yield
        except PredicateError as error:
            if "cannot be parsed unambiguously" not in str(error):
                raise
            self.report.refused["an expression of Arrow"] += 1

    def _check_predicate(self, predicate: Predicate, where: Any) -> None:
        """Compare `prune`, `estimate` and `count` with the rows that match.

        `where` is `predicate` in a form that the package takes.
        """
        lookup, state = self._current, self.state
        matching = {number: row for number, row in state.rows.items() if predicate.holds(row) is True}
        answer = lookup.prune(where)
        paths = {}
        for fragment in answer.fragments:
            ids = self._ids(fragment.path) & state.rows.keys()
            paths[fragment.path] = ids
            count = len(ids & matching.keys())
            expect_true(
                fragment.least <= count <= fragment.most,
                f"prune: {count} rows of {fragment.path}, not {fragment.least} to {fragment.most}",
            )
        missed_rows = matching.keys() - set().union(*paths.values())
        expect(missed_rows, set(), "prune: rows in files that are left out")
        expect_true(
            answer.row_bounds[0] <= len(matching) <= answer.row_bounds[1],
            f"prune: {len(matching)} rows, not {answer.row_bounds}",
        )
        expect(
            len(answer.eliminated_fragments()),
            answer.fragments_total - answer.fragment_count,
            "prune: files explained",
        )
        limit = self.draw.randrange(5)
        limited_answer = lookup.prune(where, limit=limit)
        rows = sum(len(self._ids(item.path) & matching.keys()) for item in limited_answer.fragments)
        expect_true(rows >= min(limit, len(matching)), f"prune: {rows} rows with a limit of {limit}")
        about = lookup.estimate(where)
        expect_true(about.lower <= len(matching) <= about.upper, f"estimate: {len(matching)} is not in {about}")
        expect_true(about.lower <= about.value <= about.upper, f"estimate: {about} is outside of its bounds")
        expect_true(
            about.guarantee != "exact" or about.value == len(matching), f"estimate: {len(matching)}, not {about}"
        )
        expect(lookup.count(where, table=self.config, snapshot="version").value, len(matching), "count")
        text = lookup.predicate(where).to_sql()
        expect(lookup.predicate(text).to_sql(), text, "the predicate as text")
        expect(lookup.count(text, table=self.config).value, len(matching), f"count of the predicate as text, {text}")
        if self.draw.random() < 0.4:
            self._check_filter(where, matching)

    def _check_filter(self, where: Any, meant: dict[int, Any]) -> None:
        lookup, state = self._current, self.state
        filtered_table = lookup.filter(where, table=self.config)
        expect(filtered_table.count().value, len(meant), "filter: rows")
        paths, rows = paths_of(state.columns), list(meant.values())
        node_paths = {paths[node_path.keys]: node_path for node_path in state.node_paths}
        chosen_paths = self.draw.sample(sorted(node_paths), min(4, len(node_paths)))
        for row in filtered_table.statistics(chosen_paths):
            truth = ColumnTruth.of(node_paths[row.column], rows)
            self._check_column(filtered_table, row, truth, "filter")

    def _check_column(
        self, lookup: Any, row: Any, truth: ColumnTruth, where: str, partition: str | None = None
    ) -> None:
        number = self._current.version.number
        if truth.node_path.keys in self.hidden[number]:
            if partition is None:
                check_hidden(lookup, row, truth, where)
            return
        check_row(row, truth, where)
        if truth.node_path.node.kind is not None:
            q = Fraction(self.draw.randrange(101), 100)
            frequencies = str(self.policies.merged(row.column).get("frequencies"))
            check_answers(lookup, row.column, truth, where, q, frequencies, partition)

    def _statistics(self) -> None:
        lookup, state = self._current, self.state
        with _noting("", self.policies):
            expect(lookup.count().value, len(state.rows), "rows")
            node_paths = {paths_of(state.columns)[node_path.keys]: node_path for node_path in state.node_paths}
            rows = lookup.statistics()
            expect(sorted(row.column for row in rows), sorted(node_paths), "columns")
            for row in rows:
                truth = ColumnTruth.of(node_paths[row.column], state.rows.values())
                self._check_column(lookup, row, truth, "statistics")

    def _partitions(self) -> None:
        """Check the row count and the statistics of each partition."""
        partition = self.table.partition
        if partition is None:
            return
        lookup, state = self._current, self.state
        node_paths = {paths_of(state.columns)[node_path.keys]: node_path for node_path in state.node_paths}
        with _noting("", self.policies):
            total = 0
            for entry in lookup.partitions():
                ((_, value),) = decode_partition_key(entry.key)
                rows = [row for row in state.rows.values() if row[partition.key] == value]
                total += len(rows)
                expect(lookup.count(partition=entry.key).value, len(rows), f"rows of {entry.key}")
                for row in lookup.statistics(partition=entry.key):
                    truth = ColumnTruth.of(node_paths[row.column], rows)
                    if truth.node_path.keys in self.hidden[lookup.version.number]:
                        check_hidden(_InPartition(lookup, entry.key), row, truth, entry.key)  # type: ignore[arg-type]
                    else:
                        self._check_column(lookup, row, truth, entry.key, entry.key)
            expect(total, len(state.rows), "rows of all partitions")

    def _sql(self) -> None:
        """Check the SQL views of the table against the rows.

        The views must not show values of hidden columns.
        """
        lookup, state, metastore = self._current, self.state, self.metastore
        node_paths = {paths_of(state.columns)[node_path.keys]: node_path for node_path in state.node_paths}
        with _noting("", self.policies):
            for view in ("versions", "history", "partition_statistics", "fragments", "partitions"):
                query(metastore, f"select * from t.{view}")
            truths = {path: ColumnTruth.of(node_path, state.rows.values()) for path, node_path in node_paths.items()}
            for row in query(metastore, "select * from t.statistics").to_pylist():
                truth = truths[row["column_name"]]
                what = f"sql, column {row['column_name']!r}"
                expect((row["value_count"], row["null_count"]), (len(truth.values), truth.nulls), what)
                if truth.node_path.keys in self.hidden[lookup.version.number]:
                    shown_names = [name for name in ("minimum", "maximum", "percentiles", "sum", "mean") if row[name]]
                    expect(shown_names, [], f"{what}, which is hidden")
            text = "select column_name, count(*), sum(frequency), count(distinct value) from t.frequencies group by all"
            for column, values, total, texts in _tuples(query(metastore, text)):
                truth = truths[column]
                expect_true(
                    truth.node_path.keys not in self.hidden[lookup.version.number], f"sql: values of {column!r}"
                )
                expect(
                    (values, texts, int(total)), (len(truth.counts()),) * 2 + (len(truth.values),), f"sql: {column!r}"
                )
            text = "select column_name, sum(frequency) from t.histograms group by all"
            for column, total in _tuples(query(metastore, text)):
                truth = truths[column]
                expect_true(truth.node_path.keys not in self.hidden[lookup.version.number], f"sql: bins of {column!r}")
                finite = [
                    item
                    for item in truth.numbers()
                    if truth.kind.family != "float" or item[1] not in (float("inf"), float("-inf"))
                ]
                expect(int(total), len(finite), f"sql: histogram of {column!r}")

    def _suggest(self) -> None:
        lookup = self._current
        with _noting("", self.policies):
            around = create_check_context(self.metastore, self.config, lookup)
            text = suggest(lookup, around).to_yaml()
            item = TableConfig.model_validate({"name": "t", "uri": str(self.table.uri)} | yaml.safe_load(text))
            results = evaluate_checks(read_named_checks(item), lookup, around)
            failed_checks = [(result.name, result.finding) for result in results if result.status != "passed"]
            expect(failed_checks, [], f"suggested checks\n{text}\n")

    def _show(self) -> None:
        lookup = self._current
        columns_json(
            lookup.version, lookup.statistics(), {each.column: each for each in lookup.spread()}, lookup.built()
        )

    def _earlier(self) -> tuple[Table, State]:
        numbers = [number for number in self.states if number < self._current.version.number]
        number = self.draw.choice(numbers)
        return self.metastore.table("t", version=number), self.states[number]

    def _identity(self, node_path: NodePath) -> Any:
        return node_path.keys if self.table.supports_renames else node_path.names

    def _diff(self) -> None:
        """Check `diff` with an earlier version: row counts, and added, removed and equal columns."""
        lookup, state = self._current, self.state
        earlier, before = self._earlier()
        with _noting(f"since version {earlier.version.number}", self.policies):
            answer = lookup.diff(earlier)
            expect(answer.row_count, (len(before.rows), len(state.rows)), "diff: rows")
            old = {self._identity(node_path): node_path for node_path in before.node_paths}
            new = {self._identity(node_path): node_path for node_path in state.node_paths}
            old_paths, new_paths = paths_of(before.columns), paths_of(state.columns)
            added_paths = sorted(new_paths[node_path.keys] for item, node_path in new.items() if item not in old)
            removed_paths = sorted(old_paths[node_path.keys] for item, node_path in old.items() if item not in new)
            expect(sorted(item.column for item in answer.columns if item.change == "added"), added_paths, "diff: added")
            expect(
                sorted(item.column for item in answer.columns if item.change == "removed"),
                removed_paths,
                "diff: removed",
            )
            by_name = {new_paths[node_path.keys]: item for item, node_path in new.items() if item in old}
            for column in answer.columns:
                if column.change in ("added", "removed") or column.after is None:
                    continue
                item = by_name[column.after.column]
                was, now = (
                    ColumnTruth.of(old[item], before.rows.values()),
                    ColumnTruth.of(new[item], state.rows.values()),
                )
                kinds = was.node_path.node.kind, now.node_path.node.kind
                if kinds[0] is None or kinds[1] is None or column.change == "changed":
                    continue
                expect(was.nulls, now.nulls, f"diff: nulls of {column.column!r}, which is the same")
                if not self._is_hidden_at(earlier, was.node_path) and column.after.multiset_hash is not None:
                    expect_true(was.counts() == now.counts(), f"diff: {column.column!r} is called the same, and is not")

    def _is_hidden_at(self, lookup: Table, node_path: NodePath) -> bool:
        return node_path.keys in self.hidden[lookup.version.number]

    def _changes(self) -> None:
        """Check `changes` since an earlier version: the frequency of each value before and after."""
        lookup, state = self._current, self.state
        earlier, before = self._earlier()
        paths = {
            path: node_path for node_path in state.node_paths for path in [paths_of(state.columns)[node_path.keys]]
        }
        old = {self._identity(node_path): node_path for node_path in before.node_paths}
        with _noting(f"since version {earlier.version.number}", self.policies):
            for item in lookup.changes(earlier.version.number).columns:
                node_path = paths[item.column]
                if item.changes is None:
                    continue
                what = f"changes of column {item.column!r}"
                expect_true(not self._is_hidden_at(lookup, node_path), f"{what}: it is hidden")
                now = ColumnTruth.of(node_path, state.rows.values())
                previous_path = old.get(self._identity(node_path))
                was = (
                    Counter() if previous_path is None else ColumnTruth.of(previous_path, before.rows.values()).counts()
                )
                expect_true(
                    previous_path is None or not self._is_hidden_at(earlier, previous_path), f"{what}: it was hidden"
                )
                counts = now.counts()
                expected_changes = {
                    value: (was[value] or None, counts[value] or None)
                    for value in was.keys() | counts.keys()
                    if was[value] != counts[value]
                }
                answer = {answered_point(now.kind, row.value): (row.before, row.after) for row in item.changes}
                expect(answer, expected_changes, what)

    def _ids(self, path: str) -> set[int]:
        full = path if path.startswith(("/", "file:")) else str(self.table.uri / path)
        return self.table.ids_of(full)


class _InPartition:
    """A lookup whose answers are about one partition."""

    def __init__(self, lookup: Table, key: str) -> None:
        self._lookup = lookup
        self._key = key

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: getattr(self._lookup, name)(*arguments, partition=self._key)


class _noting:
    """A context manager that adds the predicate and the policies as notes to raised errors."""

    def __init__(self, where: Any, policies: Policies) -> None:
        self._notes = [f"where {where}", f"policies {dict(policies.columns)}"]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            for note in self._notes:
                error.add_note(note)


def _tuples(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


__all__ = ["Finding", "Report", "point", "run_session"]
