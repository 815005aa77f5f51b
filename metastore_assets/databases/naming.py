"""A configuration with the tables of its databases among its own, by what they are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.databases.looking import Members, look
from metastore_assets.errors import ConfigError


@dataclass(frozen=True)
class LeftOut:
    """One table of a database that nothing is kept of, or a database that could not be asked."""

    name: str
    """`<catalog>.<database>.<table>`, or without the table."""
    reason: str
    is_database: bool = False
    """Its tables are those of the last time then."""

    def __str__(self) -> str:
        if self.is_database:
            return f"{self.name} has the tables that it had when it was listed last: {self.reason}"
        return f"{self.name} is left out: {self.reason}"


def with_members(config: MetastoreConfig, members: Sequence[Members]) -> tuple[MetastoreConfig, list[LeftOut]]:
    """The configuration with all tables of its databases, also those that are gone, and what was left out and why.

    What the configuration names itself is kept as it says there. Tables of which two would have one name are left out,
    all of them: which was meant nobody can tell, and another tomorrow would go on with the numbers of this one.
    """
    by_key = _by_key(members)
    named = {_place(table) for table in config.tables}
    found: dict[tuple[str, str], TableConfig] = {}
    left_out: list[LeftOut] = []
    for database in config.databases:
        member = by_key.get(database.key, Members(database.key))
        if member.failure and not any(left.name == member.key for left in left_out):
            left_out.append(LeftOut(member.key, member.failure, is_database=True))
        left_out += [
            LeftOut(f"{member.key}.{name}", why)
            for name, why in sorted(member.left_out.items())
            if database.includes(name)
        ]
        for name in sorted({*member.tables, *member.gone}):
            if not database.includes(name):
                continue
            try:
                table = database.table(name)
            except ConfigError as error:
                left_out.append(LeftOut(f"{member.key}.{name}", str(error)))
                continue
            if _place(table) not in named:
                found.setdefault(_place(table), table.with_listing(member.tables.get(name), member.gone.get(name)))
    tables, clashes = _distinct(config, list(found.values()))
    return config.model_copy(update={"tables": [*config.tables, *tables]}), [*left_out, *clashes]


def find_table(config: MetastoreConfig, name: str) -> TableConfig:
    """The table of that name, which a resolved configuration names itself or one of its databases has: these are asked
    only when it does not. Raises ConfigError."""
    if not config.databases or any(table.name == name for table in config.tables):
        return config.table(name)
    return with_members(config, look(config))[0].table(name)


def _by_key(members: Sequence[Members]) -> dict[str, Members]:
    """The members by database, of which there may be several entries."""
    found: dict[str, Members] = {}
    for one in members:
        before = found.get(one.key, Members(one.key))
        found[one.key] = Members(
            one.key,
            {**before.tables, **one.tables},
            {**before.gone, **one.gone},
            {**before.left_out, **one.left_out},
            before.failure or one.failure,
        )
    return found


def _distinct(config: MetastoreConfig, tables: list[TableConfig]) -> tuple[list[TableConfig], list[LeftOut]]:
    own = Counter(_folded(table.name) for table in config.tables)
    all_ = own + Counter(_folded(table.name) for table in tables)
    kept, clashes = [], []
    for table in tables:
        if all_[_folded(table.name)] == 1:
            kept.append(table)
            continue
        clash = next(
            other
            for other in (*config.tables, *tables)
            if _folded(other.name) == _folded(table.name) and other is not table
        )
        clashes.append(
            LeftOut(
                f"{table.database}.{str(table.identifier).rpartition('.')[2]}",
                f"it would be called {table.name!r} here, as would {clash.uri} (case and -/_ do not count): give the "
                "database another `name`, such as '{database}_{table}', or the table an entry of its own",
            )
        )
    return kept, clashes


def _place(table: TableConfig) -> tuple[str, str]:
    return str(getattr(table.catalog, "name", table.catalog)), str(table.identifier or table.uri)


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")
