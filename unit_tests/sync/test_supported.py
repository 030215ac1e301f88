from __future__ import annotations

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import Catalog, DestinationSyncMode, Stream, StreamId
from destination_s3_spark.sync.supported import require_supported_sync


def catalog(mode: DestinationSyncMode = DestinationSyncMode.APPEND, generation_id: int = 3, minimum_generation_id: int = 0) -> Catalog:
    plain, special = (
        Stream(
            id=StreamId("shop", name),
            json_schema={"type": "object"},
            sync_mode="incremental",
            destination_sync_mode=stream_mode,
            primary_key=(("id",),),
            cursor_field=("updated_at",),
            generation_id=generation_id,
            minimum_generation_id=minimum,
            sync_id=1,
        )
        for name, stream_mode, minimum in (("customers", DestinationSyncMode.APPEND, 0), ("orders", mode, minimum_generation_id))
    )
    return Catalog(streams=(plain, special), eof_is_complete=False)


def test_append_is_supported() -> None:
    require_supported_sync(catalog())


@pytest.mark.parametrize("mode", [DestinationSyncMode.APPEND_DEDUP, DestinationSyncMode.OVERWRITE])
def test_another_mode_is_refused_naming_the_stream(mode: DestinationSyncMode) -> None:
    with pytest.raises(ConfigError) as caught:
        require_supported_sync(catalog(mode))

    assert f"stream 'shop.orders', destination_sync_mode: {mode.value}" in caught.value.message
    assert caught.value.stream == ("shop", "orders")


def test_a_refresh_that_removes_records_is_refused_naming_the_stream() -> None:
    with pytest.raises(ConfigError) as caught:
        require_supported_sync(catalog(generation_id=3, minimum_generation_id=3))

    assert "stream 'shop.orders', minimum_generation_id: 3" in caught.value.message
    assert caught.value.stream == ("shop", "orders")
