"""The decision of a commit sensor at a tick: whether it requests a run, and why.

A target is a digest of a snapshot, the newest version and the configuration. A run with the same target is a retry.

A version is the published statistics of a table at one snapshot.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.formats import HistoryChange
from metastore_assets.sensors.decision import Cursor, SensorState, decide_run, update_missing_table

CURRENT = SensorState("s1", True, 1, 1, "t1", None, 0, 0.0)
COMMIT = SensorState("s2", False, 1, 1, "t2", None, 0, 0.0)


def test_no_run_is_requested_while_the_version_is_current() -> None:
    """While the newest version is current, no run is requested, and the cursor does not change.

    The reason names version and snapshot.
    """
    decision = decide_run(Cursor("t1", 1), CURRENT, 30, 0)
    assert decision.attempt is None
    assert decision.cursor == Cursor("t1", 1)
    assert decision.reason == "version 1 is current: snapshot s1"


def test_a_commit_requests_one_run() -> None:
    """A commit after the newest version requests a run, which is a first attempt.

    The three attempts in the cursor are for an earlier target, so they do not count.
    """
    decision = decide_run(Cursor("t1", 3), COMMIT, 30, 0)
    assert (decision.attempt, decision.cursor) == (1, Cursor("t2", 1))
    assert decision.reason == "snapshot s2 follows version 1"


@pytest.mark.parametrize(
    ("history_change", "reason"),
    [
        ("recreated", "snapshot s2 is of another table than version 1: the table was recreated"),
        ("rolled back", "snapshot s2 does not follow that of version 1: the table was rolled back"),
    ],
)
def test_a_rollback_or_recreation_is_reported(history_change: HistoryChange, reason: str) -> None:
    """A rolled back table and a recreated one request a run.

    The reason says what happened.
    """
    decision = decide_run(Cursor(), replace(COMMIT, history_change=history_change), 30, 0)
    assert (decision.attempt, decision.reason) == (1, reason)


def test_the_cursor_records_that_the_table_is_missing() -> None:
    for cursor in (Cursor("t", 2), Cursor("t", 2, is_dropped=True)):
        assert Cursor.from_json(cursor.to_json()) == cursor


def test_the_first_snapshot_requests_a_run() -> None:
    decision = decide_run(Cursor(), replace(COMMIT, published_number=0, reported_number=0), 30, 0)
    assert (decision.attempt, decision.reason) == (1, "snapshot s2 is the first")


def test_an_unreported_version_requests_a_run() -> None:
    """Version 4 is published, and version 1 is the last one that was reported to Dagster.

    The run reports version 4.
    """
    decision = decide_run(Cursor(), replace(CURRENT, published_number=4), 30, 0)
    assert (decision.attempt, decision.reason) == (1, "version 4 was not reported yet")


def test_no_run_is_requested_during_another_run() -> None:
    """Run `r` is active, so a new snapshot requests no run, and the cursor does not change."""
    decision = decide_run(Cursor(), replace(COMMIT, active_run_id="r"), 30, 0)
    assert decision.attempt is None
    assert decision.cursor == Cursor()


def test_a_failed_run_is_requested_again_on_the_next_tick() -> None:
    """After one failed run, the second attempt is requested without a delay."""
    decision = decide_run(Cursor("t2", 1), replace(COMMIT, attempts=1, last_end_time=1000.0), 30, 1001)
    assert (decision.attempt, decision.cursor) == (2, Cursor("t2", 2))


@pytest.mark.parametrize(("attempts", "wait"), [(2, 30), (3, 90), (4, 210), (20, 3600), (5000, 3600)])
def test_further_failures_wait_longer(attempts: int, wait: int) -> None:
    """After 2, 3, 4 … failures, the next attempt waits 1, 3, 7 … intervals, but at most an hour.

    Attempts never end.
    """
    commit = replace(COMMIT, attempts=attempts, last_end_time=1000.0)
    assert decide_run(Cursor("t2", attempts), commit, 30, 999 + wait).attempt is None
    assert decide_run(Cursor("t2", attempts), commit, 30, 1000 + wait).attempt == attempts + 1


def test_another_target_does_not_wait() -> None:
    """The cursor has nine attempts for target `t2`.

    The first attempt for target `t3` is requested at once.
    """
    commit = replace(COMMIT, target="t3", snapshot="s3")
    assert decide_run(Cursor("t2", 9), commit, 30, 1000).attempt == 1


@given(st.integers(0, 50), st.integers(0, 50))
def test_an_attempt_never_repeats(cursor_attempts: int, completed_attempts: int) -> None:
    """The number of the next attempt exceeds the number in the cursor and the number of finished runs."""
    decision = decide_run(Cursor("t2", cursor_attempts), replace(COMMIT, attempts=completed_attempts), 30, 0)
    assert decision.attempt == max(cursor_attempts, completed_attempts) + 1


@given(st.text(), st.integers(0))
def test_a_cursor_survives_a_restart(target: str, attempt: int) -> None:
    assert Cursor.from_json(Cursor(target, attempt).to_json()) == Cursor(target, attempt)


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "x", "[]", "{}", "null", "1", "[" * 100_000),
        '{"format": 2, "target": "t", "attempt": 1}',
        '{"format": 1, "target": "t", "attempt": 1e999}',
    ],
)
def test_an_unreadable_cursor_is_treated_as_empty(text: str | None) -> None:
    """An unreadable text of a cursor is read as an empty cursor.

    The text is missing, no JSON, incomplete, of another format version, or has an infinite number.
    """
    assert Cursor.from_json(text) == Cursor()


@given(st.integers(1, 4000), st.integers(1, 40))
def test_a_missing_table_is_probed_after_a_clock_was_set_back(interval: int, probes: int) -> None:
    """A tick looks for a missing table only after a wait, or if the configuration or clock changed.

    The longest wait is five minutes, or one interval of the sensor if that is longer. If the remaining wait is longer
    than this, the clock was set back, and the tick looks for the table at once.
    """
    missing = None
    for _ in range(probes):
        missing = update_missing_table(missing, "digest", "no table", interval, 1e6)
    assert missing is not None
    assert missing.is_too_early("digest", interval, 1e6)
    assert not missing.is_too_early("other", interval, 1e6)
    assert not missing.is_too_early("digest", interval, missing.next_probe)
    assert not missing.is_too_early("digest", interval, 1e6 - 4001)
