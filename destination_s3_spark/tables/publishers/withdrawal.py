"""Withdrawal of a publication that was switched off and that must not stay: the Delta log.

An outdated Delta log is dangerous: VACUUM deletes every file that the log does not name.
"""

from __future__ import annotations

import logging
from enum import Enum

from destination_s3_spark.chain.state import TableState
from destination_s3_spark.delta_log.log import DeltaLog, UnreadableLog
from destination_s3_spark.storage.object_store import ObjectStore

DELTA_PUBLISHER = "delta"
"""The name of the publisher of Delta tables."""

logger = logging.getLogger("airbyte")


class Withdrawal(Enum):
    """The outcome of a withdrawal."""

    DONE = "done"
    NOTHING_THERE = "nothing there"
    """There is no log, or it belongs to another table or program."""
    UNREADABLE = "unreadable"


def withdraw_delta_log(store: ObjectStore, state: TableState) -> Withdrawal:
    """Remove the table's Delta log. Takes one LIST if there is none."""
    log = DeltaLog(store, state.identity.final_root)
    try:
        found = log.read()
    except UnreadableLog as error:
        logger.warning(
            "table %s: publish.delta is off, but the Delta log under '%s' stays, because it cannot be read: %s. Remove it.",
            state.identity.stream, log.prefix, error,
        )  # fmt: skip
        return Withdrawal.UNREADABLE
    if found is None or state.identity.table_id not in found.transactions:
        return Withdrawal.NOTHING_THERE
    log.remove()
    logger.info("table %s: publish.delta is off, so the Delta log under '%s' was removed", state.identity.stream, log.prefix)
    return Withdrawal.DONE
