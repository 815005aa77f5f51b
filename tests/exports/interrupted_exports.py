"""Exports that are interrupted at each of their requests, and checks of the catalog afterwards.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

_FREE = ("get_paginator", "meta", "exceptions")
"""Attributes of clients that send no request."""


@dataclass(frozen=True)
class CatalogState:
    """The properties and statistics of a table and its partitions in a catalog, without times of writing."""

    properties: Mapping[str, str]
    statistics: Mapping[str, Any]
    partitions: Mapping[str, tuple[Mapping[str, str], Mapping[str, Any]]]
    """Properties and statistics of each partition."""

    @property
    def objects(self) -> dict[str, tuple[Mapping[str, str], Mapping[str, Any]]]:
        """The properties and statistics of each partition by name, and of the table by an empty name."""
        return {"": (self.properties, self.statistics), **self.partitions}


@dataclass
class Interrupted:
    """A table with two versions, to test interruptions of its exports and of the removal of an export."""

    write: Callable[[int], Any]
    """Exports the version with the given number, and returns the result."""
    remove: Callable[[], Any]
    status: Callable[[], Any]
    """Returns the result of `read_export_states` for the second version."""
    state: Callable[[], CatalogState]
    table_class: type
    """The class that sends requests through the attribute `client` or `_client`."""

    def check_each_request(self, kind: str) -> int:
        """Interrupt an export of version 2 at each request, before or after its effect.

        Return the number of requests.

        Check after each interruption that the catalog declares only statistics of one version as complete or accurate,
        and that the next export is complete.

        Args:
            kind: The kind of the target.
        """
        assert self.write(2).error is None
        second = self.state()
        assert self.write(1).state == "written"
        first = self.state()
        for number in count():
            has_failed = False
            for is_sent, repeated_version in ((False, 1), (True, 2), (True, 1)):
                with self._failing(number, is_sent) as failures:
                    result = self.write(2)
                has_failed = bool(failures)
                if has_failed:
                    assert result.state == "failed"
                    self._check_claims(kind, first, second)
                # The next version may have the content of the first again, to which claims that were left would belong.
                assert self.write(repeated_version).error is None
                assert self.state() == (first, second)[repeated_version - 1], (number, is_sent, repeated_version)
                self.write(1)
            if not has_failed:
                return number
        raise AssertionError

    def check_each_request_of_a_removal(self, empty: CatalogState) -> None:
        """Interrupt removals at each request.

        Check that a second removal, or a new export, then works completely.

        Args:
            empty: The state before any export.
        """
        assert self.write(1).error is None
        first = self.state()
        for number in count():
            has_failed = False
            for is_sent, repeats in ((False, True), (True, True), (True, False)):
                with self._failing(number, is_sent) as failures:
                    result = self.remove()
                has_failed = bool(failures)
                if has_failed:
                    assert result.state == "failed"
                if repeats:
                    assert self.remove().error is None
                    assert _without_sizes(self.state()) == _without_sizes(empty)
                assert self.write(1).error is None
                assert self.state() == first, (number, is_sent, repeats)
            if not has_failed:
                return

    def _check_claims(self, kind: str, first: CatalogState, second: CatalogState) -> None:
        """Check that all statistics that the catalog declares complete or accurate are of one version.

        Args:
            kind: The kind of the target.
            first: The state of the catalog after a complete export of version 1.
            second: The state after a complete export of version 2.
        """
        present, prefix = self.state(), f"metastore-assets.{kind}."
        if self.status().state != "absent":
            assert present in (first, second)
        for name, (properties, statistics) in present.objects.items():
            content = properties.get(f"{prefix}content", "")
            is_claimed = bool(content) and not content.endswith(":writing")
            if is_claimed or "COLUMN_STATS_ACCURATE" in properties:
                complete = [state.objects[name] for state in (first, second) if name in state.objects]
                assert statistics in [written_statistics for _, written_statistics in complete]
                counts = [{key: each.get(key) for key in ("numRows", "totalSize")} for each, _ in complete]
                assert {key: properties.get(key) for key in ("numRows", "totalSize")} in counts

    @contextmanager
    def _failing(self, number: int, is_sent: bool) -> Iterator[list[str]]:
        """Let one request and all later ones fail during the block.

        Yield a list of the failed requests' names.

        Args:
            number: The number of the first request that fails, from 0.
            is_sent: Whether that request has its effect, and only its response is lost.
        """
        failures: list[str] = []
        numbers = count()
        create = self.table_class.__init__

        def initialize(table: Any, client: Any, *arguments: Any) -> None:
            create(table, _Client(client), *arguments)

        class _Client:
            def __init__(self, client: Any) -> None:
                self._wrapped = client

            def __getattr__(self, name: str) -> Any:
                wrapped_method = getattr(self._wrapped, name)
                if name in _FREE:
                    return wrapped_method

                def request(*arguments: Any, **options: Any) -> Any:
                    request_number = next(numbers)
                    if request_number < number:
                        return wrapped_method(*arguments, **options)
                    failures.append(name)
                    if request_number == number and is_sent:
                        wrapped_method(*arguments, **options)
                    raise OSError("the server is gone")

                return request

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.table_class, "__init__", initialize)
            yield failures


def _without_sizes(state: CatalogState) -> dict[str, Any]:
    """Return the properties and statistics of a state, without the numbers of files and bytes.

    A Hive metastore may change these numbers itself.
    """
    return {
        name: ({key: text for key, text in properties.items() if key not in ("totalSize", "numFiles")}, statistics)
        for name, (properties, statistics) in state.objects.items()
    }
