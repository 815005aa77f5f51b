"""Jobs that `spark-submit` starts, as EMR does: the refresh uses the job's Spark and S3.

A root is the folder with all stored state.
"""

from collections.abc import Iterator

import pytest
from dagster import DagsterInstance

from metastore_assets import build_metastore_definitions
from metastore_assets.pipeline.refresh import refresh
from tests.assets.user_project import STATISTICS, commit, reported_row_counts
from tests.emr.emr_setup import EmrSetup, logged, start_emr, with_new_folder

pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def aws() -> Iterator[EmrSetup]:
    with start_emr("spark-submit") as cloud:
        yield cloud


def test_versions_published_by_jobs_equal_local_ones(aws: EmrSetup, instance: DagsterInstance) -> None:
    """Jobs publish each of two commits, and the statistics equal those of a refresh in this process.

    The refresh in this process starts from an empty root after the last commit.
    """
    cloud = with_new_folder(aws)
    # Commits of one file each, so that tasks have work; and a property with blanks in it.
    spark_settings = {
        "spark.ui.enabled": False,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-Da=b -Dc=d",
    }
    config = cloud.config(spark=spark_settings)
    definitions = build_metastore_definitions(config)
    result = commit(definitions, instance)
    assert result is not None
    assert reported_row_counts(instance, result, STATISTICS) == {None: 6}
    assert "2 fragments added" in logged(instance, result)
    cloud.write(2, 3)
    result = commit(definitions, instance)
    assert result is not None
    assert reported_row_counts(instance, result, STATISTICS) == {None: 12}
    assert commit(definitions, instance) is None
    assert [job["state"] for job in cloud.jobs()] == ["SUCCESS", "SUCCESS"]

    other = EmrSetup(cloud.endpoint, cloud.application, cloud.folder, cloud.s3, cloud.emr).config()
    here = other.model_copy(update={"engine": "auto", "root": f"s3://lake/{cloud.folder}/again"}).resolve()
    refresh(here, here.table("sales"), lambda: pytest.fail("so few rows need no Spark"))
    from metastore_assets.metastore import Metastore

    fresh = Metastore(here.root, storage_options=cloud.options).table("sales")
    published_table = cloud.published()
    assert published_table.version.number == 2
    assert [vars(row) for row in published_table.statistics()] == [vars(row) for row in fresh.statistics()]
    for column in ("day", "amount"):
        assert published_table.top(column, 10) == fresh.top(column, 10)
