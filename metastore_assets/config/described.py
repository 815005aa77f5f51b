"""What `metastore.yaml` may say of a table and of all tables of a database alike, and of catalogs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from metastore_assets.config.check_entries import NamedCheck, TableChecks, named_checks
from metastore_assets.config.policy import ColumnPolicy, ConfigModel, References

SensorStatus: TypeAlias = Literal["running", "stopped", "absent"]
"""Whether Dagster starts a sensor by itself, has it switched on by hand, or does not have it."""


class SensorConfig(ConfigModel):
    """Dagster's sensor of a table or a database."""

    interval: int = Field(default=30, ge=1)
    """Seconds between two looks."""
    status: SensorStatus | None = None
    """Absent: as the key `sensors` of the configuration says."""


class CatalogConfig(ConfigModel):
    """A catalog: its kind, and whatever properties pyiceberg takes for it (`uri`, `warehouse`, `token`, …)."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True, defer_build=True)

    references: ClassVar[frozenset[str]] = frozenset({"name"})

    type: Literal["sql", "rest", "glue", "hive"]
    name: str = ""
    """Its key under `catalogs`, which catalogs in SQL databases have their tables under."""

    @property
    def properties(self) -> dict[str, str]:
        """All keys but the kind and the name, as pyiceberg takes them."""
        return {key: str(as_text(value)) for key, value in (self.model_extra or {}).items()}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Kind and name: properties may be secrets."""
        return [("type", self.type), ("name", self.name)]


class DescribedConfig(ConfigModel):
    """What may be said of a table, or of all tables of a database alike."""

    references: ClassVar[frozenset[str]] = frozenset({"storage_options", "path_mapping", "allow", "columns", "sensor"})

    storage_options: dict[str, str] = Field(default_factory=dict, repr=False)
    """Object-store settings for the table itself, as the format's library names them (`aws_region`, …)."""
    path_mapping: dict[str, str] = Field(default_factory=dict)
    """Of a moved table: recorded location prefixes and where the files lie now. The longest one that fits counts."""
    allow: tuple[str, ...] = ()
    """Prefixes of locations outside of the table's own store that its metadata may name."""
    restrict_to_table_root: bool = False
    """Whether only what is below the table's own location is read, whatever `allow` and `path_mapping` say."""
    columns: dict[str, ColumnPolicy] = Field(default_factory=dict)
    """Policy by column (dotted leaf path). The key `default` is the policy of every column not named."""
    statistics: References = ()
    """User-defined statistics of all columns of the types that they are for, where `columns` says nothing else."""
    checks: TableChecks = ()
    """What has to be true of the table; those of columns are under `columns`."""
    sensor: SensorConfig = SensorConfig()
    outputs: Literal["kinds", "table"] = "kinds"
    """The assets that Dagster shows of a table besides its source: `kinds`, one of its partitions and one of each kind
    of file; `table`, a single one with the metadata of all of them."""

    @field_validator("allow", mode="before")
    @classmethod
    def _prefixes(cls, value: Any) -> Any:
        return listed(value)

    @model_validator(mode="after")
    def _lists_have_values(self) -> Self:
        for column in self.columns:
            policy = self.policy(column)
            if policy.enumerating_key and (policy.frequencies == "off" or policy.values == "hidden"):
                against = "frequencies: off" if policy.frequencies == "off" else "values: hidden"
                key = policy.enumerating_key
                raise ValueError(
                    f"columns.{column}: `{key}: on` takes a list of all values, and `{against}` keeps none: "
                    f"leave that out, or give the column `{key}: off`"
                )
            if policy.values == "hidden" and self.columns[column].value_filter == "on" and column != "default":
                raise ValueError(
                    f"columns.{column}: `value_filter: on` would tell of any value whether it is there, and `values: "
                    "hidden` keeps nothing that does: leave one of them out"
                )
            if policy.enumerating_key and policy.is_fingerprinted:
                raise ValueError(
                    f"columns.{column}: `{policy.enumerating_key}: on` takes a list of all values, and "
                    "`algorithm: fingerprints` stores only repeated values: use `algorithm: enumeration`"
                )
            given = self.columns[column].model_fields_set
            if (
                "algorithm" in given
                and policy.algorithm in ("enumeration", "fingerprints")
                and policy.frequencies != "repeated"
            ):
                raise ValueError(
                    f"columns.{column}: `algorithm: {policy.algorithm}` is for `frequencies: repeated`, and it has "
                    f"`frequencies: {policy.frequencies}`: leave the algorithm out, or change the frequencies"
                )
        return self

    @model_validator(mode="after")
    def _checks_have_names(self) -> Self:
        if "default" in self.columns and self.columns["default"].checks:
            raise ValueError("columns.default.checks: a check is of one column: give it under the column's name")
        self.named_checks()
        return self

    def named_checks(self) -> list[NamedCheck]:
        """All checks of the table and of its columns, in the order of the configuration."""
        return named_checks(self.checks, {column: policy.checks for column, policy in self.columns.items()})

    def policy(self, column: str, aliases: Sequence[Sequence[str]] | None = None) -> ColumnPolicy:
        """Return the policy of a column: its own keys over those of `default` over the built-in ones.

        A column is hidden, too, where the name of a column that it is inside of hides that; and where another path that
        the same column may have hides it, and its own says nothing of `values`: which of two columns `a.b` is put in
        backticks depends on what other columns there are.

        Args:
            column: The dotted path of the column.
            aliases: `LeafColumn.aliases`. Without a schema it is not known; then the column is taken to be inside of
                every configured name that its path begins with, up to a dot.
        """
        policy = self.columns.get("default") or _built_in()
        if "statistics" not in policy.model_fields_set:
            policy = policy.model_copy(update={"statistics": self.statistics})
        own = self.columns.get(column) if column != "default" else None
        if own is not None:
            policy = policy.model_copy(update={key: getattr(own, key) for key in own.model_fields_set - {"checks"}})
        if aliases is None:
            aliases = [(name,) for name in self.columns if column == name or column.startswith(f"{name}.")]
        if any(self._is_hidden(names) for names in aliases):
            policy = policy.model_copy(update={"values": "hidden"})
        # Every list of all values gives ranks; by partition it is kept beside it.
        if policy.enumerating_key and policy.frequencies == "auto":
            policy = policy.model_copy(update={"frequencies": "all"})
        if policy.enumerating_key and policy.is_undecided:
            policy = policy.model_copy(update={"algorithm": "enumeration"})
        return policy

    def _is_hidden(self, names: Sequence[str]) -> bool:
        """Return whether a column is hidden under one of its names, of which the first one is its path."""
        policies = {name: self.columns[name] for name in names if name != "default" and name in self.columns}
        said = {name: policy.values for name, policy in policies.items() if "values" in policy.model_fields_set}
        return said[names[0]] == "hidden" if names[0] in said else "hidden" in said.values()

    @property
    def named_statistics(self) -> tuple[str, ...]:
        """The classes of user-defined statistics that are named, for all columns or for some."""
        of_columns = (own for policy in self.columns.values() for own in policy.statistics)
        return tuple(dict.fromkeys([*self.statistics, *of_columns]))

    @property
    def hides_values(self) -> bool:
        """Whether a policy hides values of some column."""
        return any(policy.values == "hidden" for policy in self.columns.values())


@lru_cache(maxsize=1)
def _built_in() -> ColumnPolicy:
    """When first asked for: whoever only imports this builds no validators."""
    return ColumnPolicy()


def listed(value: Any) -> Any:
    """Prefixes of locations; one alone stands for a list of one. An empty one would be the current folder."""
    given = [value] if isinstance(value, str) else value
    if isinstance(given, list | tuple) and not all(isinstance(prefix, str) and prefix.strip() for prefix in given):
        raise ValueError("prefixes of locations, such as s3://bucket/folder/")
    return given


def as_text(value: Any) -> Any:
    """What was written without quotes in YAML, as text again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return str(value) if isinstance(value, int | float | date) else value
