"""An invalid configuration built in Python raises ConfigError, as one read from a file does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel

from metastore_assets import profile
from metastore_assets.config import CatalogConfig, ColumnPolicy, DatabaseConfig, MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError

ROWS = pa.table({"x": [1, 2]})
OFF, RANKS = ColumnPolicy(frequencies="off"), ColumnPolicy(ranks="on")
HIDDEN = ColumnPolicy(values="hidden")
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: TableConfig(name="t", uri="u", columns={"default": OFF, "x": RANKS}), "table 't': columns.x: `ranks: on`"),
    (lambda: TableConfig(name="t", uri="u", columns={"x": OFF, "default": RANKS}), "table 't': columns.x: `ranks: on`"),
    (
        lambda: TableConfig(name="t", uri="u", columns={"default": HIDDEN, "x": RANKS}),
        "columns.x: `ranks: on` .*`values: hidden`",
    ),
    (lambda: DatabaseConfig(catalog="c", database="d", columns={"default": OFF, "x": RANKS}), "columns.x: `ranks: on`"),
    (lambda: ColumnPolicy(histogram=5), r"histogram = 5: .*\b1000\b"),
    (lambda: ColumnPolicy.model_validate({"frequencies": "nope"}), "frequencies = 'nope': .*auto"),
    (lambda: profile(ROWS, columns={"default": OFF, "x": RANKS}), "columns.x: `ranks: on` .*`frequencies: off`"),
    (lambda: profile(ROWS, colums={}), "colums: .*'columns'"),
    (lambda: TableConfig(name="t"), r"\buri\b"),
    (lambda: TableConfig(name="5", uri="u"), "name = '5'"),
    (lambda: MetastoreConfig(root="r", tables=[TableConfig(name=n, uri="u") for n in "tt"]), "'t'"),
    (lambda: MetastoreConfig.model_validate({"root": "r", "tables": [{"name": "t"}]}), r"table 't': uri\b"),
    (lambda: CatalogConfig(type="x"), "type = 'x': "),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_errors_are_ours(number: int) -> None:
    make, message = WRONG[number]
    with pytest.raises(ConfigError, match=message) as error_info:
        make()
    assert "pydantic" not in str(error_info.value)


def test_no_secret_is_quoted() -> None:
    """No error quotes the value of an unknown key.

    If an option's name is misspelled, the value may be a secret.
    """
    for make in (
        lambda: profile(ROWS, aws_secret_access_key="hush hush"),
        lambda: MetastoreConfig(root="r", storage_option={"aws_secret_access_key": "hush hush"}),  # type: ignore[call-arg]
        lambda: MetastoreConfig(root="r", hidden_key="hush hush"),  # type: ignore[arg-type]
        lambda: MetastoreConfig(root="r", storage_options={"x": ["hush hush"]}),  # type: ignore[dict-item]
    ):
        with pytest.raises(ConfigError) as error_info:
            make()
        assert "hush" not in str(error_info.value)


def test_models_of_users_see_the_errors_of_pydantic() -> None:
    class Mine(BaseModel):
        table: TableConfig

    assert Mine.model_validate({"table": {"name": "t", "uri": "u"}}).table.name == "t"
    with pytest.raises(ValueError, match=r"\bMine\b"):
        Mine.model_validate({"table": {"name": "t", "uri": ""}})
