"""From the name of a user-defined statistic in the configuration to its class.

Only names travel: a process imports the module where it is needed, so the module has to be there too.
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
    """A user-defined statistic."""

    reference: str
    """`module:Class`, as it is configured."""
    statistic: UserStatistic

    @property
    def name(self) -> str:
        """Its column in `statistics`."""
        return self.statistic.name

    @property
    def key(self) -> str:
        """What its states and signatures go by: reference and revision."""
        return f"{self.reference}@{self.statistic.revision}"

    @cached_property
    def source(self) -> str:
        """Digest of its source, base classes of the user's included, without comments and layout.

        Classes of this package are left out: they have revisions, and users could do nothing about what a release
        rewrites. Raises ConfigError when there is no source.
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
    """Those of the statistics that are for columns of a class, in that order. Raises ConfigError."""
    return tuple(own for own in _all(references) if own.statistic.is_for(cls)) if references else ()


def load_for_policy(policy: ResolvedPolicy, type_class: str | None) -> tuple[LoadedStatistic, ...]:
    """Those that a column's policy asks for; none of a column without a class. Raises ConfigError."""
    return load_for_class(policy.statistics, class_named(type_class)) if type_class is not None else ()


def load_by_key(key: str) -> LoadedStatistic:
    """The statistic whose states have that key. Raises ConfigError."""
    return load_statistic(key.rpartition("@")[0])


@lru_cache(maxsize=256)
def load_statistic(reference: str) -> LoadedStatistic:
    """The statistic that `module:Class` names, checked. Raises ConfigError, which says what is wrong with it."""
    module_name, _, class_name = reference.partition(":")
    try:
        module = import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"statistic {reference!r}: the module {module_name!r} cannot be imported "
            f"({type(error).__name__}: {error}); it has to "
            "be on PYTHONPATH here and, on a cluster, on the executors (spark.submit.pyFiles)"
        ) from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type) or not issubclass(found, UserStatistic):
        what = "nothing of that name" if found is None else "something else"
        raise ConfigError(
            f"statistic {reference!r}: the module {module_name!r} has {what}, where a class derived from "
            "MergeableStatistic or FrequencyStatistic is needed"
        )
    try:
        statistic = found()
    except Exception as error:
        raise ConfigError(f"statistic {reference!r} cannot be made: {type(error).__name__}: {error}") from error
    if wrong := _wrong(statistic):
        raise ConfigError(f"statistic {reference!r}: {wrong}")
    return LoadedStatistic(reference, statistic)


@lru_cache(maxsize=256)
def _all(references: tuple[str, ...]) -> tuple[LoadedStatistic, ...]:
    found: dict[str, LoadedStatistic] = {}
    for reference in dict.fromkeys(references):
        own = load_statistic(reference)
        if own.name in found:
            raise ConfigError(
                f"statistics {found[own.name].reference!r} and {reference!r} have the same name, {own.name!r}: "
                "give one of them another"
            )
        found[own.name] = own
    return tuple(found.values())


def _wrong(statistic: UserStatistic) -> str | None:
    """What is wrong with what a class declares."""
    name, revision, types = (getattr(statistic, key, None) for key in ("name", "revision", "types"))
    if not isinstance(name, str) or not name.isidentifier() or name in STATISTICS:
        return f"name = {name!r} must be an identifier that is not the name of another statistic"
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
    # Indented, the source of a class within something else is no program.
    lines = io.StringIO(inspect.cleandoc("\n" + source)).readline
    return "\0".join(own.string for own in tokenize.generate_tokens(lines) if own.type not in _LAYOUT).encode()
