"""Quantiles, ranks, frequencies and locations of values of every type equal those of plain Python.

The value counts of a column are its distinct values with the frequency of each. A type class is a group of column types
whose values are stored as one Arrow type.
"""

from __future__ import annotations

import math
import re
import uuid
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError, LiteralError, MetastoreError, NotStoredError, ObjectNotFoundError
from metastore_assets.lookup import Count, Table, TextValue
from metastore_assets.lookup.json import scalar_json
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.physical import array_of
from metastore_assets.values.types import class_named
from tests.lookup.publishing import publish
from tests.statistics.oracle import NAN, Facts, plain
from tests.statistics.random_columns import KINDS, TICKS

STORED = {name: kind for name, kind in KINDS.items() if not name.startswith(("runs", "dictionary_"))}
FRACTIONS = (0, 0.1, Fraction(1, 3), Decimal("0.75"), 1)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, list[Any]], int]:
    """Draw columns of equal length, and the row at which to split them into two partitions.

    The columns have values of several kinds.
    """
    kinds = draw(st.lists(st.sampled_from(sorted(STORED)), min_size=4, max_size=4, unique=True))
    few = {name: draw(st.lists(st.one_of(st.none(), STORED[name].values), min_size=1, max_size=6)) for name in kinds}
    picks = draw(st.lists(st.integers(0, 5), min_size=2, max_size=25))
    columns = {
        name: [choices[(at + pick) % len(choices)] for at, pick in enumerate(picks)] for name, choices in few.items()
    }
    return columns, draw(st.integers(1, len(picks) - 1))


def in_class(name: str, value: Any) -> Any:
    """Convert a drawn value to the unit of its type class."""
    return value * TICKS.get(name, 1) if name in TICKS and value is not None else value


def key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def as_scalar(name: str, value: Any) -> pa.Scalar:
    return STORED[name].array([value])[0]


@settings(
    max_examples=max(4, settings.default.max_examples // 10),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(columns_and_cut=tables(), by_partition=st.booleans())
def test_answers_are_those_of_plain_python(
    tmp_path_factory: pytest.TempPathFactory, columns_and_cut: Any, by_partition: bool
) -> None:
    """Answers about a table and its two partitions equal those of plain Python.

    With `by_partition`, `locate` reads the table's value counts by partition, and otherwise those of each partition.
    """
    columns, cut = columns_and_cut
    rows = pa.table({name: STORED[name].array(values) for name, values in columns.items()})
    parts = {"half=0": rows.slice(0, cut), "half=1": rows.slice(cut)}
    store = ObjectStore(str(tmp_path_factory.mktemp("root")))
    policy = {"frequencies": "all", "by_partition": by_partition}
    table = publish(store, rows, columns=dict.fromkeys(columns, policy), partitions=parts)
    for name, values in columns.items():
        cuts = {None: values, "half=0": values[:cut], "half=1": values[cut:]}
        requested_values = [
            value for value in dict.fromkeys(value for value in values if value == value) if value is not None
        ]
        for partition, part_values in cuts.items():
            assert_answers(table, name, part_values, requested_values[:3], partition)
        for value in requested_values[:3]:
            counts = [(part, part_values.count(value)) for part, part_values in cuts.items() if part is not None]
            assert [*map(tuple, table.locate(name, as_scalar(name, value)))] == [pair for pair in counts if pair[1]], (
                name,
                value,
            )
        if STORED[name].type_class == "float64":
            counts = [
                (part, sum(x != x for x in part_values if x is not None)) for part, part_values in cuts.items() if part
            ]
            assert [*map(tuple, table.locate(name, math.nan))] == [pair for pair in counts if pair[1]]


def assert_answers(
    table: Table, name: str, values: list[Any], requested_values: list[Any], partition: str | None
) -> None:
    """Compare answers about a column with those of plain Python.

    The answers are quantiles, ranks, frequencies, distinct counts and entropy.

    Args:
        table: The table to ask.
        name: The name of the column, which is also the key of its kind of values in `STORED`.
        values: The values of the column in the table or partition.
        requested_values: The values whose ranks and frequencies are requested.
        partition: The key of the partition, or None for the table.
    """
    facts = Facts([in_class(name, value) for value in values])
    numbers, n = facts.numbers, len(facts.numbers)
    for result, q in zip(table.quantile(name, FRACTIONS, partition=partition), FRACTIONS, strict=True):
        position = max(1, math.ceil(Fraction(str(q)) * n)) - 1
        assert result.guarantee == "exact"
        assert plain(result.value) == (numbers[position] if numbers else None), (name, q, partition)
    for value in requested_values:
        scalar, requested_scalar = in_class(name, value), as_scalar(name, value)
        less = sum(key(other) < key(scalar) for other in numbers)
        same = sum(other == scalar for other in numbers)
        assert table.rank(name, requested_scalar, partition=partition) == Count(less, "exact", table.as_of), (
            name,
            value,
            partition,
        )
        assert table.frequency(name, requested_scalar, partition=partition) == Count(same, "exact", table.as_of), (
            name,
            value,
            partition,
        )
        most = as_scalar(name, requested_values[-1])
        between = sum(key(scalar) <= key(other) <= key(in_class(name, requested_values[-1])) for other in numbers)
        assert table.frequency_between(name, requested_scalar, most, partition=partition) == Count(
            between, "exact", table.as_of
        ), (
            name,
            value,
        )
    if requested_values:
        several = table.value_counts.column(name, partition)
        wanted_values = array_of([several.literal(as_scalar(name, value)) for value in requested_values])
        assert several.frequencies(wanted_values) == [several.frequency(value) for value in wanted_values]
    spread = table.spread(name, partition=partition)
    assert (spread.distinct_count, spread.duplicate_count) == (facts.distinct_count, facts.duplicate_count)
    assert spread.singleton_count == facts.distinct_count - facts.duplicate_count
    shares = [count / facts.value_count for count in facts.counts.values()]
    assert spread.entropy == pytest.approx(-sum(p * math.log2(p) for p in shares), abs=1e-9)
    if partition is None:
        assert {each.column: each for each in table.spread()}[name] == spread
    if STORED[name].type_class == "float64":
        nans = facts.counts[NAN]
        assert table.rank(name, math.nan, partition=partition).value == n
        assert table.frequency(name, math.nan, partition=partition).value == nans
        assert table.frequency_between(name, -math.inf, math.nan, partition=partition).value == n + nans


_EXTREMES = [name for name in STORED if STORED[name].type_class not in ("string", "binary")]


@pytest.fixture(scope="module")
def extremes_table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table with a column of extreme values for each type."""
    from tests.statistics.extreme_values import extremes

    arrays = {name: STORED[name].array(extremes(STORED[name])) for name in _EXTREMES}
    rows = max(map(len, arrays.values()))
    padded_columns = {
        name: pa.concat_arrays([array, pa.nulls(rows - len(array), array.type)]) for name, array in arrays.items()
    }
    policy = {"default": {"frequencies": "all"}}
    return publish(ObjectStore(str(tmp_path_factory.mktemp("extremes"))), pa.table(padded_columns), columns=policy)


@pytest.mark.parametrize("name", _EXTREMES)
def test_json_values_are_accepted_as_arguments(extremes_table: Table, name: str) -> None:
    """A value's JSON text has the same frequency and rank as the value."""
    for value, frequency in extremes_table.top(name, 100):
        text = TextValue(str(scalar_json(value)))
        assert extremes_table.frequency(name, text).value == frequency, text
        assert extremes_table.rank(name, text) == extremes_table.rank(name, value)


def published(tmp_path: Path, columns: dict[str, Any] | None = None, **arrays: Any) -> Table:
    return publish(ObjectStore(str(tmp_path)), pa.table(arrays), columns=columns)


def test_continuous_quantiles(tmp_path: Path) -> None:
    table = published(
        tmp_path,
        i=pa.array([1, 2, None, 2**60]),
        f=pa.array([-math.inf, 1.5, 2.5, math.nan]),
        d=pa.array([Decimal("0.01"), Decimal("0.02"), None, None], pa.decimal128(9, 2)),
        day=pa.array([date(2024, 1, 1), date(2024, 1, 2), None, None]),
        at=pa.array([datetime(2024, 1, 1), datetime(2024, 1, 3), None, None], pa.timestamp("us")),
        t=pa.array([time(1), time(2), None, None]),
        s=pa.array(["a", "b", "c", "d"]),
        empty=pa.nulls(4, pa.float64()),
    )

    def half(column: str, q: float = 0.5) -> Any:
        value = table.quantile(column, q, method="continuous").value
        return None if value is None else value.as_py()

    assert (half("i"), half("i", 0.25), half("i", 0.75)) == (2.0, 1.5, (2 + 2**60) / 2)
    assert (half("f"), half("f", 0.75), half("f", 0.25), half("f", 0)) == (1.5, 2.0, -math.inf, -math.inf)
    assert half("d", 0.3) == 0.013
    assert half("day") == datetime(2024, 1, 1, 12)
    assert half("at", 0.75) == datetime(2024, 1, 2, 12)
    assert half("t") == time(1, 30)
    assert half("empty") is None
    with pytest.raises(LiteralError, match=r"'s'.*\bdiscrete\b"):
        half("s")
    with pytest.raises(ValueError, match="'median'"):
        table.quantile("i", 0.5, method="median")  # type: ignore[call-overload]


def test_a_float_fraction_means_its_decimal_notation(tmp_path: Path) -> None:
    """The quantile 0.1 of ten values is the first one, although the float 0.1 exceeds a tenth slightly."""
    table = published(tmp_path, i=pa.array(range(1, 11)))
    tenths = [k / 10 for k in range(11)]
    assert [one.value.as_py() for one in table.quantile("i", tenths) if one.value] == [1, *range(1, 11)]
    assert table.quantile("i", 1).q == 1.0


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "q", [-0.1, 1.01, math.nan, math.inf, True, "a", "1/0", None, "1e-999999999", "1e999999999", "0e999999999"]
)
def test_invalid_fractions_are_refused(tmp_path: Path, q: Any) -> None:
    table = published(tmp_path, i=pa.array([1]))
    for fractions in (q, [q]):
        with pytest.raises(LiteralError, match=f"{re.escape(repr(q))}.*quantile"):
            table.quantile("i", fractions)


FINER = datetime(2024, 1, 1, microsecond=1)
ODD = {
    "i": (pa.array([1], pa.int32()), ["x", 1.5, True, 2**63, date(2024, 1, 1), None, pa.scalar("1"), pa.scalar(None)]),
    "u": (pa.array([1], pa.uint64()), [-1, 2**64]),
    "f": (pa.array([1.0]), ["1", b"1", False, pa.scalar(True)]),
    "d": (pa.array([Decimal("0.01")], pa.decimal128(9, 2)), ["0.01", Decimal("0.001"), Decimal("NaN"), 10**37]),
    "s": (pa.array(["x"]), [1, b"x", None, pa.scalar(b"x")]),
    "b": (pa.array([b"x"]), ["x", 1]),
    "flag": (pa.array([True]), [1, "true"]),
    "day": (pa.array([date(2024, 1, 1)]), ["2024-01-01", datetime(2024, 1, 1), 19_000]),
    "t": (pa.array([time(1)]), ["01:00:00", time(1, tzinfo=UTC)]),
    "at": (pa.array([datetime(2024, 1, 1)], pa.timestamp("ms")), [datetime(2024, 1, 1, tzinfo=UTC), FINER]),
    "z": (pa.array([datetime(2024, 1, 1)], pa.timestamp("us", "UTC")), [datetime(2024, 1, 1), date(2024, 1, 1)]),
    "id": (pa.array([b"0" * 16], pa.binary(16)).cast(pa.uuid()), ["0", b"0" * 16, 1]),
    "empty": (pa.nulls(1), [1, "x"]),
}  # fmt: skip
TEXTS = {
    "i": ["x", "1.5", "", "NaN", "9223372036854775808"],
    "u": ["-1"],
    "f": ["one"],
    "d": ["0.001", "Infinity"],
    "b": ["0"],
    "flag": ["1", "yes"],
    "day": ["2024-02-30", "2024-01-01T00:00:00", "1.1.2024"],
    "t": ["25:00:00", "1"],
    "at": ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.0001"],
    "z": ["now"],
    "id": ["0"],
    "empty": ["1"],
}


@pytest.fixture(scope="module")
def unusual_columns(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return published(tmp_path_factory.mktemp("unusual"), **{name: array for name, (array, _) in ODD.items()})


@pytest.mark.parametrize("name", ODD)
def test_values_of_another_type_are_refused(unusual_columns: Table, name: str) -> None:
    """A value that does not fit the column's type is an error with the value, column and table."""
    requested_values = [*ODD[name][1], *map(TextValue, TEXTS.get(name, ()))]
    for value in requested_values:
        shown_value = repr(value.text if isinstance(value, TextValue) else value)
        message = f"^{re.escape(shown_value)} .*'{name}'.*'orders'"
        with pytest.raises(LiteralError, match=message):
            unusual_columns.rank(name, value)
        with pytest.raises(LiteralError, match=message):
            unusual_columns.locate(name, value)


def test_messages_name_the_python_type(unusual_columns: Table) -> None:
    expected = {"f": "float", "flag": "bool", "day": "datetime.date", "t": "datetime.time", "b": "bytes"}
    for name, form in expected.items():
        with pytest.raises(LiteralError, match=f"give .*{form}"):
            unusual_columns.rank(name, "1")


def test_values_in_python(unusual_columns: Table) -> None:
    values = {
        "i": [1, Decimal(1), 1.0, np.float64(1), np.int64(1), np.uint8(1), pa.scalar(1, pa.int8())],
        "f": [1, 1.0, Decimal("1.0"), np.float32(1), np.int16(1), pa.scalar(1.0, pa.float32())],
        "d": [Decimal("0.01"), Decimal("0.010"), pa.scalar(Decimal("0.01"))],
        "s": ["x", pa.scalar("x"), TextValue("x")],
        "b": [b"x", TextValue("78")],
        "flag": [True, np.bool_(True), TextValue("True")],
        "day": [date(2024, 1, 1), np.datetime64("2024-01-01"), TextValue("2024-01-01")],
        "t": [time(1), TextValue("01:00")],
        "at": [
            datetime(2024, 1, 1),
            np.datetime64("2024-01-01T00", "ns"),
            TextValue("2024-01-01"),
            TextValue("2024-01-01 00:00:00.000"),
        ],
        "z": [datetime(2024, 1, 1, tzinfo=UTC), TextValue("2024-01-01T01:00:00+01:00"), TextValue("2024-01-01")],
        "id": [uuid.UUID(bytes=b"0" * 16), TextValue(str(uuid.UUID(bytes=b"0" * 16)))],
    }
    for name, column_values in values.items():
        for value in column_values:
            assert unusual_columns.frequency(name, value).value == 1, (name, value)


def test_timestamps_of_pandas_have_nanoseconds(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = published(tmp_path, at=pa.array([-1, 0, 1, 2], pa.timestamp("ns")))
    for rank, value in enumerate((-1, 0, 1, 2)):
        for library_value in (pandas.Timestamp(value), np.datetime64(value, "ns")):
            assert (table.rank("at", library_value).value, table.frequency("at", library_value).value) == (rank, 1)
    for nothing in (pandas.NaT, np.datetime64("NaT", "ns")):
        with pytest.raises(LiteralError, match="null"):
            table.rank("at", nothing)


def test_a_column_without_values_has_no_quantiles(unusual_columns: Table) -> None:
    assert unusual_columns.quantile("empty", 0.5).value is None
    assert (unusual_columns.mode("empty").value, unusual_columns.mode("empty").frequency) == (None, 0)
    assert unusual_columns.spread("empty").entropy == 0


def test_a_type_without_an_order(tmp_path: Path) -> None:
    table = published(tmp_path, s=pa.array([{"a": 1}]), took=pa.array([1], pa.duration("s")))
    for column in ("s", "took"):
        for ask in (lambda: table.quantile(column, 0.5), lambda: table.rank(column, 1), lambda: table.spread(column)):  # noqa: B023
            with pytest.raises(NotStoredError, match=f"'{column}'"):
                ask()


def test_estimates_of_a_column_without_value_counts(tmp_path: Path) -> None:
    """Quantiles and ranks are estimates from the sketch.

    Their errors are at most half a percent of the rows.

    Answers that need value counts are errors, with few exceptions, such as the frequency of NaN. Quantiles of texts are
    errors, too, because texts have no sketch.
    """
    draw = np.random.default_rng(0)
    numbers = np.sort(draw.lognormal(0, 2, 20_000))
    policy = {"frequencies": "off"}
    columns = dict.fromkeys(("f", "i", "at", "s"), policy)
    table = published(
        tmp_path,
        columns,
        f=pa.array([*numbers[2:], math.inf, math.nan]),
        i=pa.array((numbers * 1000).astype(np.int64)),
        at=pa.array((numbers * 10**9).astype(np.int64), pa.timestamp("us")),
        s=pa.array([str(number) for number in numbers]),
    )
    for column in ("f", "i", "at"):
        for q in (0, 0.001, 0.3, 0.5, 0.77, 0.999, 1):
            result = table.quantile(column, q)
            assert result.guarantee == "estimate"
            rank = table.rank(column, result.value)
            assert rank.guarantee == "estimate"
            assert rank.value == pytest.approx(q * 20_000, abs=100), (column, q)
        middle = table.quantile(column, 0.5, method="continuous")
        assert middle.guarantee == "estimate"
    truth = np.searchsorted(numbers, 1.0)
    assert table.rank("f", 1).value == pytest.approx(truth, abs=100)
    assert table.frequency_between("i", 500, 1500).guarantee == "estimate"
    assert table.frequency("i", -1) == Count(0, "exact", table.as_of)
    assert table.frequency("f", math.nan) == Count(1, "exact", table.as_of)
    assert (table.rank("f", math.nan).value, table.rank("f", -math.inf).value) == (19_999, 0)
    assert table.frequency_between("f", -math.inf, math.nan).value == 20_000
    with pytest.raises(NotStoredError, match=r"'i'.*'orders'.*`frequencies: off`"):
        table.frequency("i", 5)
    with pytest.raises(NotStoredError, match=r"sketch.*'s'"):
        table.quantile("s", 0.5)
    with pytest.raises(NotStoredError, match=r"value counts.*'i'"):
        table.spread("i")


def test_counts_that_bounds_determine_are_exact(tmp_path: Path) -> None:
    columns = {"flag": {"frequencies": "off"}, "one": {"frequencies": "off"}}
    table = published(tmp_path, columns, flag=pa.array([True, False, True]), one=pa.array(["a"] * 3))
    assert table.rank("flag", True) == Count(1, "exact", table.as_of)
    assert table.quantile("one", 0.5).guarantee == "exact"
    assert table.spread("one").duplicate_count == 1


def test_infinity_counts_do_not_replace_a_sketch(tmp_path: Path) -> None:
    """A column without a sketch has quantiles and ranks only if all its values are infinite."""
    off = {"frequencies": "off", "quantiles": "off"}
    rows = pa.table({"mixed": [-math.inf, 1.0, 2.0, 3.0], "infinite": [-math.inf, -math.inf, math.inf, None]})
    table = publish(ObjectStore(str(tmp_path)), rows, columns=dict.fromkeys(rows.column_names, off))
    for ask in (
        lambda: table.quantile("mixed", 0.5),
        lambda: table.rank("mixed", 2.0),
        lambda: table.frequency_between("mixed", 1.0, 2.0),
    ):
        with pytest.raises(NotStoredError, match=r"sketch.*'mixed'"):
            ask()
    assert [quantile_.value.as_py() for quantile_ in table.quantile("infinite", [0.5, 1])] == [-math.inf, math.inf]
    assert table.rank("infinite", math.inf).value == 2


def test_missing_value_counts_are_an_error(tmp_path: Path) -> None:
    table = published(tmp_path, i=pa.array([1, 2]))
    assert table.version.value_counts is not None
    ObjectStore(str(tmp_path)).child("orders").delete([table.version.value_counts.state])
    with pytest.raises(ObjectNotFoundError, match="--full"):
        table.quantile("i", 0.5)


def test_corrupt_value_counts_are_an_error(tmp_path: Path) -> None:
    table = published(tmp_path, i=pa.array([1, 2]))
    assert table.version.value_counts is not None
    ObjectStore(str(tmp_path)).child("orders").write(table.version.value_counts.state, b"{")
    with pytest.raises(CorruptionError, match=r"NAME.*--full"):
        table.quantile("i", 0.5)


def test_the_mode_is_the_least_of_the_most_frequent(tmp_path: Path) -> None:
    values = ["b", "a", "b", "a", None, None, None]
    table = published(tmp_path, s=pa.array(values))
    mode = table.mode("s")
    assert (mode.value.as_py(), mode.frequency) == min(Counter(v for v in values if v).items())


def test_errors_are_errors_of_the_package() -> None:
    assert issubclass(LiteralError, MetastoreError)
    assert class_named("null").kind == "null"


def test_thousands_of_values_are_looked_up_together(tmp_path: Path) -> None:
    """An estimate for a list of 2,000 texts or numbers is exact.

    The column has some of them.

    Estimates for two such lists take less than six seconds of CPU time. If values were looked up one by one, 2,000
    values would take 20 seconds.
    """
    numbers = [number * number % 40_009 for number in range(60_000)]
    rows = pa.table({"text": [f"t{number}" for number in numbers], "number": numbers})
    table = publish(ObjectStore(str(tmp_path)), rows, columns={"default": {"frequencies": "all"}})
    requested_numbers = range(0, 80_000, 40)
    expected = sum(number in requested_numbers for number in numbers)
    table.estimate("text = 't1' and number = 1")
    start = process_time()
    for column, values in (
        ("text", [f"t{number}" for number in requested_numbers]),
        ("number", list(requested_numbers)),
    ):
        estimate = table.estimate(pc.field(column).isin(values))
        assert (estimate.value, estimate.guarantee) == (expected, "exact")
    assert process_time() - start < 6
