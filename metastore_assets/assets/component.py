"""A Dagster component that defines the tables of a configuration in YAML.

It supports `dg scaffold defs`.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from dagster import (
    AssetKey,
    AssetSpec,
    ComponentLoadContext,
    Definitions,
    ResolutionContext,
    Resolvable,
    Scaffolder,
    ScaffoldRequest,
    StateBackedComponent,
    scaffold_with,
)
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig, scaffold_component
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field, field_validator

from metastore_assets.assets.project import build_metastore_definitions
from metastore_assets.assets.table_info import look_up_tables, store_table_info
from metastore_assets.assets.translator import MetastoreAsset, MetastoreTranslator
from metastore_assets.config import TableConfig
from metastore_assets.config.file import CONFIG_FILE, normalize_mapping, read_mapping
from metastore_assets.config.loading import parse_config
from metastore_assets.databases import expand_databases, list_databases
from metastore_assets.errors import ConfigError
from metastore_assets.messages import is_uri, redact
from metastore_assets.resources.configuration import Configuration, StoredState

_STATE_TIMEOUT = 30.0
"""Seconds to wait for all catalogs, and then for all tables, when Dagster refreshes the component's state."""

Translation = Annotated[
    TranslationFn[MetastoreAsset],
    TranslationFnResolver[MetastoreAsset](
        lambda asset: {
            "table": asset.table.name,
            "kind": asset.kind,
            "uri": redact(asset.table.uri),
            "format": asset.format,
        }
    ),
]


class ScaffoldOptions(BaseModel):
    """The options of `dg scaffold defs` for the component."""

    table: str = Field(default="sales", description="Name of the first table")
    uri: str = Field(
        default="lake/sales", description="Location of the first table: a URI, or a path relative to the project"
    )
    root: str = Field(
        default="metastore", description="Location of the Metastore: a URI, or a path relative to the project"
    )

    @field_validator("table")
    @classmethod
    def _validate_table_name(cls, value: str) -> str:
        try:
            TableConfig(name=value, uri="x")
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return value


class MetastoreScaffolder(Scaffolder[ScaffoldOptions]):
    """A scaffolder that writes the component's `defs.yaml`, and a `metastore.yaml` with one table."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldOptions]:
        """Return the model of the command's options."""
        return ScaffoldOptions

    def scaffold(self, request: ScaffoldRequest[ScaffoldOptions]) -> None:
        """Write `defs.yaml`, and also `metastore.yaml` unless it exists."""
        scaffold_component(request, {"config": CONFIG_FILE})
        file = request.target_path / CONFIG_FILE
        if file.exists():
            return

        def relative_to_file(location: str) -> str:
            if is_uri(location) or os.path.isabs(location) or location.startswith("~"):
                return location
            return Path(os.path.relpath((request.project_root or Path.cwd()) / location, file.parent)).as_posix()

        options = request.params
        text = {
            "root": relative_to_file(options.root),
            "engine": "auto",
            "tables": [{"name": options.table, "uri": relative_to_file(options.uri)}],
        }
        file.write_text(
            f"# All keys: docs/reference/configuration.md of metastore-assets. Paths are relative to this file.\n"
            f"{yaml.safe_dump(text, sort_keys=False)}",
            encoding="utf-8",
        )


@scaffold_with(MetastoreScaffolder)
@dataclass
class MetastoreComponent(StateBackedComponent, Resolvable):
    """Assets, checks, jobs and sensors of the tables of a configuration.

    The tables are in a `metastore.yaml`, or under the component's key `tables`.

    Settings that YAML cannot express, such as a partitions definition, need a subclass of MetastoreTranslator. Name it
    under `translator`, or return it from `get_translator` in a subclass of this component.
    """

    _folder = Path()
    """The folder of `defs.yaml`, to which paths are relative. For a component created in Python, the working folder."""

    config: Annotated[
        str | None,
        Field(
            description="The configuration: a path, relative to the folder of the component; default: metastore.yaml, "
            "or none with a root"
        ),
    ] = None
    root: Annotated[
        str | None,
        Field(description="The root of the Metastore, in place of a configuration: all tables are under `tables`"),
    ] = None
    engine: Annotated[
        Literal["spark", "auto"] | None,
        Field(
            description="With `root`: `spark`, the default, or `auto`, which reads a few small files without Spark, as "
            "the key `engine` of a configuration"
        ),
    ] = None
    tables: Annotated[
        list[str | dict[str, Any]] | None,
        Field(
            description="Names of tables of the configuration, which exclude its other tables. Or tables with the keys "
            "of those in metastore.yaml, which are added to those of the configuration"
        ),
    ] = None
    sensors: Annotated[
        Literal["running", "stopped", "absent"] | None,
        Field(description="Whether sensors run, are stopped, or do not exist; by default as configured"),
    ] = None
    prefix: Annotated[list[str], Field(description="The prefix of all keys and names")] = field(default_factory=list)
    upstream: Annotated[
        Mapping[str, str], Field(description="The asset that writes a table, by table: `raw/sales`")
    ] = field(default_factory=dict)
    translation: Annotated[
        Translation | None,
        Field(
            description="Attributes of all assets; `{{ table }}`, `{{ kind }}`, `{{ uri }}` and `{{ format }}` are set"
        ),
    ] = None
    translator: Annotated[
        str | None, Field(description="A class that derives from MetastoreTranslator: `my_project.assets:Mine`")
    ] = None

    defs_state: ResolvedDefsStateConfig = field(default_factory=DefsStateConfigArgs.local_filesystem)

    @classmethod
    def resolve_from_model(cls, context: ResolutionContext, model: BaseModel) -> Self:
        """Create the component that a file `defs.yaml` describes.

        Args:
            context: Dagster's context, which knows the file. Paths of the component are relative to the folder of the
                file.
            model: The content of the file.
        """
        component: Self = super().resolve_from_model(context, model)
        if context.source_position_tree is not None:
            component._folder = context.resolve_source_relative_path(".")
        return component

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where Dagster stores the component's state.

        By default, the state's key contains the component's `prefix`. If the prefix is empty, the key contains the name
        of the component's folder.
        """
        name = "/".join(self.prefix) or self._folder.resolve().name
        return DefsStateConfig.from_args(self.defs_state, default_key=f"{type(self).__name__}[{name}]")

    def get_translator(self) -> MetastoreTranslator:
        """Create a translator that applies the component's prefix, upstream assets and translation.

        Its class is derived from the class that `translator` names, by default from MetastoreTranslator.
        """
        base = MetastoreTranslator if self.translator is None else _translator_class(self.translator)
        upstream, translation = self.upstream, self.translation

        class Translator(base):  # type: ignore[misc, valid-type]
            def get_upstream(self, table: TableConfig) -> AssetKey | None:
                key = upstream.get(table.name)
                return super().get_upstream(table) if key is None else AssetKey.from_user_string(key)  # type: ignore[no-any-return]

            def get_asset_spec(self, asset: MetastoreAsset) -> AssetSpec:
                spec = super().get_asset_spec(asset)
                return spec if translation is None else translation(spec, asset)

        return Translator(self.prefix)

    def write_state_to_path(self, state_path: Path) -> None:
        """Write the component's state as JSON.

        The state is the tables of each database, and each table's format and partitioning. The formats and
        partitionings are also stored below the root folder of the Metastore. Catalogs and tables that do not answer
        within 30 seconds are left out.
        """
        configuration = self._configuration(self._folder)
        config = configuration.resolved()
        listings = list_databases(config, _STATE_TIMEOUT)
        names = {
            listing.key: sorted({*listing.tables, *listing.dropped}) for listing in listings if not listing.failure
        }
        config, _ = expand_databases(config, listings)
        infos = look_up_tables(config, [table.name for table in config.tables], _STATE_TIMEOUT)
        store_table_info(config, infos)
        tables = {name: asdict(info) for name, info in sorted(infos.items())}
        state_path.parent.mkdir(parents=True, exist_ok=True)
        state_path.write_text(json.dumps({"databases": names, "tables": tables}), encoding="utf-8")

    def build_defs_from_state(self, context: ComponentLoadContext, state_path: Path | None) -> Definitions:
        """Return the definitions of the tables that the component selects.

        Args:
            context: Dagster's context of the component, with its folder.
            state_path: The file with the stored state; None if no state is stored.

        Raises:
            ConfigError: The configuration is invalid, or `upstream` names an unknown table.
        """
        configuration = self._configuration(context.path)
        if state_path is not None:
            state = json.loads(state_path.read_text(encoding="utf-8"))
            configuration = replace(configuration, state=StoredState(state["databases"], state["tables"]))
        configuration = configuration.with_loaded_listings()
        for name in self.upstream:
            configuration.unresolved().table(name)  # Raises if there is no such table.
        return build_metastore_definitions(
            configuration, tables=self._selected_names(), translator=self.get_translator(), sensors=self.sensors
        )

    def _selected_names(self) -> list[str] | None:
        """Return `tables` if it is a list of names; None if it is missing or a list of mappings.

        Raises ConfigError if it has both names and mappings.
        """
        names = [entry for entry in self.tables or () if isinstance(entry, str)]
        if names and len(names) < len(self.tables or ()):
            raise ConfigError(
                f"tables: {names[0]!r} is the name of a table, and other entries have keys: give either names, which "
                "select tables of the configuration, or tables with their keys"
            )
        return None if self.tables is None or (self.tables and not names) else names

    def _configuration(self, path: Path) -> Configuration:
        """Return the configuration in the file `config`, or a new one if `root` is set.

        The tables that the component itself defines are added.

        Args:
            path: The folder of the component, or its file `defs.yaml`.

        Raises:
            ConfigError: Both `root` and `config` are given, `root` without tables, `engine` without `root`, or a key or
                value is invalid.
        """
        folder = path if path.is_dir() else path.parent
        file = folder / (self.config or CONFIG_FILE)
        is_inline = self._selected_names() is None and bool(self.tables)
        if self.engine is not None and self.root is None:
            raise ConfigError(f"`engine` goes with `root` only: write it into the configuration {file}")
        if self.root is None and not is_inline:
            return Configuration.of(file)
        if self.root is not None and self.config is not None:
            raise ConfigError("give either `config`, whose file has the root, or `root`")
        if self.root is not None and not is_inline:
            raise ConfigError(
                "`root` takes the place of a configuration: give its tables, with their keys, in `tables`"
            )
        raw = normalize_mapping({"root": self.root, "engine": self.engine, "tables": self.tables})
        if self.root is None:
            in_file = read_mapping(file)
            merged_entries = {
                key: [*(in_file.get(key) or ()), *(raw.get(key) or ())] for key in ("tables", "databases")
            }
            raw = {**in_file, **{key: entries for key, entries in merged_entries.items() if entries}}
        return Configuration.of(parse_config(raw, folder / "defs.yaml" if self.root is not None else file))


def _translator_class(reference: str) -> Callable[..., Any]:
    """Import a subclass of MetastoreTranslator by a text such as `module:Class`.

    Raises ConfigError if the import fails, or if the class is no subclass of MetastoreTranslator.
    """
    module, _, name = reference.replace(":", ".").rpartition(".")
    try:
        translator_class = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"translator = {reference!r}: the class cannot be imported: {error}") from None
    if not (isinstance(translator_class, type) and issubclass(translator_class, MetastoreTranslator)):
        raise ConfigError(f"translator = {reference!r}: must be a class that derives from MetastoreTranslator")
    return translator_class
