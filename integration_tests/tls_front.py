"""TLS in front of a plain server, with a certificate of an authority that nobody else knows."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(slots=True)
class Authority:
    """A certificate authority, and the file with the certificate and key that it has issued for some hosts."""

    pem: str
    issued: Path


@dataclass(slots=True)
class Front:
    """The address of the server behind TLS, and the connections that were made through."""

    url: str
    connections: list[str] = field(default_factory=list)


def authority(directory: Path, name: str, *hosts: str) -> Authority:
    """A new authority, which has issued a certificate for 127.0.0.1 and these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    own = _certificate(subject, subject, key.public_key(), x509.BasicConstraints(ca=True, path_length=0)).sign(key, hashes.SHA256())
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    names = [_name(host) for host in ("127.0.0.1", *hosts)]
    builder = _certificate(server, subject, server_key.public_key(), x509.BasicConstraints(ca=False, path_length=None))
    issued = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(key, hashes.SHA256())
    file = directory / f"{name}.pem"
    private = server_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(issued.public_bytes(serialization.Encoding.PEM) + private)
    return Authority(own.public_bytes(serialization.Encoding.PEM).decode(), file)


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, constraints: x509.BasicConstraints
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key).serial_number(x509.random_serial_number())
    now = datetime.now(UTC)
    valid = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))
    return valid.add_extension(constraints, critical=True)


@contextmanager
def tls_front(issued: Path, target: str) -> Iterator[Front]:
    """Serve the target's address with this certificate until the end of the block."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued)
    behind = urlsplit(target)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        front = Front(f"https://127.0.0.1:{listening.getsockname()[1]}")

        def serve(plain: socket.socket) -> None:
            with contextlib.suppress(OSError), plain, context.wrap_socket(plain, server_side=True) as client:
                front.connections.append(target)
                with socket.create_connection((behind.hostname or "", behind.port or 0)) as server:
                    answers = threading.Thread(target=_copy, args=(server, client), daemon=True)
                    answers.start()
                    _copy(client, server)
                    answers.join()

        def accept() -> None:
            with contextlib.suppress(OSError):  # the test is over
                while True:
                    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield front
        listening.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
