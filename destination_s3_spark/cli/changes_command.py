"""Command `changes`: prints the change log of a stream's table as JSON lines, from the log's own objects alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson

from destination_s3_spark.change_log.manifest import GroupName
from destination_s3_spark.change_log.reading import ChangeLogFolder, Interval
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.terminal import Progress
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.table_paths import CHANGES_FOLDER, changes_root, changes_roots_of
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.wording import printable_json


def run(
    config_path: str, name: str, namespace: str | None, *, key: str | None, first: int | None, last: int | None, latest_snapshot: bool
) -> int:
    """Print the records in log order, one per line. Raises ConfigError when there is no log, DataError when it is damaged.

    `key`: a JSON object of key columns with the values that a record must have. `first` and `last` are sequence numbers.
    """
    wanted = {} if key is None else key_filter(key)
    config = read_config(config_path)
    store = S3Store(s3_settings(config))
    template = path_template(config, datetime.now(UTC), sync_id=0)
    log = _log(store, template, name, namespace)
    if log is None:
        raise ConfigError(_no_log(store, f"{template.base}{CHANGES_FOLDER}/", StreamId.of(namespace, name), config.s3_bucket_name))
    shown = nullcontext(None) if sys.stdout.isatty() else Progress("reading the change log")
    with suppress(BrokenPipeError), shown as progress:  # the reader closed the pipe early (`| head`)
        groups = log.from_last_snapshot() if latest_snapshot else log.groups
        for number, record in enumerate(_records(log, groups, wanted, Interval(first, last)), start=1):
            sys.stdout.buffer.write(printable_json(orjson.dumps(record, default=_number, option=orjson.OPT_APPEND_NEWLINE)))
            if progress is not None:
                progress.update(number, note="records printed")
    return 0


def _log(store: S3Store, template: PathTemplate, name: str, namespace: str | None) -> ChangeLogFolder | None:
    """Return the log of a stream, None if there is none. Raises ConfigError when streams of several namespaces have the name.

    Without a namespace, the name may be the namespace, a dot and the name, which then is the stream's whatever others are called.
    """

    def opened(folder: str) -> ChangeLogFolder:
        return ChangeLogFolder(store, folder, lambda key, size: RangedFile(store.settings, key, size))

    if namespace is not None:
        log = opened(changes_root(template, StreamId.of(namespace, name)))
        return log if log.groups else None
    ends = {name, *(name[at + 1 :] for at, character in enumerate(name) if character == ".")}
    roots = sorted({root for end in ends for root in changes_roots_of(template, end, store.folders)})
    named = {log.manifest(log.groups[0]).stream: log for root in roots if (log := opened(root)).groups}
    found = {stream: log for stream, log in named.items() if name in (stream.name, str(stream))}
    found = {stream: log for stream, log in found.items() if str(stream) == name} or found
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise ConfigError(f"There are {len(found)} change logs of streams of the name {name}: {names}. Add --namespace.")
    return next(iter(found.values()), None)


def _number(value: Decimal) -> orjson.Fragment:
    """Return a decimal as a JSON number with all of its digits."""
    return orjson.Fragment(f"{value:f}")


def key_filter(text: str) -> Mapping[str, Any]:
    """Parse a JSON object of key columns and their values. Raises ConfigError for any other text."""
    try:
        key = json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError:
        key = None
    if not isinstance(key, dict) or not key:
        raise ConfigError(f'--key takes a JSON object of key columns and their values, such as {{"id": 42}}, not {text}.')
    return key


def _records(log: ChangeLogFolder, groups: Sequence[GroupName], key: Mapping[str, Any], interval: Interval) -> Iterator[dict[str, Any]]:
    known = log.manifest(groups[-1]).primary_key
    if unknown := key.keys() - set(known):
        raise ConfigError(f"--key names {', '.join(sorted(unknown))}, but the primary key is {', '.join(known)}.")
    for group in groups:
        for record in log.records(log.manifest(group), interval):
            if all(_is(record["key"][name], value) for name, value in key.items()):
                yield record


def _is(found: object, wanted: object) -> bool:
    """Tell whether a key column has the wanted value. A double is compared with the double nearest to the wanted number."""
    return found == (float(wanted) if isinstance(found, float) and isinstance(wanted, Decimal) else wanted)


def _no_log(store: ObjectStore, changes: str, stream: StreamId, bucket: str) -> str:
    folders = sorted({found.key.removeprefix(changes).rpartition("/")[0] for found in store.list(changes)})
    known = f"Logs there: {', '.join(folders)} (namespace/stream)." if folders else "There is none at all."
    return (
        f"There is no change log of stream {stream} under s3://{bucket}/{changes}. {known} Only deduplicated tables have one, and "
        "only since change_log was switched on."
    )
