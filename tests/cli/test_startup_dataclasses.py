"""Dataclasses with shared methods behave as standard dataclasses.

`share_dataclass_methods` lets dataclasses share `__repr__`, `__eq__` and `__hash__`, so that Python compiles less code
and commands start faster.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from metastore_assets.startup import share_dataclass_methods

_PARAMETERS: list[dict[str, bool]] = [
    {"frozen": True},
    {},
    {"frozen": True, "eq": False},
    {"eq": False},
    {"frozen": True, "repr": False},
    {"frozen": True, "slots": True},
    {"frozen": True, "order": True},
]
_BODIES: dict[str, dict[str, Any]] = {
    "no method": {},
    "repr": {"__repr__": lambda self: "custom"},
    "eq": {"__eq__": lambda self, other: True, "__hash__": None},
    "hash": {"__hash__": lambda self: 7},
    "eq and hash": {"__eq__": lambda self, other: True, "__hash__": lambda self: 7},
}
_FIELDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "not compared": {"compare": False},
    "not hashed": {"hash": False},
    "hashed only": {"compare": False, "hash": True},
    "not shown": {"repr": False},
}


@pytest.fixture(autouse=True)
def _shared_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("METASTORE_PLAIN_STARTUP", raising=False)
    monkeypatch.setattr(dataclasses, "dataclass", dataclasses.dataclass)  # It has its present value after the test.
    share_dataclass_methods()


def _make(package: str, names: str, parameters: dict[str, bool], body: dict[str, Any], options: dict[str, Any]) -> type:
    """Make a dataclass.

    Args:
        package: The package of its module.
        names: The names of the fields, one character each.
        parameters: The arguments of the decorator.
        body: Further attributes of the class.
        options: The arguments of `field` for the last field.
    """
    fields = {names[-1]: dataclasses.field(**options)} if names and options else {}
    namespace = {**body, **fields, "__annotations__": dict.fromkeys(names, object), "__module__": f"{package}.example"}
    new_class: type = dataclasses.dataclass(**parameters)(type("Example", (), namespace))
    return new_class


def _behaviour(kind: type, width: int) -> list[Any]:
    """Return texts, equalities and hashes of objects of a dataclass and of a class derived from it.

    In place of an object's hash, a list of booleans says which of the objects have an equal hash. If hashing fails, the
    class of the error is returned. `width` is the number of the dataclass's fields.
    """
    rows = [(math.nan, 1), (math.nan, 1), (1, math.nan), (True, 1.0), ("x", "y"), ("x", "z")]
    derived_class = type("Derived", (kind,), {"__slots__": ()})
    objects = [class_(*row[:width]) for class_ in (kind, derived_class) for row in rows]

    def hash_groups(item: Any) -> Any:
        try:
            return [hash(item) == hash(other) for other in objects]
        except TypeError as error:
            return type(error)

    def text(item: Any) -> str:
        return "default" if repr(item) == object.__repr__(item) else repr(item)

    return [(text(item), [item == other for other in [*objects, "x"]], hash_groups(item)) for item in objects]


@pytest.mark.parametrize("parameters", _PARAMETERS, ids=str)
@pytest.mark.parametrize("body", _BODIES)
@pytest.mark.parametrize("options", _FIELDS)
@pytest.mark.parametrize("names", ["", "a", "ab"])
def test_results_equal_those_of_standard_dataclasses(
    parameters: dict[str, bool], body: str, options: str, names: str
) -> None:
    standard, shared_class = (
        _make(package, names, parameters, _BODIES[body], _FIELDS[options])
        for package in ("another", "metastore_assets")
    )
    assert _behaviour(shared_class, len(names)) == _behaviour(standard, len(names))


def test_methods_are_shared() -> None:
    first, second = (_make("metastore_assets", "ab", {"frozen": True}, {}, {}) for _ in range(2))
    assert first.__repr__ is second.__repr__
    assert first.__eq__.__code__ is second.__eq__.__code__  # type: ignore[attr-defined]
    assert first.__hash__.__code__ is second.__hash__.__code__  # type: ignore[attr-defined]


def test_the_text_of_an_object_that_contains_itself_ends() -> None:
    class_ = _make("metastore_assets", "a", {}, {}, {})
    item: Any = class_([])
    item.a.append(item)
    assert repr(item) == "Example(a=[...])"


def test_frozen_dataclasses_stay_frozen_and_can_be_replaced() -> None:
    item: Any = _make("metastore_assets", "ab", {"frozen": True}, {}, {})(1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        item.a = 3
    assert dataclasses.replace(item, b=3) == type(item)(1, 3)
    assert dataclasses.asdict(item) == {"a": 1, "b": 2}
