from __future__ import annotations

import json
import logging
import sys

import pytest
from airbyte_cdk.models import ConnectorSpecificationSerializer

from destination_s3_spark.__main__ import main
from destination_s3_spark.destination import DestinationS3Spark


def test_spec_without_the_cdk_is_that_of_the_cdk(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["destination-s3-spark", "spec"])

    main()

    (line,) = capfd.readouterr().out.splitlines()
    of_the_cdk = ConnectorSpecificationSerializer.dump(DestinationS3Spark().spec(logging.getLogger("airbyte")))
    assert json.loads(line) == {"type": "SPEC", "spec": {name: value for name, value in of_the_cdk.items() if value is not None}}
