"""Configuration of batches: when records are committed, what completes a stream, and where records wait.

Users read the docstrings, titles and descriptions.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from destination_s3_spark.config.settings_model import Settings, documented


class Batching(Settings):
    """When records are committed, and where they wait until then."""

    max_batch_mb: int = Field(
        512,
        ge=1,
        title="Batch size (MB)",
        description="Records of all streams together that are committed at once, at the next STATE. Larger batches make larger files.",
        examples=[1024],
    )
    max_batch_age_s: int = Field(
        300,
        ge=1,
        le=900,
        title="Batch age (seconds)",
        description="How long a STATE may wait for its batch to be committed. Airbyte expects one at least every 15 minutes.",
        examples=[60],
    )
    end_of_input: Literal["needs_state", "completes"] = Field(
        "needs_state",
        title="End of the input",
        description=(
            "What completes a stream where no stream status comes (a custom connector, a pipe). needs_state: a STATE after its last "
            "record. completes: the end of the input, for sources that send no STATE; only tables.unproven_replacement then protects the "
            "table from one that died."
        ),
        json_schema_extra=documented(page="guarantees.md#when-a-stream-is-complete"),
    )
    spool_dir: str | None = Field(
        None,
        title="Spool directory",
        description="The local directory in which records wait for their batch. By default the system's temporary directory.",
        examples=["/spool"],
    )
    max_spool_gb: float = Field(
        4,
        gt=0,
        title="Spool size (GB)",
        description=(
            "The local disk space that waiting records may take, and events of change logs when they have left. When it is full, reading "
            "pauses."
        ),
        examples=[20],
    )
    max_line_mb: int = Field(
        256,
        ge=1,
        le=1024,
        title="Longest line (MB)",
        description=(
            "A longer line of the input ends the sync: it is broken, or its record needs more memory than there is, about 20 times its "
            "size."
        ),
        examples=[512],
        json_schema_extra=documented(page="guarantees.md#limits"),
    )
