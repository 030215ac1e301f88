from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.endpoint import check_address, check_endpoint
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import AccessKey, ClientLimits, S3Settings
from unit_tests.cases import each

ONCE = ClientLimits(attempts=1, connect_timeout_s=2, read_timeout_s=3)
METADATA = "169.254.169.254"


@pytest.fixture
def in_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOYMENT_MODE", "CLOUD")


def resolve_to(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Let every name resolve to the answers in turn, the last one for ever."""
    rest = list(answers)

    def getaddrinfo(host: str, port: Any, *_: Any, **__: Any) -> list[Any]:
        address = rest.pop(0) if len(rest) > 1 else rest[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@each("endpoint", ["http://localhost:9000", "http://127.0.0.1:9000", "http://10.1.2.3", "https://192.168.1.5:443/", "http://[::1]:9000"])
def test_loopback_and_private_addresses_are_normal(endpoint: str) -> None:
    check_endpoint(endpoint)


@each(
    "endpoint",
    [
        "http://169.254.169.254",
        "http://169.254.169.254:80/latest/meta-data",
        "https://169.254.170.2",
        "http://2852039166",
        "http://0xa9fea9fe",
        "http://0251.0376.0251.0376",
        "http://169.254.43518",
        "http://0.0.0.0:9000",
        "http://0",
        "http://[::]:9000",
        "http://[fe80::1]",
        "http://[fd00:ec2::254]",
        "http://[::ffff:169.254.169.254]",
        "http://[::ffff:a9fe:a9fe]",
        "http://[2002:a9fe:a9fe::1]",
        "http://[64:ff9b::a9fe:a9fe]",
        "http://100.100.100.200",
        "http://[fd00:42::42]",
        "http://[::ffff:0:169.254.169.254]",
        "http://[64:ff9b:1::a9fe:a9fe]",
        "http://[64:ff9b:1:a9fe:a9:fe00::]",
        "http://[64:ff9b:1:ffff:a9:fea9:fe00:0]",
        "http://[64:ff9b:1:ffa9:fe:a9fe::]",
        "http://[64:ff9b:1:a9fe:a9:fe00::1]",
        "http://[64:ff9b::100.100.100.200]",
        "http://[::100.100.100.200]",
        "http://[2002:6464:64c8::]",
        "http://[2001:0:1234::5601:5601]",
        "http://[fe80::5efe:169.254.169.254]",
        "http://[2a00:1450::5efe:169.254.169.254]",
        "http://[2a00:1450::200:5efe:169.254.169.254]",
        "http://[::ffff:0:0]",
        "http://[2002:a9fe:a9fe::ffff:1]",
    ],
)
def test_addresses_kept_for_the_host_are_refused_in_every_spelling(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="s3_endpoint"):
        check_endpoint(endpoint)


@each("endpoint", ["http://[64:ff9b:1::a00:1]", "http://[::ffff:0:10.0.0.1]", "http://[fd00:42::43]", "http://[2a00:1450::1]"])
def test_other_addresses_within_such_forms_are_normal(endpoint: str) -> None:
    check_endpoint(endpoint)


def test_a_name_that_resolves_to_a_metadata_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, METADATA)
    with pytest.raises(ConfigError, match=r"innocent\.example.*169\.254\.169\.254"):
        check_endpoint("https://innocent.example")


def test_one_forbidden_address_among_several_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in ("10.0.0.1", METADATA)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    with pytest.raises(ConfigError):
        check_endpoint("http://two.example")


@each(
    ("endpoint", "text"),
    [
        ("localhost:9000", "http://"),
        ("ftp://host", "http://"),
        ("file:///etc/passwd", "http://"),
        ("http://", "name a host"),
        ("http://host name", "name a host"),
        ("http://host:port", "valid URL"),
        ("http://host/?x=1", "query"),
        ("http://host/#x", "fragment"),
        ("http://ho\0st", "host"),
        ("http://" + "x" * 70 + ".example", "host"),
    ],
)
def test_what_is_not_an_http_address_is_refused_with_the_reason(endpoint: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_endpoint(endpoint)


def test_a_password_in_the_endpoint_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError) as caught:
        check_endpoint("https://user:hunter2@host")
    assert "hunter2" not in caught.value.message


@pytest.mark.usefixtures("in_cloud")
@each(
    "endpoint",
    [
        "http://8.8.8.8",
        "https://127.0.0.1",
        "https://10.0.0.1",
        "https://[::1]",
        "https://100.64.0.1",
        "https://localhost",
        "https://[64:ff9b:1::808:808]",
    ],
)
def test_in_the_cloud_only_https_and_public_addresses_pass(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"https|public"):
        check_endpoint(endpoint)
    check_endpoint("https://8.8.8.8")


def test_an_address_of_a_connection_is_checked_by_the_same_rules() -> None:
    check_address("127.0.0.1", "http://any")
    with pytest.raises(ConfigError):
        check_address("fe80::1%eth0", "http://any")


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A port of 127.0.0.1 and the bytes that came in there."""
    received: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(5)

    def accept() -> None:
        try:
            connection, _ = server.accept()
            connection.settimeout(1)
            received.append(connection.recv(1000))
            connection.close()
        except OSError:
            pass

    thread = threading.Thread(target=accept)
    thread.start()
    yield server.getsockname()[1], received
    server.close()
    thread.join()


@pytest.mark.usefixtures("in_cloud")
def test_a_name_that_resolves_differently_when_connecting_gets_no_byte(
    monkeypatch: pytest.MonkeyPatch, listener: tuple[int, list[bytes]]
) -> None:
    port, received = listener
    resolve_to(monkeypatch, "8.8.8.8", "127.0.0.1")
    store = S3Store(S3Settings("bucket", "us-east-1", f"https://rebinding.example:{port}", AccessKey("k", "s"), limits=ONCE))
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1"):
        store.put("k", b"secret")
    assert b"".join(received) == b""


def test_a_redirect_is_not_followed_to_another_server(
    s3_settings: S3Settings, s3_proxy: Any, s3_error: Any, listener: tuple[int, list[bytes]]
) -> None:
    port, received = listener
    s3_proxy.script = lambda _: s3_error(307, "TemporaryRedirect", Location=f"http://127.0.0.1:{port}/latest/meta-data")
    store = S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, limits=ONCE))
    with pytest.raises(ConfigError):
        store.get("k")
    with socket.create_connection(("127.0.0.1", port)) as probe:
        probe.sendall(b"the first to arrive")
    while not received:
        threading.Event().wait(0.01)
    assert received == [b"the first to arrive"]
