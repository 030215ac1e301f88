"""Envelope of one message line: its type, a record's stream, or the text of a STATE or TRACE. The record's data is not decoded."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from destination_s3_spark.exact_json.values import split_object, string_value
from destination_s3_spark.stream_id import StreamId

_ABSENT = b"null"


class Envelope(NamedTuple):
    """Parts of a message line that routing needs.

    `stream` is set for a RECORD. `body` is the text of the member `state` or `trace`. `names_namespace` is True for a record that has the
    key `namespace`, even with null.
    """

    type: str
    stream: StreamId | None = None
    names_namespace: bool = False
    body: bytes = _ABSENT


class _Record(msgspec.Struct, gc=False):
    stream: str
    data: msgspec.Raw
    namespace: str | msgspec.UnsetType | None = msgspec.UNSET


class _RecordMessage(msgspec.Struct, gc=False):
    type: str
    record: _Record | None = None


_RECORD_MESSAGE = msgspec.json.Decoder(_RecordMessage)


def read_envelope(line: bytes) -> Envelope:
    """Read a line that starts with `{`. An unknown `type` is no error, nor is a missing one without a record or state.

    Raises ValueError unless the line is one complete JSON object, and for a RECORD or STATE that lacks a required part.
    """
    try:
        message = _RECORD_MESSAGE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _exact_envelope(line)
    if message.type == "RECORD" and message.record is not None:
        namespace = message.record.namespace
        if namespace is msgspec.UNSET:
            return Envelope("RECORD", StreamId.of(None, message.record.stream))
        return Envelope("RECORD", StreamId.of(namespace, message.record.stream), names_namespace=True)
    return _exact_envelope(line)


def _exact_envelope(line: bytes) -> Envelope:
    fields = split_object(line)
    kind = _type(fields)
    if kind == "RECORD":
        return _record_envelope(split_object(_required_object(fields, "record")))
    if kind == "STATE":
        return Envelope(kind, body=_required_object(fields, "state"))
    if kind == "TRACE":
        return Envelope(kind, body=fields.get("trace", _ABSENT))
    return Envelope(kind)


def _type(fields: dict[str, bytes]) -> str:
    try:
        return string_value(fields.get("type", _ABSENT))
    except ValueError:
        if "record" in fields or "state" in fields:
            raise ValueError("a message without a type") from None
        return "without a type"


def _record_envelope(fields: dict[str, bytes]) -> Envelope:
    if "data" not in fields:
        raise ValueError("a RECORD without data")
    if "stream" not in fields:
        raise ValueError("a RECORD without a stream")
    text = fields.get("namespace", _ABSENT)
    namespace = None if text == _ABSENT else string_value(text)
    return Envelope("RECORD", StreamId.of(namespace, string_value(fields["stream"])), "namespace" in fields)


def _required_object(fields: dict[str, bytes], name: str) -> bytes:
    text = fields.get(name, _ABSENT)
    if not text.startswith(b"{"):
        raise ValueError(f"a {name.upper()} without its {name}")
    return text
