"""Extensions, such as table formats: built-in ones, and entry points of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from metastore_assets.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class PluginGroup:
    """All extensions of one kind, by name.

    An extension is imported only when it is loaded.

    Built-in extensions are listed in the code. They are found even if this package is not installed and has no entry
    points, as in a checkout.
    """

    def __init__(self, group: str, built_in: Mapping[str, str]) -> None:
        """Create the group of all extensions of one kind.

        Args:
            group: The name of the entry point group.
            built_in: The built-in extensions as `module:attribute`, by name.
        """
        self.group = group
        self.built_in = built_in

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self._installed

    def names(self) -> tuple[str, ...]:
        """Return all names: first the built-in ones, then the sorted names of other packages' extensions."""
        return (*self.built_in, *self.installed_names())

    def installed_names(self) -> tuple[str, ...]:
        """Return the names that other packages register, sorted."""
        return tuple(sorted(self._installed))

    def load(self, name: str) -> Any:
        """Import an extension and return it.

        Raises:
            KeyError: The name is unknown.
            ConfigError: The extension of another package cannot be imported, or several packages register the name.
        """
        if name in self.built_in:
            module, _, attribute = self.built_in[name].partition(":")
            return getattr(import_module(module), attribute)
        entry_points = self._installed[name]
        if len(entry_points) > 1:
            values = " and ".join(sorted(entry_point.value for entry_point in entry_points))
            raise ConfigError(f"several packages register {name!r} in {self.group}: {values}; uninstall all except one")
        try:
            return entry_points[0].load()
        except Exception as error:
            package = entry_points[0].dist.name if entry_points[0].dist else "unknown"
            raise ConfigError(
                f"{entry_points[0].value} cannot be imported, which the package {package!r} registers as {name!r} in "
                f"{self.group}: {error!r}; repair or uninstall the package"
            ) from error

    def refresh(self) -> None:
        """Forget the extensions of installed packages, so that the next call searches for them again."""
        self.__dict__.pop("_installed", None)

    @cached_property
    def _installed(self) -> dict[str, list[EntryPoint]]:
        """The entry points of other packages, by name."""
        from importlib.metadata import entry_points

        result: dict[str, list[EntryPoint]] = {}
        for entry_point in entry_points(group=self.group):
            if entry_point.name not in self.built_in:
                result.setdefault(entry_point.name, []).append(entry_point)
        return result


TABLE_FORMATS = PluginGroup(
    "metastore_assets.formats",
    {
        "delta": "metastore_assets.formats.delta:FORMAT",
        "files": "metastore_assets.formats.files:FORMAT",
        "hudi": "metastore_assets.formats.hudi:FORMAT",
        "iceberg": "metastore_assets.formats.iceberg:FORMAT",
        "lance": "metastore_assets.formats.lance:FORMAT",
    },
)
"""The table formats. Each is a `metastore_assets.formats.registration.FormatRegistration`."""

EXPORT_TARGETS = PluginGroup(
    "metastore_assets.exports",
    {
        "glue": "metastore_assets.exports.glue:GlueTarget",
        "hive": "metastore_assets.exports.hive:HiveTarget",
        "iceberg": "metastore_assets.exports.iceberg:IcebergTarget",
        "spark": "metastore_assets.exports.spark:SparkTarget",
    },
)
"""The kinds of export targets. Each is a subclass of `metastore_assets.exports.base.ExportTarget`."""
