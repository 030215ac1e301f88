"""`DestinationS3Spark.write` with messages that are objects: how PyAirbyte and other Python programs call the connector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pytest
from airbyte_cdk.models import AirbyteMessage, AirbyteMessageSerializer, ConfiguredAirbyteCatalogSerializer

from destination_s3_spark import DestinationS3Spark
from destination_s3_spark.sync import runtime
from unit_tests.lake.inline_engine import InlineEngine
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import state, stream, users

CATALOG = ConfiguredAirbyteCatalogSerializer.load(catalog(stream(generation=None, minimum_generation=None, sync_id=None)))


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "engine_of", lambda *_: InlineEngine())


def loaded(lines: Iterable[bytes]) -> Iterator[AirbyteMessage]:
    return (AirbyteMessageSerializer.load(json.loads(line)) for line in lines)


def answers(lake: Lake, messages: Iterable[AirbyteMessage]) -> Iterator[tuple[int, float]]:
    """The cursor and the count of records of each STATE that comes back."""
    for answer in DestinationS3Spark().write(lake.raw_config(), CATALOG, messages):
        found = AirbyteMessageSerializer.dump(answer)["state"]
        yield found["stream"]["stream_state"]["cursor"], found["destinationStats"]["recordCount"]


def test_messages_of_this_process_are_synced(lake: Lake) -> None:
    sent = loaded([*users(range(3)), state(3), *users([3]), state(4)])
    assert list(answers(lake, sent)) == [(3, 3.0), (4, 1.0)]
    assert lake.ids() == [0, 1, 2, 3]
    lake.verify_at_rest()


def test_a_source_that_breaks_is_not_taken_for_one_that_ended(lake: Lake) -> None:
    def broken() -> Iterator[AirbyteMessage]:
        yield from loaded([*users(range(3)), state(3), *users([3])])
        raise BrokenPipeError("the source went away")

    came = answers(lake, broken())
    assert next(came) == (3, 3.0)
    with pytest.raises(BrokenPipeError, match="went away"):
        next(came)
    assert lake.ids() == [0, 1, 2]
    lake.verify()
