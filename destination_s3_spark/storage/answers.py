"""Validation of a store's responses: a success without the members that S3 guarantees is a failure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import botocore.session
from botocore.exceptions import HTTPClientError
from botocore.parsers import ResponseParser, ResponseParserError, ResponseParserFactory

PROMISED: Mapping[str, str] = MappingProxyType(
    {
        "CreateMultipartUploadOutput": "UploadId",
        "HeadObjectOutput": "ContentLength",
        "ListMultipartUploadsOutput": "IsTruncated",
        "ListObjectsV2Output": "IsTruncated",
        "PutObjectOutput": "ETag",
        "UploadPartCopyOutput": "CopyPartResult",
        "UploadPartOutput": "ETag",
    }
)
"""For each output shape, a member that every S3 returns and callers rely on."""


class UnreadableAnswer(HTTPClientError):
    """The request may have taken effect, but the response is not S3's: truncated, or from a proxy or another server at the endpoint."""

    fmt = "the answer is not one of S3"


def require_s3_answers(session: botocore.session.Session) -> None:
    """Make clients of the session raise UnreadableAnswer for unparsable responses and for a success without a guaranteed member."""
    session.register_component("response_parser_factory", _Factory())


class _Factory(ResponseParserFactory):
    def create_parser(self, protocol_name: str) -> Any:
        return _Parser(super().create_parser(protocol_name))


class _Parser:
    def __init__(self, parser: ResponseParser) -> None:
        self._parser = parser

    def parse(self, response: dict[str, Any], shape: Any) -> Any:
        try:
            answer = self._parser.parse(response, shape)
        except ResponseParserError:
            raise UnreadableAnswer from None
        promised = PROMISED.get(shape.name) if shape is not None and response["status_code"] < 300 else None
        if promised is not None and answer.get(promised) in (None, "", {}):
            raise UnreadableAnswer
        return answer
