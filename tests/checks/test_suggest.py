"""For any column, suggested checks are valid in the configuration, and pass.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import tempfile
from datetime import date
from typing import Any

import pyarrow as pa
import yaml
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.checks.configured_checks import read_named_checks
from metastore_assets.checks.evaluation import evaluate_checks
from metastore_assets.checks.suggest import Suggestions, suggest
from metastore_assets.config import TableConfig
from metastore_assets.errors import StoreError
from metastore_assets.formats.base import Snapshot
from metastore_assets.lookup import Table
from metastore_assets.store.objects import ObjectStore
from tests.checks.check_results import around
from tests.lookup.publishing import publish
from tests.statistics.random_columns import KINDS, share

TEXTS = st.sampled_from(
    ["", "yes", "no", "null", "1", "1e3", "2024-01-01", "a: b", "- a", "'", '"', "é\n", "\x00", "~"]
)
NAMES = st.sampled_from(["c", "a.b", "Größe", "yes", "1", "x y", "a`b", "*"])


def unreachable() -> Snapshot:
    raise StoreError("it does not answer")


def read_back(table: Table, suggestions: Suggestions) -> TableConfig:
    return TableConfig.model_validate({"name": table.version.table, "uri": "u"} | yaml.safe_load(suggestions.to_yaml()))


@share(12)
@given(st.data())
def test_suggested_checks_pass(data: st.DataObject) -> None:
    """Suggested checks pass for the table for which they are suggested.

    They are evaluated after their printed YAML has been parsed again.
    """
    names = data.draw(st.lists(NAMES, min_size=3, max_size=3, unique=True))
    often = data.draw(st.sampled_from([30, 70]))
    columns: dict[str, pa.Array] = {}
    for name in names:
        kind = KINDS[data.draw(st.sampled_from(sorted(KINDS)))]
        few = data.draw(st.lists(TEXTS if kind.type_class == "string" else kind.values, min_size=1, max_size=3))
        columns[name] = kind.array([(few * often)[at] for at in range(often)])
    with tempfile.TemporaryDirectory() as folder:
        store = ObjectStore(folder)
        table = publish(store, pa.table(columns))
        config = read_back(table, suggest(table, around(store, unreachable)))
        results = evaluate_checks(
            [named_check for named_check in read_named_checks(config) if named_check.column],
            table,
            around(store, unreachable),
        )
    assert [(result.name, result.finding) for result in results if result.status != "passed"] == []


def suggested(store: ObjectStore, *versions: pa.Table, **columns: Any) -> dict[str, Any]:
    table = [publish(store, rows, columns=columns) for rows in versions][-1]
    result: dict[str, Any] = yaml.safe_load(suggest(table, around(store, unreachable)).to_yaml())
    return {column: settings["checks"] for column, settings in result["columns"].items()} | {"table": result["checks"]}


def test_only_useful_checks_are_suggested(local_store: ObjectStore) -> None:
    count = 100
    rows = pa.table(
        {
            "id": range(count),
            "email": [f"{n}@example.com" for n in range(count)],
            "state": ["new", "done"] * 50,
            "price": [None if n < 3 else n % 37 / 2 for n in range(count)],
            "code": [f"{n % 50:04d}" for n in range(count)],
            "ratio": [float("nan")] + [n / 3 for n in range(count - 1)],
            "secret": ["a", "b"] * 50,
            "day": [date(2024, 1, 1 + n % 3) for n in range(count)],
            "default": range(count),  # The key `default` of a configuration cannot have checks.
        }
    )
    growing_tables = [rows.slice(0, 60), rows.slice(0, 80), rows]
    result = suggested(local_store, *growing_tables, secret={"frequencies": "off"})
    assert result == {
        "table": ["consistent", {"row_count": 1}],
        "id": ["not_null", "unique", {"range": {"minimum": 0}}],
        "email": ["not_null", "unique", {"matches": r"[^@\s]+@[^@\s]+\.[^@\s]+"}],
        "state": ["not_null", {"accepted_values": ["done", "new"]}],
        "price": [
            {"null_share": "5%", "severity": "warn"},
            {"range": {"minimum": 0}},
            {"drift": 0.25, "severity": "warn"},
        ],
        "code": ["not_null", {"matches": r"\+?\d+"}],
        "ratio": ["not_null"],
        "secret": ["not_null", {"lengths": {"minimum": 1, "maximum": 1}}],
        "day": ["not_null"],
    }


def test_a_column_is_followed_through_renames_and_versions_without_it(local_store: ObjectStore) -> None:
    """The check `drift` is suggested for a renamed column, which an earlier version has, too.

    It is not suggested for a column that only the newest version has.
    """
    numbers = [number % 37 / 2 for number in range(60)]

    def rows(**columns: str) -> pa.Table:
        fields = [
            pa.field(name, pa.float64(), metadata={"metastore.field_id": field_id})
            for name, field_id in columns.items()
        ]
        return pa.table([numbers] * len(fields), schema=pa.schema(fields))

    result = suggested(local_store, rows(price="1"), rows(cost="1"), rows(cost="1", extra="2"))
    drift = {"drift": 0.25, "severity": "warn"}
    assert [drift in result[name] for name in ("cost", "extra")] == [True, False]
