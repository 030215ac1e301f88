"""Keys of files: every variable of the templates, and that no sync writes a key twice."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, stream, users
from unit_tests.sync.forms.fixtures import Landed
from unit_tests.sync.forms.landing import TWO_SYNCS

BUCKET_PATH = "lake/${NAMESPACE}-${STREAM_NAME}"
PATH_FORMAT = (
    "${SYNC_ID}/${NAMESPACE}/${STREAM_NAME}/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}/${SECOND}/${MILLISECOND}/${EPOCH}/${UUID}/${POTATO}_"
)
FILE_PATTERN = "{date}-{date:yyyy_MM}-{timestamp}-{timestamp:micro}-{part_number}-{sync_id}{format_extension}"
KEY = re.compile(
    r"lake/(?P<folder>[^/]+)/7/(?P<stream>.+)/(?P<time>\d{4}/\d\d/\d\d/\d\d/\d\d/\d\d)/(?P<ms>\d{4})/(?P<epoch>\d{13})/[0-9a-f-]{36}/POTATO_"
    r"(?P<date>\d{4}_\d\d_\d\d)-(?P<month>\d{4}_\d\d)-(?P<written>\d{13})-\d{16}-0-7-\d+\.jsonl\.gz"
)


def test_every_variable_of_the_templates_is_filled_in(lake: Lake) -> None:
    names = {("shöp/eu", "us^ers"): ("shop/eu-us_ers", "shop/eu/us_ers"), (None, "orders +1"): ("-orders_+1", "orders_+1")}
    streams = [stream(name, namespace) for namespace, name in names]
    messages = [line for namespace, name in names for line in (*users([1], name, namespace), complete(name, namespace))]
    templates: dict[str, Any] = {"s3_bucket_path": BUCKET_PATH, "s3_path_format": PATH_FORMAT, "file_name_pattern": FILE_PATTERN}
    started = datetime.now(UTC)
    lake.connector(format={"format_type": "JSONL"}, **templates).write(catalog(*streams), messages).expect_success()

    chains = lake.chains()
    for name, (folder, path) in names.items():
        (key,) = chains[name].final_keys
        match = KEY.fullmatch(key.replace(folder, folder.replace("/", "|"), 1))
        assert match, key
        assert (match["folder"].replace("|", "/"), match["stream"]) == (folder, path)
        at = datetime.strptime(match["time"], "%Y/%m/%d/%H/%M/%S").replace(tzinfo=UTC)
        assert started - timedelta(seconds=1) <= at <= datetime.now(UTC)
        assert int(match["epoch"]) == at.timestamp() * 1000 + int(match["ms"])
        assert int(match["written"]) >= int(match["epoch"])
        assert (match["date"], match["month"]) == (at.strftime("%Y_%m_%d"), at.strftime("%Y_%m"))


def test_a_later_sync_with_the_same_names_overwrites_nothing(landed: Landed) -> None:
    for form in TWO_SYNCS:
        landing = landed(form)
        first, second = landing.keys
        assert {key: second.get(key) for key in first} == first
        assert len(second) > len(first)
        assert all(re.search(r"/data-\d+\.(jsonl\.gz|csv)$", key) for key in second)
