from __future__ import annotations

import sys
from unittest.mock import patch

import pytest

from demo.__main__ import main
from unit_tests.cases import each


@each("records", ["0", "-5", "many"])
def test_a_number_of_records_that_is_none_is_refused(records: str, capsys: pytest.CaptureFixture[str]) -> None:
    with patch.object(sys, "argv", ["demo", "--records", records]), pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert "--records" in capsys.readouterr().err
