"""The object store that the Metastore's versions lie in."""

from dagster import ConfigurableResource
from pydantic import Field

from metastore_assets.config import load_config
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore


class ObjectStoreResource(ConfigurableResource[object]):
    """The Metastore's root. Its storage options may hold secrets, so they stay in the file: see SparkResource."""

    config_file: str = Field(description="The metastore.yaml whose `root` and `storage_options` apply")

    def root(self) -> ObjectStore:
        """The store of the root. Raises ConfigError."""
        config = load_config(self.config_file)
        return ObjectStore(config.root, config.storage_options)

    def versions(self, table: str) -> VersionStore:
        """The versions of one table. Raises ConfigError."""
        return VersionStore(self.root(), table)
