"""A small table that ended cleanly."""

from __future__ import annotations

import pytest

from destination_s3_spark.chain.events import (
    Close,
)
from destination_s3_spark.cli.inspection.table import InspectedTable
from unit_tests.cli.inspection.hand_made_chain import SCHEMA, SEED, HandMadeChain, add_data, nulled


@pytest.fixture
def table() -> InspectedTable:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 1_200, nulled(3)))
    return chain.append(Close(), settled=2).inspected()
