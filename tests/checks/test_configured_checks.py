"""Check entries in the configuration: syntax, validation, names and descriptions."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from metastore_assets import build_metastore_definitions, load_config
from metastore_assets.checks.base import Check, Level
from metastore_assets.checks.column_checks import Drift, NotNull, NullShare
from metastore_assets.checks.configured_checks import (
    check_kinds,
    load_checked_config,
    parse_check,
    read_checked_config,
    read_named_checks,
    validate_checks_and_exports,
)
from metastore_assets.checks.table_checks import Current, Fresh, RowCountChange
from metastore_assets.config import ColumnPolicy, MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError
from tests.cli.run_command import error_of, run


def parsed(text: str, level: Level = "column") -> Any:
    return parse_check(yaml.safe_load(text), level)


def test_short_and_long_entries_are_equal() -> None:
    assert parsed("not_null") == parsed("{not_null: }") == parsed("{not_null: {}}") == NotNull()
    five = NullShare(most=Decimal("0.05"), severity="warn")
    for text in (
        "{null_share: 5%, severity: warn}",
        "{null_share: 0.05, severity: warn}",
        "{null_share: {most: 5 %, severity: warn}}",
        "{null_share: , most: 0.050, severity: warn}",
    ):
        assert parsed(text) == five
    assert parsed("fresh: 1d12h", "table") == Fresh(within=timedelta(hours=36))
    both = RowCountChange(lower=Decimal("-0.2"), upper=Decimal("0.2"), against=timedelta(days=7))
    assert parsed("{row_count_change: 20%, against: 7d}", "table") == both
    assert parsed("{drift: 0.1, measure: jensen_shannon, against: 41}") == Drift(
        most=Decimal("0.1"), measure="jensen_shannon", against=41
    )
    assert parsed("{not_null: , partitions: all}").partitions == ("*",)


def test_a_share_has_all_digits_of_its_percents() -> None:
    """A percentage of more than 28 digits is divided exactly.

    Python's Decimal rounds quotients to 28 digits by default.
    """
    digits = "1234567890" * 4
    assert parsed(f"{{null_share: 0.{digits}%}}").most == Decimal(f"0.00{digits}")


@pytest.mark.parametrize(
    ("level", "text", "message"),
    [
        ("table", "{row_count_change: {witin: 5%}}", r"\bwitin:.*\bwithin, lower, upper, against"),
        ("table", "frsh: 6h", r"'frsh'.*\bfresh, current, .*'fresh'"),
        ("table", "{fresh: 1d, complete: }", r"\bfresh, complete\b"),
        ("table", "severity: warn", r"\bcheck\b.*\bfresh, "),
        ("table", "5", "check"),
        ("table", "{1: 2}", "check"),
        ("table", "not_null", r"not_null.*\bcolumn\b.*`checks`"),
        ("column", "complete", r"complete.*\btable\b.*`checks`"),
        ("table", "{complete: , partitions: all}", "complete .*`partitions`"),
        ("table", "fresh: 6", "fresh.within = 6:"),
        ("table", "fresh: 99999999999999w", "fresh.within = '99999999999999w':"),
        ("table", "fresh", r"fresh\.within\b"),
        ("table", "{fresh: {within: 1h}, within: 2h}", "fresh: within "),
        ("table", "{fresh: 1h, severity: fatal}", r"fresh.severity = 'fatal':.*'error'.*'warn'"),
        ("table", "{fresh: 1h, name: a b}", r"fresh.name = 'a b':.*\b100\b"),
        ("table", "{fresh: 1h, sevrity: warn}", r"fresh\.sevrity:.*\bwithin, blocking, name"),
        ("table", "row_count: -1", r"row_count.minimum = -1:.*\b0\b"),
        ("table", "row_count: yes", "row_count.minimum = True:"),
        ("table", "row_count", r"row_count:.*minimum.*maximum"),
        ("table", "row_count_change: {within: 1, lower: 0}", "row_count_change.*within.*lower.*upper"),
        ("table", "row_count_change: {lower: 1, upper: 0}", r"\blower\b.*\bupper\b"),
        ("column", "null_share: 7", "null_share.most = 7:"),
        ("column", "null_share: much", "null_share.most = 'much':"),
        ("column", "null_share: 1e-999999999", "null_share.most = '1e-999999999':"),
        ("column", "null_share: 1e999999999%", "null_share.most = '1e999999999%':"),
        ("column", "range: 5", r"\brange\b.*minimum, maximum"),
        ("column", "range: {minimum: 5, maximum: 1.5}", r"range:.*minimum.*maximum"),
        ("column", "range: {minimum: .nan}", "range.minimum = nan:"),
        ("column", "range: {minimum: [1]}", r"range.minimum = \[1\]:"),
        ("column", "accepted_values: []", r"accepted_values.values = \[\]:"),
        ("column", "accepted_values: a", "accepted_values.values = 'a':"),
        ("column", "not_null: 1", r"\bnot_null\b"),
        ("column", "{drift: 1, against: never}", "drift.against = 'never':"),
        ("column", "{drift: 1, against: 0}", r"drift.against = 0:.*\bprevious\b"),
        ("column", "{drift: 1, measure: psi}", r"drift.measure = 'psi':.*'stability_index', "),
        ("column", "{unique: , partitions: []}", r"unique.partitions = \[\]:.*\ball\b"),
    ],
)
def test_an_invalid_entry_is_explained(level: Level, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parsed(text, level)


def test_names_are_unique_and_stable() -> None:
    """The name of a check consists of column and kind, and of a number if the name is taken.

    Invalid characters become `_`. Configured names are not changed.
    """
    columns = {
        "a.b": ColumnPolicy(checks=("not_null", "not_null", {"unique": None, "name": "A_b_not_null"})),
        "é": ColumnPolicy(checks=("not_null",)),
    }
    table = TableConfig(name="t", uri="u", checks=("complete",), columns=columns)
    assert [check.name for check in read_named_checks(table, [Current()])] == [
        "complete",
        "current",
        "a_b_not_null_2",
        "a_b_not_null_3",
        "A_b_not_null",
        "__not_null",
    ]


@pytest.mark.parametrize(
    ("checks", "columns", "message"),
    [
        ([{"row_count": "many"}], {}, r"'t': checks\.0 = .*: row_count\.minimum = 'many':"),
        (["complete", "frsh"], {}, r"'t': checks\.1 = 'frsh': .*'frsh'.*'fresh'"),
        ([], {"c": ["complete"]}, r"'t': columns\.c\.checks\.0 = 'complete': complete"),
        ([], {"default": ["not_null"]}, r"'t': columns\.default\.checks:"),
        ([], {"c": [{"unique": None, "name": "x"}, {"unique": None, "name": "X"}]}, r"'t': .*'X'"),
        (["frsh"], {"c": [{"range": 5}]}, r"checks\.0 = 'frsh'.*olumns\.c\.checks\.0 = \{'range': 5\}: range"),
    ],
)
def test_loading_a_configuration_validates_its_checks(
    tmp_path: Path, checks: list[Any], columns: dict[str, list[Any]], message: str
) -> None:
    """Everything that loads an invalid check raises an error that names table, key and value.

    Functions that read the file, Dagster definitions and a command for another table load all checks.
    """
    table = {"name": "t", "uri": "u", "checks": checks, "columns": {name: {"checks": c} for name, c in columns.items()}}
    file = tmp_path / "metastore.yaml"
    file.write_text(yaml.safe_dump({"root": "r", "tables": [{"name": "other", "uri": "u"}, table]}), encoding="utf-8")
    for load in (load_config, load_checked_config, read_checked_config, build_metastore_definitions):
        with pytest.raises(ConfigError, match=message) as error_info:
            load(file)
        assert str(file) in str(error_info.value)
    with pytest.raises(ConfigError, match=message):
        validate_checks_and_exports(MetastoreConfig.model_validate(yaml.safe_load(file.read_text(encoding="utf-8"))))
    assert re.search(message, error_of(run("show", "other", config=file)))


def test_checks_of_a_database_are_validated() -> None:
    config = MetastoreConfig.model_validate(
        {
            "root": "r",
            "catalogs": {"prod": {"type": "rest"}},
            "databases": [{"catalog": "prod", "database": "sales", "checks": ["not_null"]}],
        }
    )
    with pytest.raises(ConfigError, match=r"'sales': checks\.0 = 'not_null': not_null"):
        validate_checks_and_exports(config)


def test_every_check_describes_its_expectation() -> None:
    expectations = {
        "{fresh: 36h}": "committed in the last 36 h",
        "current": "of the table's current snapshot",
        "complete": "all files of the table, with as many rows as its metadata say",
        "consistent": "numbers that agree with each other",
        "{row_count: 1000, partitions: all}": "at least 1,000 rows, in each partition",
        "{row_count_change: 12.5%}": "from -12.5% to 12.5% rows against the snapshot before",
        "not_null": "no nulls",
        "null_share: {least: 0.5}": "at least 50% null",
        "unique": "no value twice",
        "accepted_values: [1, 2024-01-01, true]": "only 1, 2024-01-01, true",
        "range: {minimum: 0.5, maximum: 2024-01-01 10:00:00}": "values from 0.5 to 2024-01-01 10:00:00",
        "{matches: a+, least: 99%}": "at least 99% like a+",
        "lengths: {maximum: 3}": "lengths at most 3",
        "{drift: 0.20, against: 7d}": "stability index of at most 0.2 against 7 d before",
    }
    assert {kind_of(text) for text in expectations} == set(check_kinds())
    for text, expected in expectations.items():
        assert parsed(text, check_kinds()[kind_of(text)].level).expectation == expected


def kind_of(text: str) -> str:
    entry = yaml.safe_load(text)
    return entry if isinstance(entry, str) else next(key for key in entry if key in check_kinds())


def test_a_check_without_an_evaluation_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match=r"'forgetful'.*Forgetful.*evaluate"):

        class Forgetful(Check):
            kind = "forgetful"

            def describe(self) -> str:
                return ""

    assert "forgetful" not in check_kinds()
