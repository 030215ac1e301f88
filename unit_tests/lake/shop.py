"""The made-up source of `unit_tests.lake.messages` in namespace `shop`."""

from __future__ import annotations

from unit_tests.lake.messages import Source

_SHOP = Source("shop")
stream, record, records, users = _SHOP.stream, _SHOP.record, _SHOP.records, _SHOP.users
state, status, complete = _SHOP.state, _SHOP.status, _SHOP.complete
