"""Starts refreshes in subprocesses.

The module `hooks` stops them at a step, or makes them wait for each other.

A step is the moment before or after a process writes or removes a file of some kind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metastore_assets.config import MetastoreConfig
from tests.robustness.refresh_program import STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[2]
HOOKS = Path(__file__).with_name("hooks")
_SECONDS = 120


@dataclass(frozen=True)
class Outcome:
    """What a refresh process (a driver) did until it ended."""

    killed: bool
    answer: dict[str, Any]
    """`{"result": …}` or `{"error": …, "message": …}`, and empty if the process was killed."""
    steps: list[str]
    """The steps that the process and its workers reached, in order."""


class Drivers:
    """Starts refresh processes.

    `folder` has the rules for the module `hooks`, and its log. Without `spark`, each process starts Spark itself.
    """

    def __init__(self, folder: Path, spark: SparkSession | None) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": f"{HOOKS}{os.pathsep}{REPOSITORY}",
            STEPS: str(folder),
        }
        if spark is not None:
            parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
            self._environment["PYSPARK_GATEWAY_PORT"] = str(parameters.port)
            self._environment["PYSPARK_GATEWAY_SECRET"] = parameters.auth_token

    def refresh(self, config: MetastoreConfig, *options: str, kill: str | None = None, nth: int = 1) -> Outcome:
        """Refresh the only table of a configuration in a process, with options of `refresh_program`.

        With `kill`, the process is killed when it reaches this step the nth time.
        """
        (outcome,) = self.together([config], *options, kill=kill, nth=nth)
        return outcome

    def together(self, configs: list[MetastoreConfig], *options: str, **rules: Any) -> list[Outcome]:
        """Start a refresh process for each configuration at the same time, and return their outcomes.

        Args:
            configs: Configurations with one table each.
            *options: Options of `refresh_program`.
            **rules: Rules for the module `hooks`, which apply to all processes. With the rule `kill`, a process that
                reaches the step in this rule is killed, and the first process is killed with it.
        """
        log = self._folder / "log"
        log.unlink(missing_ok=True)
        self._rule(configs[0], rules)
        running = [self._start(config, options) for config in configs]
        self._rule(configs[0], {**rules, "driver": running[0].pid})
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        results = []
        for process in running:
            output, errors = process.communicate(timeout=_SECONDS)
            assert process.returncode in (0, -signal.SIGKILL), errors
            results.append((process.returncode != 0, json.loads(output) if process.returncode == 0 else {}))
        steps = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        (self._folder / "rules.json").unlink()
        return [Outcome(is_killed, answer, steps) for is_killed, answer in results]

    def _rule(self, config: MetastoreConfig, rules: dict[str, Any]) -> None:
        (self._folder / "rules.json").write_text(json.dumps({"root": config.root, **rules}), encoding="utf-8")

    def _start(self, config: MetastoreConfig, options: tuple[str, ...]) -> subprocess.Popen[str]:
        path = Path(config.root).with_suffix(".yaml") if "://" not in config.root else self._folder / "metastore.yaml"
        path.write_text(config.model_dump_json(exclude_defaults=True), encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.refresh_program", str(path), config.tables[0].name, *options],
            cwd=REPOSITORY,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
