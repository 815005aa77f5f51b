"""The commands that take a predicate: their output as JSON and as text.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import COUNT
from tests.cli.run_command import error_of, run, run_json


def test_prune(config_file: Path) -> None:
    result = run_json("prune", "orders", "--where", "id < 150 and day >= '2024-01-05'", config=config_file)
    assert result["fragments"] == ["half=1.parquet"]
    assert (result["version"], result["snapshot"], result["fragments_total"]) == (2, "snapshot 2", 2)
    assert 0 < result["bytes"] < result["bytes_total"]
    assert (result["rows_lower"], result["rows_upper"]) == (0, 200)
    (elimination,) = result["explanation"]
    assert elimination == {
        "conjunct": "id < 150",
        "statistic": "minimum",
        "fragments": 1,
        "bytes": result["bytes_total"] - result["bytes"],
    }
    assert result["read"]["files"] >= 1
    assert "eliminated" not in result
    explanation = run_json("prune", "orders", "--where", "id < 150", "--explain", config=config_file)
    assert explanation["eliminated"] == [
        {"path": "half=2.parquet", "conjunct": "id < 150", "statistic": "minimum", "value": "200"}
    ]
    output = run("prune", "orders", "--where", "id < 150", "--explain", config=config_file).stdout
    assert "orders version 2: 1 of 2 files to read (50.0%)" in output
    assert "- half=2.parquet  id < 150: minimum 200" in output
    output = run("prune", "orders", "--where", "state = 'done\n\x1b[31m' or blob = x'07'", config=config_file).stdout
    assert "\x1b" not in output
    nothing = run_json("prune", "orders", "--where", "big < 0", config=config_file)
    assert (nothing["fragments"], nothing["rows_upper"], nothing["bytes"]) == ([], 0, 0)


def test_estimate(config_file: Path) -> None:
    exact = run_json("estimate", "orders", "--where", "day = '2024-01-01'", config=config_file)
    expected_count = len(range(0, COUNT, 28))
    assert exact == {
        "lower": expected_count,
        "estimate": expected_count,
        "upper": expected_count,
        "guarantee": "exact",
        "assumes": None,
    }
    both = run_json("estimate", "orders", "--where", "day = '2024-01-01' and state = 'new'", config=config_file)
    assert both["lower"] <= both["estimate"] <= both["upper"]
    assert (both["guarantee"], both["assumes"]) == ("estimate", "independence")
    assert "1 row" in run("estimate", "orders", "--where", "big = 4611686018427387904", config=config_file).stdout
    assert (
        "are independent"
        in run("estimate", "orders", "--where", "day = '2024-01-01' and state = 'new'", config=config_file).stdout
    )


def test_count(config_file: Path) -> None:
    """`count` counts the rows of the table as it is now, although the newest version has other files.

    The output says that no data are read.
    """
    result = run_json("count", "orders", "--where", "id = 1", config=config_file)
    assert (result["count"], result["fragments_read"], result["fragments_total"]) == (1, 0, 1)
    assert result["bytes_read"] == 0
    assert "1 row; read 0 of 1 file" in run("count", "orders", "--where", "id = 1", config=config_file).stdout


@pytest.mark.parametrize("command", ["prune", "estimate"])
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("idd < 5", "table 'orders' has no column 'idd'; did you mean 'id'?"),
        ("id <", "'id <' does not parse at character 4, near '<': something is missing after it"),
        ("id < 3 or s = 'it''s or id > 4", "does not parse at character 15: the quote is not closed"),
        ('id < 3 or\n  "s = 1', "does not parse in line 2, at 3: the quote is not closed"),
        ("id < 'x'", "'x' is no value of column 'id' of table 'orders': give an integer"),
        ("day > 5", "5 is no value of column 'day' of table 'orders': give a date, such as 2024-01-31"),
        (
            "day > timestamp '2024-01-02'",
            "timestamp '2024-01-02' is no value of column 'day' of table 'orders': give a date",
        ),
        ("state > ratio", "compares two columns"),
        ("tags = 'x'", "whose values do not compare"),
        ("", "the predicate is empty"),
        ("(" * 4000 + "id = 1" + ")" * 4000, "nested too deep"),
        ("id = 1; drop table orders", "is more than one predicate"),
    ],
)
def test_invalid_predicates(config_file: Path, command: str, where: str, expected: str) -> None:
    assert expected in error_of(run(command, "orders", "--where", where, config=config_file))


def test_missing_objects(config_file: Path) -> None:
    assert "'nope'" in error_of(run("prune", "nope", "--where", "id = 1", config=config_file))
    assert "`metastore refresh fresh`" in error_of(run("count", "fresh", "--where", "id = 1", config=config_file))
    assert "--where" in run("estimate", "orders", config=config_file).output
