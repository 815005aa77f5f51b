"""A writer of ORC files that uses the Java library in PySpark's wheel, which Iceberg uses too."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, get_field, launch_gateway, set_field


class JavaOrc:
    """A writer of files of two rows.

    The first row has a value as a column, in a struct, in a list and in a map. The second row has nulls.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._orc = jvm.org.apache.orc.OrcFile

    def write(self, path: Path, type_: str, value: Any, attributes: Mapping[str, str]) -> None:
        """Write the columns `a`, `s.x`, `l` and `m`, with field ids in depth-first order.

        Args:
            path: The path of the file.
            type_: The ORC type of all values.
            value: The value.
            attributes: Attributes of the type.
        """
        schema = self._jvm.org.apache.orc.TypeDescription.fromString(
            f"struct<a:{type_},s:struct<x:{type_}>,l:array<{type_}>,m:map<{type_},{type_}>>"
        )
        for field_id in range(1, schema.getMaximumId() + 1):
            attributed_type = schema.findSubtype(field_id)
            attributed_type.setAttribute("iceberg.id", str(field_id))
            attributed_type.setAttribute("iceberg.required", "false")
            if attributed_type.getChildren() is None:
                for key, text in attributes.items():
                    attributed_type.setAttribute(key, text)
        options = self._orc.writerOptions(self._jvm.org.apache.hadoop.conf.Configuration())
        options = options.setSchema(schema).useUTCTimestamp(True).setProlepticGregorian(True)
        writer = self._orc.createWriter(self._jvm.org.apache.hadoop.fs.Path(str(path)), options)
        batch = schema.createRowBatch()
        set_field(batch, "size", 2)
        column, struct, list_, map_ = get_field(batch, "cols")
        below, element = get_field(struct, "fields")[0], get_field(list_, "child")
        for vector in (column, below, element, get_field(map_, "keys"), get_field(map_, "values")):
            self._set(vector, value)
        get_field(list_, "lengths")[0], get_field(map_, "lengths")[0] = 2, 1
        for vector in (column, struct, below, list_, element, map_):
            get_field(vector, "isNull")[1] = True
            set_field(vector, "noNulls", False)
        writer.addRowBatch(batch)
        writer.close()

    def _set(self, vector: Any, value: Any) -> None:
        """Set the value of the first row of a column vector."""
        match value:
            case bytes() | str():
                vector.setVal(0, value if isinstance(value, bytes) else value.encode())
            case Decimal():
                vector.set(0, self._jvm.org.apache.hadoop.hive.common.type.HiveDecimal.create(f"{value:f}"))
            case datetime():
                moment = value.replace(tzinfo=UTC)
                stamp = self._jvm.java.sql.Timestamp(int(moment.timestamp()) * 1000)
                stamp.setNanos(moment.microsecond * 1000)
                vector.set(0, stamp)
            case _:
                get_field(vector, "vector")[0] = int(value) if isinstance(value, bool) else value


@contextmanager
def java_orc_writer() -> Iterator[JavaOrc]:
    """Within the block, run a Java process with Spark's libraries.

    Yield a writer that uses the process.
    """
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    home = os.environ.get("JAVA_HOME")
    port = launch_gateway(
        classpath=str(jars),
        die_on_exit=True,
        java_path=f"{home}/bin/java" if home else "java",
        javaopts=["-Duser.timezone=UTC"],
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield JavaOrc(gateway.jvm)
    finally:
        gateway.shutdown()
