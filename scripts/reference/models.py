"""The configuration's models as Markdown: a section for each model, a row for each key."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, TypeAlias

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from metastore_assets.config import MetastoreConfig
from scripts.reference.source_texts import read_texts

_TITLES = {
    "MetastoreConfig": "Top level",
    "TableConfig": "Tables: each entry of `tables`",
    "DatabaseConfig": "Whole databases: an entry of `tables` with the key `database`",
    "ColumnPolicy": "Columns: each value of `columns`",
    "SensorConfig": "Sensors: `sensor`",
    "DagsterConfig": "Partitions in Dagster: `dagster`",
    "CatalogConfig": "Catalogs: each value of `catalogs`",
    "EmrServerlessConfig": "EMR Serverless: `emr_serverless`",
}
FieldRow: TypeAlias = tuple[str, str, str, str]
"""Key, type, default and meaning of a field."""

_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false", SecretStr: "text", Any: "any"}


def render_models() -> str:
    """Return all sections, the top level first.

    If an earlier section has the same row, only the key is named.
    """
    lines = ["# Configuration", "", "The keys of `metastore.yaml`. A key that is not listed here is an error.", ""]
    listed_rows: set[FieldRow] = set()
    for model in _reachable_models(MetastoreConfig):
        lines += [f"## {_TITLES.get(model.__name__, model.__name__)}", "", _summary(model), ""]
        rows = list(_field_rows(model))
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        lines += [_markdown_row(cells) for cells in rows if cells not in listed_rows]
        if repeated_names := [cells[0] for cells in rows if cells in listed_rows]:
            lines.append(_markdown_row((", ".join(repeated_names), "", "", "As in the section above.")))
        listed_rows.update(rows)
        lines.append("")
    return "\n".join(lines)


def _field_rows(model: type[BaseModel]) -> Iterator[FieldRow]:
    """Yield a row for each field of a model, inherited fields last."""
    documents = _field_documents(model)
    for name, field in _inherited_last(model).items():
        yield f"`{field.alias or name}`", _type_text(field.annotation), _default_text(field), documents.get(name, "")


def _markdown_row(cells: FieldRow) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _reachable_models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    pending_models, seen_models = [root], {root}
    while pending_models:
        model = pending_models.pop(0)
        yield model
        for field in model.model_fields.values():
            for inner in _models_in(field.annotation):
                if inner not in seen_models:
                    seen_models.add(inner)
                    pending_models.append(inner)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and not typing.get_args(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def _summary(model: type[BaseModel]) -> str:
    return " ".join(inspect.cleandoc(model.__doc__ or "").split("\n\n", 1)[0].split())


def _inherited_last(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model, those of its base classes last.

    So `name` and `uri` precede `allow`.
    """
    inherited_names = {name for base in model.__bases__ if issubclass(base, BaseModel) for name in base.model_fields}
    return dict(sorted(model.model_fields.items(), key=lambda item: item[0] in inherited_names))


def _field_documents(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each field, by the field's name, inherited fields included."""
    documents: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not issubclass(cls, BaseModel) or cls is BaseModel:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)
        documents |= read_texts(body.body)
    return documents


def _type_text(annotation: Any) -> str:
    """Return the type of a setting in words, such as `list of text`."""
    arguments = [argument for argument in typing.get_args(annotation) if argument is not type(None)]
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _type_text(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{_yaml(argument)}`" for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type_text(argument) for argument in arguments))
    if origin in (list, tuple, set, frozenset):
        return f"list of {_type_text(arguments[0])}" if arguments else "list"
    if origin is not None and arguments:
        return f"mapping to {_type_text(arguments[-1])}"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "mapping (below)"
    return _NAMES.get(annotation, re.sub(r"[^\w ]", "", getattr(annotation, "__name__", "value")).lower())


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True) if field.default_factory is None else None
    if value is None or value in ((), {}, [], "") or isinstance(value, BaseModel):
        return ""
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
