from __future__ import annotations

import http.client
import sys
from pathlib import Path

import pytest

from demo import server, tour
from destination_s3_spark.errors import ConfigError


def test_the_server_has_the_bucket_until_it_is_stopped(tmp_path: Path) -> None:
    local = server.start("somewhere", tmp_path / "server.log")
    address = local.endpoint.removeprefix("http://")
    try:
        connection = http.client.HTTPConnection(address, timeout=10)
        connection.request("HEAD", "/somewhere")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        local.stop()

    assert local.process.returncode is not None
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(address, timeout=10).connect()


def test_a_bucket_that_cannot_be_made_stops_the_server(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"did not start; what it said is in .*server\.log"):
        server.start("A", tmp_path / "server.log")


def test_without_moto_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moto", None)

    with pytest.raises(ConfigError, match=r"pip install 'moto\[server\]'"):
        tour.run(10, 7, tour.After.STOP)
