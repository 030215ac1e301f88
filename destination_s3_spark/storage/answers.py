"""A store's answers, as the client reads them: success without what S3 promises with it is none."""

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
"""A member, by output shape, that every S3 answers with and calls rely on."""


class UnreadableAnswer(HTTPClientError):
    """The request may have taken effect, but what came back is not of S3: cut off, or from a proxy or another server at the endpoint."""

    fmt = "the answer is not one of S3"


def require_s3_answers(session: botocore.session.Session) -> None:
    """Make clients of the session raise UnreadableAnswer for what botocore cannot parse, and for success without a promised member."""
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
