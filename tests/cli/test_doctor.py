"""`metastore doctor` finds what would make a refresh or lookup fail, and prints the remedy."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from metastore_assets.cli.diagnosis import environment
from metastore_assets.cli.diagnosis.environment import parse_requirements
from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import StoreError
from metastore_assets.store.objects import ObjectStore
from tests.cli.run_command import documents, run


@pytest.fixture(autouse=True)
def _no_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


def _findings(config: Path, *arguments: str, status: int) -> dict[str, dict[str, Any]]:
    done = run("doctor", *arguments, "--json", config=config)
    assert done.exit_code == status, done.output
    (document,) = documents(done)
    assert document["status"] == ("failed" if status else "ok")
    for word in ("ok", "warning", "failed", "skipped"):
        assert document[word] == sum(finding["status"] == word for finding in document["findings"])
    assert all(finding["status"] != "failed" or finding["message"] for finding in document["findings"])
    return {finding["subject"]: finding for finding in document["findings"]}


def test_findings_that_are_ok_and_failed(config_file: Path) -> None:
    result = _findings(config_file, status=1)
    assert result["table gone"]["status"] == "failed"
    assert "gone" in result["table gone"]["message"]
    assert result["table orders"]["status"] == result["root"]["status"] == result["packages"]["status"] == "ok"
    assert "`metastore refresh fresh`" in result["table fresh"]["message"]
    assert _findings(config_file, "orders", status=0).keys() == result.keys() - {"table gone", "table fresh"}
    names = {path.name for path in (config_file.parent / "root").iterdir()}
    assert names == {"orders", "gone"}, "no files remain"


def test_one_file_of_a_table_is_read(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "is_installed", lambda extra: False)
    assert ", one of them" in _findings(config_file, "fresh", "--deep", status=1)["table fresh"]["message"]
    (config_file.parent / "orders" / "file.parquet").write_bytes(b"PAR1 nothing PAR1")
    assert _findings(config_file, "fresh", "--deep", status=1)["table fresh"]["status"] == "failed"


def test_the_page_gives_advice(config_file: Path) -> None:
    done = run("doctor", "gone", config=config_file)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    (number,) = [number for number, line in enumerate(lines) if line.startswith("failed  table gone")]
    assert lines[number + 1].strip().startswith("→ check `uri`")
    assert lines[-1].endswith("1 failed, 1 skipped")


@pytest.mark.parametrize("text", [None, "root: [", "root: ./root\ntables: [{name: a b, uri: x}]"])
def test_without_a_configuration(config_file: Path, text: str | None) -> None:
    config_file.unlink()
    if text is not None:
        config_file.write_text(text)
    result = _findings(config_file, status=1)
    assert result["configuration"]["status"] == "failed"
    if text is None:
        assert "metastore init" in result["configuration"]["advice"]
    assert "root" not in result


def test_a_root_that_ignores_conditional_writes(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = ObjectStore.write
    monkeypatch.setattr(ObjectStore, "write", lambda self, path, data, **_: write(self, path, data))
    assert "conditional writes" in _findings(config_file, "orders", status=1)["root"]["message"]


@pytest.mark.parametrize("method", ["write", "read", "scan", "delete_folder"])
def test_a_root_without_access(config_file: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise StoreError("access denied")

    monkeypatch.setattr(ObjectStore, method, refuse)
    result = _findings(config_file, "fresh", status=1)["root"]
    assert (result["status"], result["message"]) == ("failed", "access denied")
    assert "credentials" in result["advice"]


def test_a_new_root_is_not_created(config_file: Path) -> None:
    config_file.write_text(config_file.read_text().replace("./root", "./other"))
    assert _findings(config_file, "orders", status=0)["root"]["status"] == "ok"
    assert not (config_file.parent / "other").exists()


@pytest.mark.parametrize(
    ("output", "engine", "status"),
    [
        ('openjdk version "17.0.9" 2023-10-17', "spark", "ok"),
        ('openjdk version "21" 2023-09-19', "spark", "ok"),
        ('java version "1.8.0_392"', "spark", "failed"),
        ('openjdk version "11.0.2"', "auto", "warning"),
        ("nothing", "spark", "failed"),
    ],
)
def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, engine: str, status: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!{sys.executable}\nimport sys\nprint({output!r}, file=sys.stderr)\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    config = MetastoreConfig.model_validate({"root": "r", "engine": engine})
    assert environment.check_java(config).status == status
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert environment.check_java(config).status == ("warning" if engine == "auto" else "failed")
    remote = MetastoreConfig.model_validate({"root": "r", "spark": {"spark.remote": "sc://host"}})
    assert environment.check_java(remote).status == "skipped"


_RELEASES = st.lists(st.integers(0, 20), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))


@given(_RELEASES, _RELEASES, _RELEASES, st.booleans())
def test_ranges_are_those_of_pip(installed_version: str, lower: str, upper: str, is_limited: bool) -> None:
    limits = f">={lower}" + (f",<{upper}" if is_limited else "")
    (requirement,) = parse_requirements([f'some-package[x,y]{limits}; extra == "spark"'])
    assert (requirement.package, requirement.extra) == ("some-package", "spark")
    assert requirement.allows(installed_version) == SpecifierSet(limits).contains(installed_version)


def test_packages_that_are_missing_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["polars<3,>=99", "no-such-package>=1.2", 'also-missing>=1; extra == "spark"', "click>=8.2"]
    monkeypatch.setattr(environment, "requires", lambda name: lines)
    result = {finding.subject: finding for finding in environment.check_packages()}
    assert result["package polars"].status == result["package no-such-package"].status == "failed"
    assert result["package no-such-package"].advice == "pip install 'no-such-package>=1.2'"
    assert "click" in result["packages"].message
    assert "package also-missing" not in result


def test_the_instance_of_dagster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    result = environment.check_dagster()
    assert (result.status, "daemon" in result.message) == ("warning", True)
    (tmp_path / "dagster.yaml").write_text("nonsense: {")
    assert environment.check_dagster().status == "failed"
