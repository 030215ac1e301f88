"""The one rule for the addresses that the connector may contact: of the store, of catalogs and their databases, of Spark's masters.

An Airbyte user, or a server that the user chose, names an address, and this process connects to it. It must therefore not reach services
meant for the host alone: the cloud's metadata services. Loopback and private networks are normal for MinIO and Ceph. Airbyte Cloud
(DEPLOYMENT_MODE=CLOUD) allows only https and public addresses. The name is checked before a request. The address of every connection is
checked too (`checked_pools`), because a name may resolve to another address a moment later (DNS rebinding).
"""

from __future__ import annotations

import os
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from destination_s3_spark.errors import ConfigError

S3_ENDPOINT = "s3_endpoint"
"""The option that holds the address of the store."""

_FORBIDDEN_NETWORKS = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # "this host"; connects to loopback on Linux
        "169.254.0.0/16",  # link-local: AWS, GCP, Azure, OpenStack metadata, ECS credentials
        "100.100.100.200/32",  # Alibaba Cloud metadata
        "168.63.129.16/32",  # Azure's host agent
        "192.0.0.192/32",  # Oracle Cloud metadata (classic)
        "224.0.0.0/4",
        "255.255.255.255/32",
        "::/128",
        "fe80::/10",
        "fd00:ec2::/32",  # AWS metadata, EKS pod identity and DNS over IPv6
        "fd20:ce::254/128",  # GCP metadata over IPv6
        "fd00:42::42/128",  # Scaleway metadata over IPv6
        "ff00::/8",
    )
)
_THIS_HOST = ip_network("0.0.0.0/8")
_IPV4_AT_THE_END = tuple(ip_network(network) for network in ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96"))
"""NAT64, SIIT and IPv4-compatible addresses."""
_LOCAL_NAT64 = ip_network("64:ff9b:1::/48")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""Third quarter of an ISATAP address, which ends with an IPv4 address."""
Pools = dict[str, type[HTTPConnectionPool]]


def cloud_deployment() -> bool:
    """Return whether this is Airbyte Cloud, where endpoints must be public."""
    return os.environ.get("DEPLOYMENT_MODE", "").upper() == "CLOUD"


def check_endpoint(endpoint: str, option: str = S3_ENDPOINT) -> None:
    """Raise ConfigError unless connections to the endpoint are allowed. A name that does not resolve fails later, at the connection.

    `option` names the endpoint in messages.
    """
    parts = _parse(endpoint, option)
    if cloud_deployment() and parts.scheme != "https":
        raise ConfigError(f"{option} '{endpoint}' must use https.")
    check_host(parts.hostname or "", option, endpoint)


def check_host(host: str, option: str, endpoint: str | None = None) -> None:
    """Raise ConfigError unless connections to the host are allowed. Messages name it by `endpoint`, if given."""
    checked_addresses(host, option, endpoint)


def checked_addresses(host: str, option: str, endpoint: str | None = None) -> list[str]:
    """Return the addresses of a host in the system's order, none if it is not known. Raises ConfigError as `check_host`."""
    try:
        # The system's resolver also understands 0x7f.1 and decimal addresses, exactly as the connection will.
        resolved = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    except ValueError as error:
        raise ConfigError(f"{option} does not hold a valid host name. Write it as https://host or http://host:port.") from error
    addresses = [str(address[0]) for *_, address in resolved]
    for address in addresses:
        check_address(address, endpoint or host, option)
    return list(dict.fromkeys(addresses))


def check_address(address: str, endpoint: str, option: str = S3_ENDPOINT) -> None:
    """Raise ConfigError if the endpoint leads to a forbidden numeric IP address."""
    meanings = _meanings(ip_address(address))
    for ip in meanings:
        if any(ip in network for network in _FORBIDDEN_NETWORKS):
            raise ConfigError(
                f"{option} '{endpoint}' leads to {ip}, an address kept for the host itself (link-local or cloud metadata). "
                "Use the address of the service."
            )
    if cloud_deployment() and not all(ip.is_global and ip not in _LOCAL_NAT64 for ip in meanings):
        raise ConfigError(f"{option} '{endpoint}' leads to {meanings[0]}, which is not a public address. Use an endpoint that is public.")


def _parse(endpoint: str, option: str) -> SplitResult:
    """Parse the endpoint. Errors omit its text while it may still contain a password."""
    try:
        parts = urlsplit(endpoint)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{option} is not a valid URL. Write it as https://host or http://host:port.") from error
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{option} must not contain a user name or password. There are other options for secrets.")
    if parts.query or parts.fragment:
        raise ConfigError(f"{option} must not contain a query ('?') or a fragment ('#'). Write it as https://host or http://host:port.")
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(c.isspace() or not c.isprintable() for c in endpoint):
        raise ConfigError(f"{option} '{endpoint}' must start with http:// or https:// and name a host, for example http://localhost:9000.")
    return parts


def _meanings(ip: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Return the IPv4 addresses that an IPv6 form embeds, which a network may translate it to; the address itself if it embeds none."""
    if isinstance(ip, IPv4Address):
        return [ip]
    number = int(ip)
    if ip in _LOCAL_NAT64:
        return [ip, *(inner for inner in map(IPv4Address, _translated(number)) if inner not in _THIS_HOST)]
    if (inner := ip.ipv4_mapped or ip.sixtofour) is not None:
        return [inner]
    if ip.teredo is not None:
        return [*ip.teredo]
    if number > 1 and (any(ip in network for network in _IPV4_AT_THE_END) or number >> 32 & 0xFFFFFFFF in _ISATAP):
        return [IPv4Address(number & 0xFFFFFFFF), ip]
    return [ip]


def _translated(number: int) -> tuple[int, ...]:
    """Return the IPv4 addresses in an IPv6 address under a prefix of 48, 56, 64 and 96 bits (RFC 6052), as numbers."""
    return (
        (number >> 64 & 0xFFFF) << 16 | (number >> 40 & 0xFFFF),
        (number >> 64 & 0xFF) << 24 | (number >> 32 & 0xFFFFFF),
        number >> 24 & 0xFFFFFFFF,
        number & 0xFFFFFFFF,
    )


def checked_pools(
    option: str, http: type[HTTPConnectionPool] = HTTPConnectionPool, https: type[HTTPSConnectionPool] = HTTPSConnectionPool
) -> Pools:
    """Return the pools by scheme, for `pool_classes_by_scheme` of a PoolManager. A forbidden peer is a ConfigError that names `option`.

    `http` and `https` are the client's own pools. Connections through a proxy come from a manager of their own and are not checked: the
    operator set the proxy, which resolves names and has its own rules.
    """
    return {
        "http": type("CheckedHTTPPool", (http,), {"ConnectionCls": _checked(http.ConnectionCls, option)}),
        "https": type("CheckedHTTPSPool", (https,), {"ConnectionCls": _checked(https.ConnectionCls, option)}),
    }


def _checked(connection: Any, option: str) -> type[HTTPConnection | HTTPSConnection]:
    def connect(self: Any) -> socket.socket:
        opened: socket.socket = connection._new_conn(self)
        try:
            check_address(str(opened.getpeername()[0]), self.host, option)
        except ConfigError:
            opened.close()
            raise
        return opened

    return cast("type[HTTPConnection]", type(f"Checked{connection.__name__}", (connection,), {"_new_conn": connect}))
