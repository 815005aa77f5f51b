"""Column statistics in a Glue client of boto3, because moto has none.

The client sends all other requests to moto's server. Requests about column statistics are checked by botocore against
Glue's model, then answered from memory as Glue documents it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

_OPERATIONS = ("Get", "Update", "Delete")


class ColumnStatisticsStore:
    """The column statistics of all tables and partitions of a client."""

    def __init__(self, client: Any) -> None:
        self.statistics: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(dict)
        """The statistics by column, by database, table and values of the partition."""
        self.requests: list[tuple[str, dict[str, Any]]] = []
        """Operations and their parameters, in their order."""
        self.events = client.meta.events
        """The hooks of the client's requests."""
        self._model = client.meta.service_model
        for operation in _OPERATIONS:
            for owner in ("Table", "Partition"):
                name = f"{operation}ColumnStatisticsFor{owner}"
                client.meta.events.register(f"provide-client-params.glue.{name}", self._record)
                client.meta.events.register(f"before-call.glue.{name}", self._answer)

    def of(self, database: str, table: str, *values: str) -> dict[str, Any]:
        """Return the statistics of a table or partition: the type and the numbers of each column.

        `values` are the partition's values; without values, the statistics are those of the table.
        """
        return {name: _numbers(item) for name, item in self.statistics[database, table, *values].items()}

    def _record(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests.append((model.name, params))
        for name, item in params.items():
            limit = model.input_shape.members[name].metadata.get("max")
            assert not isinstance(item, list) or limit is None or len(item) <= limit

    def _answer(self, model: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
        """Apply the last request to the stored statistics.

        Return Glue's answer to it.
        """
        name, params = self.requests[-1]
        assert name == model.name
        columns = self.statistics[params["DatabaseName"], params["TableName"], *params.get("PartitionValues", ())]
        answer: dict[str, Any] = {}
        if name.startswith("Update"):
            columns |= {column["ColumnName"]: column for column in params["ColumnStatisticsList"]}
        elif name.startswith("Get"):
            requested_columns = [columns[column] for column in params["ColumnNames"] if column in columns]
            answer = {"ColumnStatisticsList": requested_columns}
        elif columns.pop(params["ColumnName"], None) is None:
            answer = {"Error": {"Code": "EntityNotFoundException", "Message": "no statistics"}}
        return _Response(400 if "Error" in answer else 200), answer


class _Response:
    """An HTTP response with a status code and nothing else."""

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


def _numbers(item: Any) -> tuple[str, dict[str, Any]]:
    data = item["StatisticsData"]
    (numbers,) = (part for name, part in data.items() if name != "Type")
    return data["Type"], numbers
