"""Loading of user-defined statistics by their names in the configuration, `module:Class`.

Only names are sent between processes, so the module must be installed wherever statistics are computed.

The *revision* of a class is a text that its author changes when the class gives other values for the same rows.

A *policy* says which statistics and values of a column are stored. A *type class* is a group of column types, such as
all signed integers, whose values are converted to one Arrow type.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import tokenize
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.errors import ConfigError, UnsupportedTypeError
from metastore_assets.statistics.column import STATISTICS
from metastore_assets.statistics.user_defined.interface import GROUPS, MergeableStatistic, UserStatistic
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.config import ResolvedPolicy

_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class LoadedStatistic:
    """A user-defined statistic, and the name of its class in the configuration."""

    reference: str
    """The name in the configuration: `module:Class`."""
    statistic: UserStatistic

    @property
    def name(self) -> str:
        """The name of the statistic's column in the file `statistics`."""
        return self.statistic.name

    @property
    def key(self) -> str:
        """The reference and the revision, such as `module:Class@1`, which identify stored states."""
        return f"{self.reference}@{self.statistic.revision}"

    @cached_property
    def source(self) -> str:
        """A digest of the source code of the statistic's class and base classes.

        Comments and whitespace do not count. Base classes in this package are ignored, because a release may change
        them. Raises ConfigError if a source cannot be read.
        """
        digest = hashlib.sha256()
        for cls in type(self.statistic).__mro__:
            if cls.__module__.partition(".")[0] not in (__package__.partition(".")[0], "abc", "builtins"):
                try:
                    digest.update(_tokens(inspect.getsource(cls)))
                except (OSError, TypeError, SyntaxError, tokenize.TokenError) as error:
                    raise ConfigError(
                        f"statistic {self.reference!r}: the source of {cls.__qualname__} cannot be read ({error}): "
                        "put it in a module that is a file"
                    ) from error
        return digest.hexdigest()[:16]


def load_for_class(references: tuple[str, ...], cls: TypeClass) -> tuple[LoadedStatistic, ...]:
    """Load statistics, and return those that apply to a type class.

    Args:
        references: The classes of the statistics, as `module:Class`. The result has the same order.
        cls: The type class.

    Raises:
        ConfigError: A statistic cannot be imported or is invalid, or two have the same name.
    """
    return (
        tuple(loaded_statistic for loaded_statistic in _load_all(references) if loaded_statistic.statistic.is_for(cls))
        if references
        else ()
    )


def load_for_policy(policy: ResolvedPolicy, type_class: str | None) -> tuple[LoadedStatistic, ...]:
    """Load the statistics that a policy requests, and return those that apply to a type class.

    Args:
        policy: The policy of a column.
        type_class: Name of the column's type class. If None, there are no statistics.

    Raises:
        ConfigError: A statistic cannot be imported or is invalid, or two have the same name.
    """
    return load_for_class(policy.statistics, class_named(type_class)) if type_class is not None else ()


def load_by_key(key: str) -> LoadedStatistic:
    """Load the statistic of a key such as `module:Class@1`.

    Raises ConfigError if it cannot be used.

    The revision in the key, here 1, is ignored: the loaded class may have another revision by now.
    """
    return load_statistic(key.rpartition("@")[0])


@lru_cache(maxsize=256)
def load_statistic(reference: str) -> LoadedStatistic:
    """Import and validate the statistic `module:Class`.

    Raises ConfigError if it cannot be used.
    """
    module_name, _, class_name = reference.partition(":")
    try:
        module = import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"statistic {reference!r}: the module {module_name!r} cannot be imported "
            f"({type(error).__name__}: {error}); it has to "
            "be on PYTHONPATH here and, on a cluster, on the executors (spark.submit.pyFiles)"
        ) from error
    cls = getattr(module, class_name, None)
    if not isinstance(cls, type) or not issubclass(cls, UserStatistic):
        what = "nothing of that name" if cls is None else "something else"
        raise ConfigError(
            f"statistic {reference!r}: the module {module_name!r} has {what}, where a class derived from "
            "MergeableStatistic or FrequencyStatistic is needed"
        )
    try:
        statistic = cls()
    except Exception as error:
        raise ConfigError(f"statistic {reference!r} cannot be constructed: {type(error).__name__}: {error}") from error
    if error_text := _validate(statistic):
        raise ConfigError(f"statistic {reference!r}: {error_text}")
    return LoadedStatistic(reference, statistic)


@lru_cache(maxsize=256)
def _load_all(references: tuple[str, ...]) -> tuple[LoadedStatistic, ...]:
    """Load the statistics of some references; a reference that is repeated is loaded once.

    Raises ConfigError if a statistic cannot be used, or if two have the same name.
    """
    by_name: dict[str, LoadedStatistic] = {}
    for reference in dict.fromkeys(references):
        loaded_statistic = load_statistic(reference)
        # In SQL, names that differ only in case are one column.
        if (other := by_name.setdefault(loaded_statistic.name.lower(), loaded_statistic)) is not loaded_statistic:
            raise ConfigError(
                f"statistics {other.reference!r} and {reference!r} have the same name, {loaded_statistic.name!r}: give "
                "one of them another"
            )
    return tuple(by_name.values())


def _validate(statistic: UserStatistic) -> str | None:
    """Return a message about an invalid class attribute of a statistic, or None if all are valid."""
    name, revision, types = (getattr(statistic, key, None) for key in ("name", "revision", "types"))
    # Tables of statistics by partition have the column `partition`.
    if not isinstance(name, str) or not name.isidentifier() or name.lower() in (*STATISTICS, "partition"):
        return f"name = {name!r} must be an identifier that no other statistic has, in any case"
    if not isinstance(revision, str) or not revision or "@" in revision:
        return f"revision = {revision!r} must be text, such as '1', without `@`"
    if not isinstance(types, tuple | list) or not types:
        return f"types = {types!r} must be names of type classes, such as ('numeric', 'string')"
    for type_ in types:
        if type_ not in GROUPS and not _is_class(type_):
            return f"types has {type_!r}, which is no type class; groups of them are {', '.join(GROUPS)}"
    for key in ("result", *(("state",) if isinstance(statistic, MergeableStatistic) else ())):
        if not isinstance(getattr(statistic, key, None), pa.DataType):
            return f"{key} must be an Arrow type, such as pa.float64()"
    if statistic.guarantee not in ("exact", "bound", "estimate"):
        return f"guarantee = {statistic.guarantee!r} must be exact, bound or estimate"
    return None


def _is_class(name: object) -> bool:
    try:
        class_named(str(name))
    except UnsupportedTypeError:
        return False
    return True


def _tokens(source: str) -> bytes:
    # The source of a nested class is indented, which is no valid program.
    lines = io.StringIO(inspect.cleandoc("\n" + source)).readline
    return "\0".join(token.string for token in tokenize.generate_tokens(lines) if token.type not in _LAYOUT).encode()
