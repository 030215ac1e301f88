"""A REST catalog, and metadata in the bucket, that want more than they may have: code, other addresses, other files, secrets."""

from __future__ import annotations

import ast
import json
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import certifi
import pyarrow as pa
import pyiceberg
import pyiceberg.io
import pyiceberg.table.locations
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyiceberg.catalog.rest.auth import AuthManagerFactory

from destination_s3_spark.config.iceberg_options import IcebergRest
from destination_s3_spark.formats.avro import Header, read_header
from destination_s3_spark.formats.varints import integer
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.iceberg.catalogs import Connection
from destination_s3_spark.tables.publishers.iceberg.files import StoreFiles, io_properties
from destination_s3_spark.tables.publishers.publication import NotPublished
from unit_tests.chain.bucket import Bucket
from unit_tests.lake.hostile_catalog import HostileCatalog, served
from unit_tests.tables.publishers.iceberg.lake import Lake

ID = [("id", pa.int64())]
IMPORTS_BY_NAME = {
    ("catalog/__init__.py", "_import_catalog"),  # of load_catalog, which the connector never calls
    ("catalog/rest/auth.py", "create"),
    ("io/__init__.py", "_import_file_io"),
    ("io/pyarrow.py", "_import_retry_strategy"),  # of a FileIO that our catalogs never have
    ("table/locations.py", "_import_location_provider"),
    ("transforms.py", "_try_import"),  # of fixed names
}
"""Where pyiceberg imports by name. A release with another place fails here: close it in `catalogs`, or say why it is harmless."""


@pytest.fixture
def server() -> Iterator[HostileCatalog]:
    with served(HostileCatalog()) as running:
        yield running


def load(server: HostileCatalog, **options: Any) -> None:
    connection = Connection(IcebergRest(uri=server.uri, **options), S3Settings("b"))
    with connection.calls(Bucket(), "t/") as catalog:
        catalog.namespace_exists("shop")


def test_every_import_by_name_of_the_library_is_known() -> None:
    root = Path(pyiceberg.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                calls = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
                if calls & {"importlib.import_module", "__import__", "import_module", "exec", "eval", "importlib.util.find_spec"}:
                    found.add((path.relative_to(root).as_posix(), function.name))
    assert found == IMPORTS_BY_NAME


def test_the_imports_by_name_are_closed() -> None:
    for closed in (
        lambda: pyiceberg.io.load_file_io({"py-io-impl": "builtins.print"}),
        lambda: pyiceberg.table.locations.load_location_provider("x", {"write.py-location-provider.impl": "builtins.print"}),
        lambda: AuthManagerFactory.create("builtins.print", {}),
    ):
        with pytest.raises(NotPublished, match=r"names code to be run, 'builtins\.print', which was not done"):
            closed()
    assert type(pyiceberg.io.load_file_io({}, "s3://bucket/x")).__name__ == "PyArrowFileIO", "other code of the process reads on"


def test_a_server_sets_no_other_properties_than_a_prefix_and_a_separator(server: HostileCatalog) -> None:
    server.defaults = {"auth": {"type": "noop"}, "credential": "a:b", "header.X-Told": "1", "rest.sigv4-enabled": "true"}
    server.overrides = {"uri": "http://127.0.0.1:9", "prefix": "warehouse", "ssl": {"cabundle": "/etc/passwd"}, "token": "theirs"}
    load(server, token="ours")

    config, exists = server.requests
    assert exists[1] == "/v1/warehouse/namespaces/shop"
    assert exists[2]["Authorization"] == "Bearer ours" == config[2]["Authorization"]
    assert "X-Told" not in exists[2]


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:9/v1/config"])
def test_a_redirect_to_another_server_is_not_followed(server: HostileCatalog, target: str) -> None:
    server.redirect = target
    with pytest.raises(NotPublished, match=r"redirects to another server, http://(169\.254\.169\.254|127\.0\.0\.1), which is not followed"):
        load(server, credential="id:secret")
    assert len(server.requests) == 1


def test_a_name_that_leads_elsewhere_after_the_check_gets_no_byte(server: HostileCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the name is checked at first and before the request, and the peer before a byte is sent."""
    monkeypatch.setenv("DEPLOYMENT_MODE", "CLOUD")
    port, resolve, answers = server.uri.rpartition(":")[2], socket.getaddrinfo, ["8.8.8.8", "8.8.8.8", "127.0.0.1"]

    def rebinding(host: str, *arguments: Any, **options: Any) -> Any:
        return resolve(answers.pop(0) if host == "rebinding.example" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    server.uri = f"https://rebinding.example:{port}"
    with pytest.raises(NotPublished, match=r"publish\.iceberg\.uri 'rebinding\.example' leads to 127\.0\.0\.1, which is not a public"):
        load(server, token="ours")
    assert answers == []
    assert server.requests == []


def test_secrets_of_this_machine_are_not_sent(server: HostileCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a client's credential, the first request has no token yet, and requests would look for the host in .netrc."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(NotPublished):
        load(server, credential="id:secret")
    assert [(path, headers.get("Authorization")) for _, path, headers in server.requests] == [("/v1/oauth/tokens", None)]


def test_what_the_server_says_is_told_without_secrets(server: HostileCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Failed to get table\x1b[31m shop.users for my-secret of my-id by Bearer abc.def\nat java.lang.Thread"
    monkeypatch.setattr(server, "answer", lambda *_: (500, {"error": {"message": said, "type": "Unchecked", "code": 500}}))
    with pytest.raises(NotPublished) as failed:
        load(server, credential="my-id:my-secret")
    assert "in trouble (ServerError: Unchecked: Failed to get table [31m shop.users for **** of **** by Bearer ****)" in str(failed.value)


def test_metadata_names_files_of_its_own_folder_only(make_table: Any, tmp_path: Path) -> None:
    """Old metadata files are deleted by the names in the current one, and manifests are read by theirs."""
    lake = Lake(make_table(), tmp_path)
    lake.synced(1, ID, {"id": 1})
    store, bucket = lake.table.store, lake.table.settings.bucket
    store.put("finance/payroll.metadata.json", b"theirs")
    for found in list(store.list("lake/shop/users/_iceberg/")):
        if found.key.endswith(".metadata.json"):
            metadata = json.loads(store.get(found.key))
            foreign = {"timestamp-ms": 1, "metadata-file": f"s3://{bucket}/finance/payroll.metadata.json"}
            metadata["metadata-log"] = [foreign, *metadata["metadata-log"] * 30]
            store.put(found.key, json.dumps(metadata).encode())
    lake.synced(2, ID, {"id": 2})

    assert len(lake.iceberg().metadata.metadata_log) == 20, "it was shortened, and what went is deleted"
    assert store.get("finance/payroll.metadata.json") == b"theirs"
    assert lake.rows("id") == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("kind", ["a text beyond the end", "endless nulls", "a cut", "no Avro"])
def test_a_damaged_manifest_is_not_given_to_the_library(
    make_table: Any, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its native decoder reads whatever lies behind the bytes."""
    lake = Lake(make_table(), tmp_path)
    lake.synced(1, ID, {"id": 1})
    store = lake.table.store
    for found in list(store.list("lake/shop/users/_iceberg/")):
        if found.key.endswith(".avro"):
            store.put(found.key, damaged(store.get(found.key), kind))
    lake.synced(2, ID, {"id": 2})
    assert "is not published for iceberg: The metadata file 'lake/shop/users/_iceberg/" in caplog.text
    assert "of the Iceberg table is damaged (ValueError). Drop the table in the catalog" in caplog.text


def damaged(body: bytes, kind: str) -> bytes:
    header = read_header(BytesIO(body))
    if kind == "a text beyond the end":
        block = integer(0) * 2 + integer(2**40)
    elif kind == "endless nulls":
        schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}]}
        header, block = Header({**header.meta, "avro.schema": json.dumps(schema).encode()}, header.sync), integer(2**40)
    else:
        return body[:-20] if kind == "a cut" else b"{}" + body
    plain = Header({**header.meta, "avro.codec": b"null"}, header.sync)
    return plain.encoded + header.sync + integer(1) + integer(len(block)) + block + header.sync


def test_packed_metadata_is_not_unpacked() -> None:
    files = StoreFiles(io_properties(Bucket(), "lake", "t/"))
    with pytest.raises(NotPublished, match=r"names 's3://lake/t/1\.gz\.metadata\.json' as a file of its metadata"):
        files.key("s3://lake/t/1.gz.metadata.json")


def test_metadata_that_is_larger_than_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("destination_s3_spark.tables.publishers.iceberg.files.MOST_METADATA_BYTES", 5)
    store = Bucket()
    store.put("t/1.metadata.json", b"123456")
    with pytest.raises(NotPublished, match=r"'t/1\.metadata\.json' of the Iceberg table is damaged \(it is too large\)"):
        StoreFiles(io_properties(store, "lake", "t/")).read("t/1.metadata.json")


def test_the_authorities_are_those_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with served(HostileCatalog(), context) as server:
        with pytest.raises(NotPublished, match=r"\(SSLError\)\. If its certificate is not trusted, set s3\.ca_certificate"):
            load(server, token="ours")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
        load(server, token="ours")
        assert len(server.requests) == 2


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost, and its key, in PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = directory / "certificate.pem", directory / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return files
