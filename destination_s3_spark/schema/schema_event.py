"""SetDataSchema event of a table's chain: the columns as JSON and as an Arrow schema, and the changes since the previous schema.

In the Arrow schema the extraction time has the unit of the table's files, and times of day are always Arrow's time64. Its fields carry ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from destination_s3_spark.errors import DataError
from destination_s3_spark.schema.airbyte_type import type_from_json, type_to_json
from destination_s3_spark.schema.arrow import schema_from_text, schema_to_text
from destination_s3_spark.schema.encodings import DESTINATION_S3, Encodings, stored_schema, with_unit
from destination_s3_spark.schema.partitioning import PartitionSpec
from destination_s3_spark.schema.table_schema import Evolution, TableField, TableSchema
from destination_s3_spark.schema.type_merge import Change, SchemaVer

KIND = "SetDataSchema"


def to_event(evolution: Evolution, mode: str, primary_key: Sequence[Sequence[str]], cursor: Sequence[str]) -> dict[str, Any]:
    """Return the event that records an evolution. `mode` is the destination sync mode; key and cursor are paths of JSON keys."""
    schema = evolution.schema
    event: dict[str, Any] = {
        "kind": KIND,
        "schemaId": schema.schema_id,
        "mode": mode,
        "primaryKey": [list(path) for path in primary_key],
        "cursor": list(cursor),
        "version": str(schema.version),
        "fields": [_field_to_json(field) for field in schema.fields],
        "changes": [_change_to_json(change) for change in evolution.changes],
        "arrowSchema": schema_to_text(with_unit(schema.arrow, (schema.encodings or DESTINATION_S3).extracted_at)),
    }
    if evolution.retyped:
        event["retyped"] = list(evolution.retyped)
    if schema.encodings is not None:
        event["encodings"] = schema.encodings.to_json()
    if schema.partition is not None:
        event["partition"] = schema.partition.to_json()
    if schema.column_rules is not None:
        event["columnRules"] = dict(schema.column_rules)
    if schema.field_ids:
        event["fieldIds"], event["lastFieldId"] = list(schema.field_ids), schema.last_field_id
    return event


def from_event(event: Mapping[str, Any]) -> TableSchema:
    """Return the schema that an event records, ignoring unknown keys. Raises DataError when a needed key is missing or malformed."""
    with _readable():
        fields = tuple(_field_from_json(field) for field in event["fields"])
        retyped = tuple(str(source) for source in event.get("retyped") or ())
        encodings = Encodings.from_json(event["encodings"]) if event.get("encodings") else None
        partition = PartitionSpec.from_json(event["partition"]) if event.get("partition") else None
        ids = tuple(map(int, event.get("fieldIds") or ()))
        of = SchemaVer.parse(event["version"]), retyped, encodings, partition, ids, int(event.get("lastFieldId") or 0)
        rules = dict(event["columnRules"]) if event.get("columnRules") else None
        schema = TableSchema(int(event["schemaId"]), fields, *of, rules)
        _ = schema.arrow  # an id for each column
        return schema


def arrow_from_event(event: Mapping[str, Any]) -> pa.Schema:
    """Return the columns that an event records, as Arrow types. Raises DataError when they are missing or malformed."""
    with _readable():
        return schema_from_text(event["arrowSchema"])


def stored_from_event(event: Mapping[str, Any]) -> pa.Schema:
    """Return the columns that an event records, as the table's Parquet files store them. Raises DataError as `arrow_from_event` does."""
    with _readable():
        encodings = Encodings.from_json(event["encodings"]) if event.get("encodings") else DESTINATION_S3
        return stored_schema(arrow_from_event(event), encodings)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError, pa.ArrowException) as error:
        raise DataError(
            f"The table's {KIND} block cannot be read ({type(error).__name__}): it is damaged, or a newer connector wrote it. "
            "Upgrade the connector, or restore the object from a backup of the bucket."
        ) from error


def _field_to_json(field: TableField) -> dict[str, Any]:
    recovery = {} if field.recovered_from is None else {"recoveredFrom": field.recovered_from}
    return {
        "id": field.id,
        "name": field.name,
        "source": field.source,
        "type": type_to_json(field.type),
        "addedIn": field.added_in,
        "required": field.required,
        "present": field.present,
        **recovery,
        **({"emptied": True} if field.emptied else {}),
    }


def _field_from_json(field: Mapping[str, Any]) -> TableField:
    number, base = int(field["id"]), field.get("recoveredFrom")
    return TableField(
        number,
        str(field["name"]),
        str(field["source"]),
        type_from_json(field["type"]),
        int(field["addedIn"]),
        required=bool(field.get("required", False)),
        present=bool(field.get("present", True)),
        recovered_from=None if base is None else int(base),
        emptied=bool(field.get("emptied", False)),
    )


def _change_to_json(change: Change) -> dict[str, Any]:
    types = {"old": change.old, "new": change.new}
    return {
        "kind": change.kind.value,
        "path": "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in change.path),  # a JSON pointer (RFC 6901)
        **{side: type_to_json(type_) for side, type_ in types.items() if type_ is not None},
    }
