"""What all checks in `metastore.yaml` have in common."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from metastore_assets.config.check_settings import Name, Patterns

Level: TypeAlias = Literal["table", "column"]


class Check(BaseModel):
    """What every check may say."""

    # Built when it is first used: most configurations use few of them, and commands that read a version none.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    level: ClassVar[Level] = "column"
    kind: ClassVar[str]
    """What it is called in the configuration."""
    main: ClassVar[str | None] = None
    """The setting that may stand alone for all."""
    by_partition: ClassVar[bool] = True
    """Whether partitions can be looked at one by one."""
    universal: ClassVar[bool] = False
    """Whether it holds of some rows if it holds of all."""

    name: Name = None
    """What it is called in answers and in Dagster. Absent: made from the column and the kind."""
    severity: Literal["error", "warn"] = "error"
    """What it means when it fails: with `error`, `metastore check` ends with status 1."""
    partitions: Patterns = ()
    """Keys of partitions, and patterns of them, that are looked at each by itself; empty: the table as a whole."""
    blocking: bool = False
    """Whether, when it fails with `error`, Dagster's run fails, and with it what is below the statistics in that run.
    The version is published all the same."""

    @property
    def is_of_each_row(self) -> bool:
        """Whether it holds of every partition where it holds of the table."""
        return self.universal
