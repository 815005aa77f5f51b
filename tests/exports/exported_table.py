"""A table in a catalog, with functions to refresh it, and to export and read back its statistics.

The catalog is a Hive metastore or Glue.

A version is the published statistics of a table at one snapshot.

An export writes the statistics of a version to a target, such as a catalog. A root is the folder with all stored state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metastore_assets.config import MetastoreConfig
from metastore_assets.exports.configured_targets import select_export_entries
from metastore_assets.exports.export_result import ExportResult
from metastore_assets.exports.writing import read_export_states, remove_exports, write_exports
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.versions import versions_of
from tests.robustness.refresh_assertions import no_spark


class ExportedTable:
    """A table of a catalog (Hive or Glue) that is refreshed and exported as its configuration says."""

    def __init__(self, catalog: Mapping[str, str], name: str, folder: Path, **settings: Any) -> None:
        self.catalog = catalog
        self.name = name
        self.folder = folder
        self.settings = settings

    @property
    def config(self) -> MetastoreConfig:
        """The configuration with this table alone."""
        return self._config(self.settings)

    def export(self, **settings: Any) -> ExportResult:
        """Change settings of the table, refresh it, and export the newest version.

        Return the result of the export.
        """
        self.settings |= settings
        config = self._config({key: item for key, item in self.settings.items() if key != "exports"})
        refresh(config, config.tables[0], no_spark)
        return self.write()

    def write(self, number: int | None = None, *, rewrite: bool = False) -> ExportResult:
        """Export a version, the newest by default.

        With `rewrite`, remove the earlier export first, as a purge does.
        """
        table, objects, version = self._version(number)
        (result,) = write_exports(table, objects, lambda: version, rewrite=rewrite)
        return result

    @property
    def root(self) -> Path:
        """The root of the Metastore."""
        return self.folder.parent / f"{self.folder.name}-root"

    def configuration_file(self) -> Path:
        """Write the configuration with this table alone to a file, and return the file's path."""
        path = self.folder.parent / "metastore.yaml"
        path.write_text(json.dumps(self._raw_config(self.settings)))
        return path

    def _config(self, settings: Mapping[str, Any]) -> MetastoreConfig:
        return MetastoreConfig.model_validate(self._raw_config(settings)).resolve()

    def _raw_config(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        table = {"name": "t", "catalog": "hms", "table": self.name, **settings}
        return {"root": str(self.root), "engine": "auto", "catalogs": {"hms": self.catalog}, "tables": [table]}

    def state(self) -> ExportResult:
        """Return the state of the export: which version the target has."""
        (result,) = read_export_states(*self._version())
        return result

    def remove(self) -> ExportResult:
        """Remove the export from the target."""
        (result,) = remove_exports(self.config.tables[0])
        return result

    def read_back(self) -> Any:
        """Return the statistics as a reader of the target finds them."""
        (entry,) = select_export_entries(self.config.tables[0])
        return entry.open(self.config.tables[0]).read_back()

    def _version(self, number: int | None = None) -> Any:
        versions = versions_of(self.config, "t")
        return self.config.tables[0], versions.objects, versions.read(number or versions.newest())
