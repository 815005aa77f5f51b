"""A simulated AWS on the loopback address: moto, with EMR Serverless jobs as local processes.

A job depends on its request alone. The archive of its environment is unpacked, and its entry point is fetched. The
entry point is started in this environment by `spark-submit`, as EMR does, or by Python alone, for tests that need no
JVM.
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from scripts.s3_server import cache_moto_lookups, s3_server

ROLE = {"AWS_ACCESS_KEY_ID": "role", "AWS_SECRET_ACCESS_KEY": "of-the-job-alone"}
_DRIVER_VARIABLE = "spark.emr-serverless.driverEnv."


def emr_server(way: str) -> AbstractContextManager[str]:
    """Start a simulated AWS, which runs until the block ends, and return its endpoint.

    `way` is how its jobs are started: by `spark-submit`, or by `python`.
    """
    return s3_server("tests.emr.emr_server", way)


def _s3() -> Any:
    import boto3

    return boto3.client("s3")


def _fetch(uri: str, target: Path) -> Path:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    _s3().download_file(bucket, key, str(target))
    return target


def _properties(job: Any) -> dict[str, str]:
    """Return the Spark properties of a job's request.

    Properties on the command line take precedence over those in `spark-defaults`.
    """
    overrides = job.configuration_overrides or {}
    spark_properties: dict[str, str] = {}
    for one in overrides.get("applicationConfiguration", ()):
        assert one["classification"] == "spark-defaults"
        spark_properties |= one["properties"]
    words = shlex.split(job.job_driver["sparkSubmit"]["sparkSubmitParameters"])
    assert words[::2] == ["--conf"] * (len(words) // 2), words
    return spark_properties | dict(word.split("=", 1) for word in words[1::2])


def _command(way: str, work: Path, job: Any) -> tuple[list[str], dict[str, str]]:
    properties = _properties(job)
    script = _fetch(job.job_driver["sparkSubmit"]["entryPoint"], work / "run.py")
    archive, _, name = properties.pop("spark.archives").partition("#")
    with tarfile.open(_fetch(archive, work / "archive.tar.gz")) as environment_archive:
        environment_archive.extractall(work / name, filter="tar")
    variables = {
        key.removeprefix(_DRIVER_VARIABLE): value
        for key, value in properties.items()
        if key.startswith(_DRIVER_VARIABLE)
    }
    inherited_variables = {
        key: os.environ[key] for key in ("PATH", "HOME", "JAVA_HOME", "AWS_ENDPOINT_URL") if key in os.environ
    }
    environment = inherited_variables | ROLE | variables | {"SPARK_LOCAL_IP": "127.0.0.1"}
    if way == "python":
        return [variables["PYSPARK_DRIVER_PYTHON"], str(script)], environment
    import pyspark

    settings = work / "spark.properties"
    settings.write_text("".join(f"{key} {value}\n" for key, value in properties.items()), encoding="utf-8")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return [str(submit), "--master", "local[2]", "--properties-file", str(settings), str(script)], environment


def _play(way: str, job: Any) -> None:
    """Run a job in a subprocess, and set its state as EMR does.

    The job may be cancelled meanwhile.
    """
    time.sleep(0.3)
    if job.state == "CANCELLED":
        return
    job.state = "RUNNING"
    with tempfile.TemporaryDirectory() as folder:
        work, log = Path(folder), Path(folder) / "stderr"
        try:
            command, environment = _command(way, work, job)
            with log.open("wb") as sink:
                process = subprocess.Popen(command, cwd=work, env=environment, stdout=sink, stderr=sink)
                while process.poll() is None:
                    time.sleep(0.1)
                    if job.state == "CANCELLED":
                        process.kill()
                status, last = process.returncode, log.read_text(encoding="utf-8", errors="replace")
        except Exception as error:  # noqa: BLE001 (EMR tells what it was)
            status, last = 1, f"{type(error).__name__}: {error}"
        monitoring = (job.configuration_overrides or {}).get("monitoringConfiguration", {})
        log_uri = monitoring.get("s3MonitoringConfiguration", {}).get("logUri")
        if log_uri:
            bucket, _, prefix = log_uri.removeprefix("s3://").rstrip("/").partition("/")
            key = f"{prefix}/applications/{job.application_id}/jobs/{job.id}/SPARK_DRIVER/stderr.gz"
            _s3().put_object(Bucket=bucket, Key=key, Body=gzip.compress(last.encode()))
        if job.state != "CANCELLED":
            job.state_details = (
                "" if status == 0 else f"Job failed, ExitCode: {status}. Last few exceptions: {last[-300:]}"
            )
            job.state = "SUCCESS" if status == 0 else "FAILED"


def _serve(way: str) -> None:
    from moto.emrserverless.models import EMRServerlessBackend
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    cache_moto_lookups()
    start_run = EMRServerlessBackend.start_job_run

    def start_job_run(self: EMRServerlessBackend, **request: Any) -> Any:
        for name, value in request["tags"].items():
            assert all(re.fullmatch(r"[A-Za-z0-9 /_.:=+@-]{0,256}", text) for text in (name, value)), (name, value)
        job = start_run(self, **request)
        job.state = "PENDING"
        threading.Thread(target=_play, args=(way, job), daemon=True).start()
        return job

    EMRServerlessBackend.start_job_run = start_job_run
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    os.environ.update(
        ROLE, AWS_DEFAULT_REGION="eu-central-1", AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.server_port}"
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    _serve(sys.argv[1])
