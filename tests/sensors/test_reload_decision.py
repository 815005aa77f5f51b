"""The decision of a database's sensor whether to request a reload of the code location."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.sensors.reload_decision import ReloadRequest, decide_reload

_NAMES = st.frozensets(st.sampled_from("abc"))


def test_added_and_removed_tables_are_reported() -> None:
    decision = decide_reload(ReloadRequest(), {"a", "b"}, {"b", "c", "d"}, 1000.0)
    assert (decision.reloads, decision.reason) == (True, "2 tables added (c, d) and 1 table removed (a)")
    assert decision.request == ReloadRequest(("b", "c", "d"), 1000.0)


def test_the_same_reload_is_requested_again_after_a_while() -> None:
    """If the code location is not reloaded, the request is repeated after ten minutes, not at every tick.

    After a further change of the tables, a reload is requested at once. A request is also repeated at once if the clock
    was set back.
    """
    request = decide_reload(ReloadRequest(), set(), {"a"}, 1000.0).request
    again = decide_reload(request, set(), {"a"}, 1599.0)
    assert not again.reloads
    assert again.request == request
    assert (
        "1 table added (a); the code location has not been reloaded since the request at 00:16:40 UTC" in again.reason
    )
    assert decide_reload(request, set(), {"a"}, 1601.0).reloads
    assert decide_reload(request, {"a"}, {"a"}, 1601.0).reason == "all tables are loaded: 1"
    assert decide_reload(request, set(), {"a", "b"}, 1001.0).reloads
    assert decide_reload(request, set(), {"a"}, 10.0).reloads  # the clock was set back


@given(_NAMES, _NAMES, _NAMES, st.floats(0, 5000), st.floats(0, 5000))
def test_a_reload_is_requested_only_if_tables_changed(
    requested_tables: frozenset[str], loaded_tables: frozenset[str], present: frozenset[str], at: float, now: float
) -> None:
    """A reload is requested only if the present tables differ from the loaded ones.

    The same request is not repeated at once. A request is stored as JSON, from which an equal one is read.
    """
    decision = decide_reload(ReloadRequest(tuple(sorted(requested_tables)), at), loaded_tables, present, now)
    assert not (decision.reloads and loaded_tables == present)
    if decision.reloads:
        assert ReloadRequest.from_json(decision.request.to_json()) == ReloadRequest(tuple(sorted(present)), now)
        assert not decide_reload(decision.request, loaded_tables, present, now).reloads


def test_an_invalid_cursor_is_treated_as_empty() -> None:
    for text in (None, "", "x", "[]", '{"format": 2, "tables": [], "at": 1}', '{"format": 1, "tables": 3, "at": 1}'):
        assert ReloadRequest.from_json(text) == ReloadRequest()
