"""Tables that a sync registers in AWS Glue (moto)."""

from __future__ import annotations

import boto3
import pyarrow.parquet as pq

from unit_tests.lake.buckets import REGION
from unit_tests.lake.contents import MANIFEST
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream, users
from unit_tests.lake.table_readers import download


def test_a_sync_registers_its_tables_and_their_new_columns(lake: Lake, moto_endpoint: str) -> None:
    connector = lake.connector(
        environment={"AWS_ENDPOINT_URL_GLUE": moto_endpoint}, publish={"glue": {"database": "glue_test_${NAMESPACE}"}}
    )
    assert connector.check().connection_status["status"] == "SUCCEEDED"
    connector.write(catalog(stream()), [*users(range(3)), state(1), complete()]).expect_success()
    columns = {"id": {"type": "integer"}, "name": {"type": "string"}, "price": {"type": "number"}}
    grown = catalog(stream(schema={"type": "object", "properties": columns}))
    outcome = connector.write(grown, [record({"id": 3, "price": 1.5}), state(2), complete()]).expect_success()

    assert "glue" not in outcome.warnings
    glue = boto3.client("glue", REGION, endpoint_url=moto_endpoint, aws_access_key_id="any", aws_secret_access_key="any")
    storage = glue.get_table(DatabaseName="glue_test_shop", Name="users")["Table"]["StorageDescriptor"]
    types = {column["Name"]: column["Type"] for column in storage["Columns"]}
    assert {name: types[name] for name in columns} == {"id": "bigint", "name": "string", "price": "double"}

    # What an engine does: read the files that the manifest at the location names.
    start = f"s3://{lake.bucket.name}/"
    assert storage["Location"] == start + lake.chains()["shop", "users"].final_root + MANIFEST.rpartition("/")[0] + "/"
    manifest = lake.bucket.read(storage["Location"].removeprefix(start) + "manifest").decode().split()
    files = download(lake.bucket, [line.removeprefix(start) for line in manifest], lake.directory / "shown")
    assert sum(pq.read_metadata(file).num_rows for file in files) == 4


def test_glue_that_is_down_ends_no_sync(lake: Lake) -> None:
    down = lake.connector(environment={"AWS_ENDPOINT_URL_GLUE": "http://127.0.0.1:9"}, publish={"glue": {"database": "lake"}})
    outcome = down.write(catalog(stream()), [*users(range(3)), state(1), complete()]).expect_success()

    assert "table shop.users is not published for glue: AWS Glue could not be reached" in outcome.warnings
    assert lake.ids() == [0, 1, 2]
    lake.verify_at_rest()
