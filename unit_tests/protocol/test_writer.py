from __future__ import annotations

import io
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from destination_s3_spark.errors import Bug, ConfigError, DataError, Fenced, SyncError, TransientError
from destination_s3_spark.protocol.writer import ProtocolLogHandler, ProtocolWriter
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

SECRET = 'sup3r "secret" \\key'


@pytest.fixture
def output() -> io.BytesIO:
    return io.BytesIO()


@pytest.fixture
def writer(output: io.BytesIO) -> ProtocolWriter:
    return ProtocolWriter(output)


@pytest.fixture
def secrets(writer: ProtocolWriter) -> None:
    writer.mask([SECRET])


@pytest.fixture
def logger(writer: ProtocolWriter) -> Iterator[logging.Logger]:
    logger = logging.Logger("under test", logging.DEBUG)
    logger.addHandler(ProtocolLogHandler(writer))
    yield logger
    logger.handlers.clear()


def sent(output: io.BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 - with the traceback a real one has
        return caught


def test_a_state_line_goes_out_as_it_is_also_with_a_secret_in_it(writer: ProtocolWriter, output: io.BytesIO, secrets: None) -> None:
    line = b'{"type":"STATE","state":{"data":"' + SECRET.encode() + b'\xff"}}\n'
    writer.state(line)
    assert output.getvalue() == line


def test_each_line_is_flushed_before_the_call_returns() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as out, os.fdopen(writing, "wb", buffering=2**20) as stream:
        os.set_blocking(reading, False)
        writer = ProtocolWriter(stream)
        writer.state(b"a state\n")
        assert out.read() == b"a state\n"
        writer.log("INFO", "hello")
        assert json.loads(out.read() or b"") == {"type": "LOG", "log": {"level": "INFO", "message": "hello"}}


@each(
    ("error", "failure_type"),
    [
        (ConfigError("c"), "config_error"),
        (TransientError("t"), "transient_error"),
        (DataError("d"), "system_error"),
        (Fenced("f"), "system_error"),
        (Bug("b"), "system_error"),
    ],
)
def test_an_error_carries_its_message_and_failure_type(error: SyncError, failure_type: str) -> None:
    output = io.BytesIO()
    ProtocolWriter(output).trace_error(raised(error))
    message = sent(output)[0]
    assert (message["type"], message["trace"]["type"]) == ("TRACE", "ERROR")
    assert isinstance(message["trace"]["emitted_at"], int)
    details = message["trace"]["error"]
    assert (details["message"], details["failure_type"]) == (error.message, failure_type)
    assert ("stack_trace" in details) == isinstance(error, Bug)
    assert "stream_descriptor" not in details


@each(
    ("stream", "described"),
    [
        (StreamId("shop", "users"), {"name": "users", "namespace": "shop"}),
        (StreamId(None, "users"), {"name": "users"}),
    ],
)
def test_an_error_names_the_stream_it_concerns(stream: StreamId, described: dict[str, str]) -> None:
    output = io.BytesIO()
    ProtocolWriter(output).trace_error(DataError("x", stream=stream))
    assert sent(output)[0]["trace"]["error"]["stream_descriptor"] == described


def test_an_unknown_error_shows_where_and_what_but_no_values(writer: ProtocolWriter, output: io.BytesIO) -> None:
    writer.trace_error(raised(ValueError("customer 4711"), KeyError("customer 4711")))
    details = sent(output)[0]["trace"]["error"]
    assert details["failure_type"] == "system_error"
    assert details["internal_message"] == "ValueError <- KeyError"
    assert "in raised" in details["stack_trace"]
    assert "4711" not in output.getvalue().decode()
    assert "did not foresee" in details["message"]


def test_secrets_are_masked_in_logs_traces_and_messages(writer: ProtocolWriter, output: io.BytesIO, secrets: None) -> None:
    writer.log("ERROR", f"key {SECRET} refused")
    writer.trace_error(ConfigError(f"key {SECRET} refused"))
    writer.connection_status("FAILED", f"key {SECRET} refused")
    log, trace, connection = sent(output)
    assert log["log"]["message"] == trace["trace"]["error"]["message"] == "key **** refused"
    assert connection["connectionStatus"] == {"status": "FAILED", "message": "key **** refused"}
    assert b"sup3r" not in output.getvalue()


def test_fields_of_the_protocol_are_not_masked(writer: ProtocolWriter, output: io.BytesIO) -> None:
    writer.mask(["test", "ERROR", "users-of-shop"])
    writer.trace_error(DataError("ERROR in c_testunions of users-of-shop, key test", stream=StreamId("users-of-shop", "test")))
    (message,) = sent(output)
    assert (message["type"], message["trace"]["type"]) == ("TRACE", "ERROR")
    assert message["trace"]["error"]["stream_descriptor"] == {"name": "test", "namespace": "users-of-shop"}
    assert message["trace"]["error"]["message"] == "**** in c_testunions of ****, key ****"


def test_text_that_is_no_utf_8_does_not_stop_a_message(writer: ProtocolWriter, output: io.BytesIO) -> None:
    writer.log("WARN", "stream \ud800 é")
    assert sent(output)[0]["log"]["message"] == "stream ? é"


def test_log_records_of_python_become_log_messages(logger: logging.Logger, output: io.BytesIO) -> None:
    for level in (logging.DEBUG, logging.INFO, 25, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logger.log(level, "level %s", level)
    assert [(message["log"]["level"], message["log"]["message"]) for message in sent(output)] == [
        ("DEBUG", "level 10"),
        ("INFO", "level 20"),
        ("INFO", "level 25"),
        ("WARN", "level 30"),
        ("ERROR", "level 40"),
        ("FATAL", "level 50"),
    ]


def test_a_logged_exception_shows_its_frames_and_not_its_text(logger: logging.Logger, output: io.BytesIO) -> None:
    text = "customer 4711"
    try:
        raise ValueError(text)
    except ValueError:
        logger.exception("it failed")
    message = sent(output)[0]["log"]["message"]
    assert message.startswith("it failed\n")
    assert "ValueError" in message
    assert "test_a_logged_exception" in message
    assert "4711" not in message


def test_a_log_call_with_wrong_arguments_neither_fails_nor_shows_them(
    logger: logging.Logger, output: io.BytesIO, capfd: pytest.CaptureFixture[str]
) -> None:
    logger.info("%d rows", "customer 4711")
    assert "cannot be formatted" in sent(output)[0]["log"]["message"]
    assert "4711" not in output.getvalue().decode() + capfd.readouterr().err


def test_a_closed_output_stops_the_next_state_and_silences_the_rest() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "wb", buffering=0)
    writer = ProtocolWriter(stream)
    writer.state(b"first\n")
    os.close(reading)
    for _ in range(2):
        with pytest.raises(TransientError, match="closed the connector's output"):
            writer.state(b"second\n")
    writer.log("INFO", "nobody hears this")
    writer.trace_error(Bug("nor this"))
    stream.close()


class SlowOutput(io.BytesIO):
    """Takes a line in halves and lets other threads run in between, as a full pipe does."""

    def write(self, line: Any) -> int:
        half = len(line) // 2
        super().write(line[:half])
        time.sleep(0)
        return half + super().write(line[half:])


def test_lines_of_several_threads_never_mix() -> None:
    output = SlowOutput()
    writer = ProtocolWriter(output)

    def log_often() -> None:
        for _ in range(100):
            writer.log("INFO", "x" * 500)

    threads = [threading.Thread(target=log_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(message["log"]["message"]) for message in sent(output)] == [500] * 400
