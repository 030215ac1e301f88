"""Texts of records without the fields that their stream does not declare, so that no column of an earlier schema shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.line_rules import LineRules, NativeLineRules
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.schema.column_rules import Treatment

_HEAD, _TAIL = b'{"record":{"data":', b"}}\n"


class DeclaredTexts:
    """Keeps the members of a record with these JSON keys, and their bytes."""

    def __init__(self, sources: Iterable[str]) -> None:
        treatment = Treatment(declared=frozenset((source,) for source in sources), closed=frozenset({()}))
        self._rules = LineRules(treatment) if KERNEL is None else NativeLineRules(treatment, KERNEL)

    def of(self, texts: pa.StringArray) -> pa.Array[Any]:
        """Return the texts of objects with only these members. Raises UnreadableRecord for one that is no object."""
        plain = pc.replace_substring(texts.cast(pa.binary()), b"\n", b" ")  # other programs may have written them on several lines
        lines: Any = pc.binary_join_element_wise(_HEAD, plain, _TAIL, b"")
        treated = self._rules.applied(b"".join(lines.to_pylist())).split(b"\n")[:-1]
        start, end = len(_HEAD), 1 - len(_TAIL)
        return pa.array([line[start:end] for line in treated], pa.binary()).cast(pa.string())
