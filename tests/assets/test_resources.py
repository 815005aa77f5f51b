"""The resources of dagster-pyspark provide the Spark session, those of dagster-aws the access to S3.

A root is the folder with all stored state.
"""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from dagster import EnvVar
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyiceberg.catalog.glue import GlueCatalog

from metastore_assets.config import CatalogConfig, MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.formats import open_table_format
from metastore_assets.messages import remove_secrets
from metastore_assets.resources.configuration import Configuration
from metastore_assets.resources.s3 import s3_options, with_credentials
from metastore_assets.resources.spark import running_spark
from metastore_assets.store.versions import versions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[2]
PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from metastore_assets.resources.configuration import Configuration

configuration = Configuration.of(sys.argv[1])
with configuration.session(configuration.resolved()) as spark:
    assert SparkSession.getActiveSession() is None, "started before it was asked for"
    session = spark()
    assert session.sparkContext.appName == "from the file"
    assert spark() is session
assert session.sparkContext._jsc is None, "not stopped"
"""


def write(folder: Path) -> str:
    path = folder / "metastore.yaml"
    path.write_text(
        'root: ./root\nspark: {spark.master: "local[1]", spark.app.name: from the file}\n', encoding="utf-8"
    )
    return str(path)


@pytest.mark.spark
def test_a_session_starts_at_first_use_and_stops_with_the_run(tmp_path: Path) -> None:
    """A Spark session starts when it is first used, and stops at the end of the run.

    A process can have only one session, so the test runs a program.
    """
    command = [sys.executable, "-c", PROGRAM, write(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
@pytest.mark.parametrize(
    "spark_resource", [None, LazyPySparkResource(spark_config={}), PySparkResource(spark_config={})], ids=type
)
def test_a_running_session_is_used_and_not_stopped(spark_resource: Any, spark: "SparkSession") -> None:
    with running_spark(spark_resource, {}) as session:
        assert session() is spark
    assert spark.range(3).count() == 3


def test_settings_of_spark_in_two_places_are_refused(tmp_path: Path) -> None:
    resource = LazyPySparkResource(spark_config={"spark.executor.memory": "2g"})
    with pytest.raises(ConfigError, match="`spark`"):
        Configuration.of(write(tmp_path), spark=resource)


@pytest.mark.parametrize("entry", [{"exports": ["nowhere"]}, {"checks": [{"nowhere": {}}]}], ids=["export", "check"])
def test_invalid_entries_of_a_configuration_object_are_refused(entry: dict[str, Any]) -> None:
    table = TableConfig.model_validate({"name": "t", "uri": "/lake/t", **entry})
    with pytest.raises(ConfigError, match=r"'t'.*'nowhere'"):
        Configuration.of(MetastoreConfig(root="/root", tables=[table])).unresolved()


def test_the_versions_are_in_the_configured_root(tmp_path: Path) -> None:
    versions = versions_of(Configuration.of(write(tmp_path)).resolved(), "t")
    assert versions.objects.uri().startswith(str(tmp_path / "root"))
    assert versions.latest() is None


def test_the_configuration_file_is_read_when_it_is_resolved(tmp_path: Path) -> None:
    configuration = Configuration.of(tmp_path / "metastore.yaml")
    with pytest.raises(ConfigError, match=r"metastore\.yaml.*METASTORE_CONFIG"):
        configuration.resolved()
    write(tmp_path)
    assert configuration.resolved().root == str(tmp_path / "root")


def test_s3_is_accessed_with_the_settings_of_the_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of an S3 resource apply to the root and to the tables on S3.

    The environment variables that the resource names are resolved on first use. Settings of the configuration have
    priority. A table with its own credentials gets no key of the resource. Messages do not show the secret key.
    """
    s3 = S3Resource(
        endpoint_url="http://127.0.0.1:5",
        region_name="eu-central-1",
        aws_access_key_id=EnvVar("OF_RESOURCE_ID"),
        aws_secret_access_key=EnvVar("OF_RESOURCE_SECRET"),
    )
    config = MetastoreConfig(
        root="s3://bucket/metastore",
        tables=[
            TableConfig(name="a", uri="s3a://bucket/a", storage_options={"AWS_REGION": "us-east-1"}),
            TableConfig(name="own", uri="s3://bucket/own", storage_options={"access_key_id": "own"}),
            TableConfig(name="local", uri="/lake/local"),
        ],
    ).resolve({})
    with pytest.raises(ConfigError, match="OF_RESOURCE_ID"):
        with_credentials(config, s3)
    monkeypatch.setenv("OF_RESOURCE_ID", "the-id-of-it")
    monkeypatch.setenv("OF_RESOURCE_SECRET", "hush, resource")
    s3_config = with_credentials(config, s3)
    complete = {
        "aws_access_key_id": "the-id-of-it",
        "aws_secret_access_key": "hush, resource",
        "aws_region": "eu-central-1",
        "aws_endpoint": "http://127.0.0.1:5",
        "aws_allow_http": "true",
    }
    assert s3_config.storage_options == complete
    here, explicit, local = (table.storage_options for table in s3_config.tables)
    assert here == {name: value for name, value in complete.items() if name != "aws_region"} | {
        "AWS_REGION": "us-east-1"
    }
    assert explicit == {
        "access_key_id": "own",
        "aws_region": "eu-central-1",
        "aws_endpoint": "http://127.0.0.1:5",
        "aws_allow_http": "true",
    }, "credentials are never combined from two sources"
    assert local == {}
    assert "hush" not in remove_secrets("signed with 'hush, resource'")
    assert "hush" not in str(MetastoreError("signed with hush, resource"))


@pytest.mark.s3
def test_a_glue_catalog_is_queried_with_the_settings_of_the_resource(
    tmp_path: Path, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Glue catalog without credentials is queried with the settings of the S3 resource.

    The settings are also used to read the files of the catalog's tables. A catalog that has credentials of its own gets
    none of these settings.
    """
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    access = {"access-key-id": "key-of-glue", "secret-access-key": "not-a-secret", "region": "us-east-1"}
    catalog = GlueCatalog("lake", **{"glue.endpoint": s3_endpoint, **{f"glue.{k}": v for k, v in access.items()}})
    catalog.create_namespace_if_not_exists("shop")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    catalog.create_table("shop.sales", rows.schema, location=f"file://{tmp_path}/sales").append(rows)
    endpoint_options = {"glue.endpoint": s3_endpoint}
    config = MetastoreConfig.model_validate(
        {
            "root": str(tmp_path / "root"),
            "catalogs": {
                "lake": {"type": "glue", **endpoint_options},
                "own": {
                    "type": "glue",
                    **endpoint_options,
                    "glue.access-key-id": "own",
                    "s3.session-token": "vended",
                },
            },
            "tables": [
                {"name": "sales", "catalog": "lake", "table": "shop.sales"},
                {"name": "other", "catalog": "own", "table": "shop.sales"},
            ],
        }
    ).resolve({})
    s3 = S3Resource(
        aws_access_key_id="key-of-glue",
        aws_secret_access_key="not-a-secret",
        region_name="us-east-1",
        endpoint_url=s3_endpoint,
    )
    sales, other = with_credentials(config, s3).tables
    assert isinstance(sales.catalog, CatalogConfig)
    assert isinstance(other.catalog, CatalogConfig)
    assert sales.catalog.properties == {
        **endpoint_options,
        **{f"glue.{name}": value for name, value in access.items()},
        **{f"s3.{name}": value for name, value in access.items()},
        "s3.endpoint": s3_endpoint,
    }
    assert other.catalog.properties == config.catalogs["own"].properties
    assert len(open_table_format(sales).snapshot().fragments) == 1


def test_settings_of_s3_are_those_of_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options for S3 have the credentials and region of the AWS profile that the resource names.

    A resource without settings adds no options. An unknown profile is an error.
    """
    (tmp_path / "credentials").write_text(
        "[lake]\naws_access_key_id = an-id\naws_secret_access_key = a-secret\nregion = eu-west-3\n", encoding="utf-8"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert s3_options(S3Resource(profile_name="lake")) == {
        "aws_access_key_id": "an-id",
        "aws_secret_access_key": "a-secret",
        "aws_region": "eu-west-3",
    }
    assert s3_options(S3Resource()) == {}
    assert s3_options(S3Resource(use_unsigned_session=True)) == {"aws_skip_signature": "true"}
    with pytest.raises(ConfigError, match="'other'"):
        s3_options(S3Resource(profile_name="other"))
