"""The mapping of a table's partition keys to the partitions that a project defines."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
from dagster import (
    DagsterInstance,
    DailyPartitionsDefinition,
    DynamicPartitionsDefinition,
    HourlyPartitionsDefinition,
    MonthlyPartitionsDefinition,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    PartitionsDefinition,
    StaticPartitionsDefinition,
    WeeklyPartitionsDefinition,
)
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.assets.partition_mapping import TablePartitions
from metastore_assets.errors import ConfigError, PartitionKeyError
from metastore_assets.expressions.partition_keys import encode_partition_key

START, END = date(2023, 11, 1), date(2024, 4, 1)
DAILY = DailyPartitionsDefinition("2023-11-01", end_date="2024-04-01")
MONTHLY = MonthlyPartitionsDefinition("2023-11-01", end_date="2024-04-01")
COUNTRIES = StaticPartitionsDefinition(["FR", "Île-de-France", "a/b", "x"])


@pytest.fixture(scope="module")
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as new_instance:
        yield new_instance


def mapped(mapping: TablePartitions, *keys: str, instance: DagsterInstance) -> dict[str, str]:
    return dict(mapping.key_map(keys, instance).dagster_keys)


days = st.dates(date(2023, 10, 1), date(2024, 5, 1))


@given(st.sets(days, max_size=20))
def test_daily_partitions_are_mapped(instance: DagsterInstance, table_days: set[date]) -> None:
    """Exactly the days of the table that are in the range of the definition are mapped.

    The day is one column or three.
    """
    covered_days = {day for day in table_days if START <= day < END}
    for mapping, key in (
        (TablePartitions(DAILY), lambda day: f"day={day}"),
        (
            TablePartitions(DAILY, "y={:%Y}/m={:%m}/d={:%d}"),
            lambda day: f"y={day.year}/m={day.month}/d={day.day}",
        ),
    ):
        keys = {day: key(day) for day in table_days}
        result = mapping.key_map(keys.values(), instance)
        assert result.dagster_keys == {keys[day]: day.isoformat() for day in covered_days}
        assert result.table_keys == {dagster_key: key for key, dagster_key in result.dagster_keys.items()}
        assert set(result.unmapped) == {keys[day] for day in table_days - covered_days}


@given(st.sets(st.tuples(days, st.sampled_from(["FR", "Île-de-France", "a/b", "x", "DE", None])), min_size=1))
def test_each_dimension_has_its_column(
    instance: DagsterInstance, table_partitions: set[tuple[date, str | None]]
) -> None:
    """A template maps two columns to two dimensions.

    Keys outside of the definition have no partition.

    If no key has a country of the definition, this is an error.
    """
    definition = MultiPartitionsDefinition({"when": DAILY, "country": COUNTRIES})
    mapping = TablePartitions(definition, "land={country}/day={when}")
    covered_partitions = {
        (day, land) for day, land in table_partitions if START <= day < END and land in COUNTRIES.get_partition_keys()
    }
    keys = {(day, land): encode_partition_key([("land", land), ("day", str(day))]) for day, land in table_partitions}
    if not any(land in COUNTRIES.get_partition_keys() for _, land in table_partitions):
        with pytest.raises(ConfigError, match=f"{len(set(keys.values()))} partitions.*MultiPartitionsDefinition"):
            mapping.key_map(keys.values(), instance)
        return
    result = mapping.key_map(keys.values(), instance)
    expected = {keys[day, land]: {"when": str(day), "country": land} for day, land in covered_partitions}
    assert {
        key: dict(MultiPartitionKey.keys_by_dimension.fget(dagster_key))
        for key, dagster_key in result.dagster_keys.items()
    } == expected  # type: ignore[attr-defined,arg-type]
    assert set(definition.get_partition_keys()) >= set(result.table_keys)


@pytest.mark.parametrize(
    ("definition", "template", "key", "expected"),
    [
        (MONTHLY, None, "month=2024-01", "2024-01-01"),
        (MONTHLY, None, "month=2024-01-01", "2024-01-01"),
        (MONTHLY, None, "month=2024-01-15", None),
        (MonthlyPartitionsDefinition("2024-01", end_date="2024-03", fmt="%Y-%m"), None, "ts_month=2024-02", "2024-02"),
        (MONTHLY, "year={:%Y}/month={:%m}", "year=2024/month=2", "2024-02-01"),
        (DAILY, None, "at_day=2024-01-31", "2024-01-31"),
        (DAILY, None, "day=2024-01-31 00:00:00", "2024-01-31"),
        (DAILY, None, "day=2024-01-31 00:00:01", None),
        (DAILY, "d={:%d.%m.%Y}", "d=31.01.2024", "2024-01-31"),
        (DAILY, None, "day=yesterday", None),
        (DAILY, None, "day=__HIVE_DEFAULT_PARTITION__", None),
        (DAILY, None, "day=2024-01-31/country=FR", None),
        (DAILY, "d={}", "day=2024-01-31", None),
        (WeeklyPartitionsDefinition("2023-12-31"), None, "week=2024-01-07", "2024-01-07"),
        (WeeklyPartitionsDefinition("2023-12-31"), None, "week=2024-01-08", None),
        (HourlyPartitionsDefinition("2024-01-01-00:00"), None, "ts_hour=2024-01-31-05", "2024-01-31-05:00"),
        (
            HourlyPartitionsDefinition("2024-01-01-00:00"),
            "d={:%Y-%m-%d}/h={:%H}",
            "d=2024-01-31/h=5",
            "2024-01-31-05:00",
        ),
        (COUNTRIES, None, "country=FR", "FR"),
        (COUNTRIES, None, "country=a%2Fb", "a/b"),
        (COUNTRIES, None, "country=%C3%8Ele-de-France", None),
        (COUNTRIES, None, "country=DE", None),
        (DynamicPartitionsDefinition(name="shops"), None, "shop=Oslo", "Oslo"),
        (DynamicPartitionsDefinition(name="shops"), None, "shop=Bari", None),
    ],
)
def test_keys_are_mapped_by_format_and_definition(
    instance: DagsterInstance, definition: PartitionsDefinition, template: str | None, key: str, expected: str | None
) -> None:
    """Keys of table formats write a period in different ways, and all of them are mapped.

    A time within a period, null, and an unknown text have no partition. If the only key has no partition, this is an
    error.
    """
    instance.add_dynamic_partitions("shops", ["Oslo"])
    mapping = TablePartitions(definition, template)
    if expected is not None:
        assert mapped(mapping, key, instance=instance) == {key: expected}
        return
    with pytest.raises((ConfigError, PartitionKeyError), match=re.escape(repr(key))):
        mapped(mapping, key, instance=instance)


@pytest.mark.parametrize("key", ["day=2023-10-31", "day=2024-04-01", "day=1970-01-01", "day=9999-12-31"])
def test_future_times_stay_unmapped_without_error(instance: DagsterInstance, key: str) -> None:
    """A day before or after the definition's range has no partition.

    This is no error, even if the day is the only key.
    """
    result = TablePartitions(DAILY).key_map([key], instance)
    assert (result.dagster_keys, result.unmapped) == ({}, (key,))


def test_the_current_day_is_unmapped_until_it_ends(instance: DagsterInstance) -> None:
    """Dagster has no partition for the current day unless the definition has an end offset."""
    today = datetime.now(UTC).date()
    keys = [f"day={today - timedelta(days=1)}", f"day={today}"]
    start = str(today - timedelta(days=5))
    assert TablePartitions(DailyPartitionsDefinition(start)).key_map(keys, instance).unmapped == (keys[1],)
    until_tomorrow = TablePartitions(DailyPartitionsDefinition(start, end_offset=1))
    assert until_tomorrow.key_map(keys, instance).unmapped == ()


def test_two_keys_of_one_partition_are_an_error(instance: DagsterInstance) -> None:
    with pytest.raises(ConfigError, match=r"'d=2024-01-02'.*'d=2024-1-2'"):
        mapped(TablePartitions(DAILY), "d=2024-01-02", "d=2024-1-2", instance=instance)


def test_a_table_without_partitions_has_no_mapping(instance: DagsterInstance) -> None:
    assert mapped(TablePartitions(DAILY), instance=instance) == {}


@pytest.mark.parametrize(
    ("definition", "template", "message"),
    [
        (DAILY, "day", "column="),
        (DAILY, "day=x{}", "column="),
        (DAILY, "day={:%Y}{:%m}", "column="),
        (DAILY, "day={", "column="),
        (DAILY, "day={}/day={}", "column="),
        (DAILY, "y={}/m={}", "format"),
        (COUNTRIES, "country={:%Y}", "format"),
        (MultiPartitionsDefinition({"a": DAILY, "b": COUNTRIES}), "a={a}", "'b'"),
        (MultiPartitionsDefinition({"a": DAILY, "b": COUNTRIES}), "a={a}/b={c}", "'c'"),
    ],
)
def test_a_key_that_fits_no_definition_is_refused(
    definition: PartitionsDefinition, template: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"TablePartitions.*{message}"):
        TablePartitions(definition, template)
