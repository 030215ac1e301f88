"""Connections whose peer's address is checked before the first byte is sent, for any HTTP client on urllib3."""

from __future__ import annotations

import socket
from typing import Any, cast

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.endpoint import check_address

Pools = dict[str, type[HTTPConnectionPool]]


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
