"""The configuration, `metastore.yaml`: its models, how it is read, and what is wrong with it in words."""

from metastore_assets.config.described import CatalogConfig as CatalogConfig
from metastore_assets.config.described import SensorConfig as SensorConfig
from metastore_assets.config.described import SensorStatus as SensorStatus
from metastore_assets.config.emr import EmrServerlessConfig as EmrServerlessConfig
from metastore_assets.config.loading import CONFIG_VARIABLE as CONFIG_VARIABLE
from metastore_assets.config.loading import config_path as config_path
from metastore_assets.config.models import EMBEDDED_CATALOG as EMBEDDED_CATALOG
from metastore_assets.config.models import Described as Described
from metastore_assets.config.models import MetastoreConfig as MetastoreConfig
from metastore_assets.config.models import load_config as load_config
from metastore_assets.config.models import read_config as read_config
from metastore_assets.config.policy import FREQUENCY_LIMIT as FREQUENCY_LIMIT
from metastore_assets.config.policy import LEAST_KEY as LEAST_KEY
from metastore_assets.config.policy import NEAR_UNIQUE_FROM as NEAR_UNIQUE_FROM
from metastore_assets.config.policy import CardinalityMode as CardinalityMode
from metastore_assets.config.policy import ColumnPolicy as ColumnPolicy
from metastore_assets.config.policy import ConfigModel as ConfigModel
from metastore_assets.config.policy import References as References
from metastore_assets.config.policy import ResolvedPolicy as ResolvedPolicy
from metastore_assets.config.tables import DatabaseConfig as DatabaseConfig
from metastore_assets.config.tables import TableConfig as TableConfig
