"""The page of `report` in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.browser import Opened, chromium, misplaced, open_page
from unit_tests.cli.report.synced_page import write_page
from unit_tests.lake import memory_s3
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_client import SERVER

memory_s3.install()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chromium()
    return write_page(Lake(SERVER.create(), tmp_path_factory.mktemp("report")))


@pytest.fixture(scope="module")
def opened(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return open_page(page, tmp_path_factory.mktemp("browser"))


def test_the_browser_tells_of_errors_requests_and_what_is_too_wide(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<script>console.error("wrong")</script><img src="http://127.0.0.1:9/x"><p style="width:500px">wide</p></body>')

    opened = open_page(page, tmp_path)

    assert "wrong" in opened.console[0]
    assert "http://127.0.0.1:9/x" in opened.requests
    assert misplaced(page, 360, tmp_path) == ["the page is wider than the screen"]


def test_the_page_opens_without_an_error_or_a_request(opened: Opened) -> None:
    assert (opened.console, opened.requests) == ([], [])


def test_names_of_sources_are_text(opened: Opened) -> None:
    document = opened.document

    assert "<script" not in document
    assert "<img" not in document
    assert "&lt;img src=https://127.0.0.1:9/x onerror=alert(1)&gt;" in document
    assert '"&gt;&lt;script&gt;' in document


@pytest.mark.parametrize("width", [360, 1280])
def test_labels_and_tables_fit_on_a_phone_and_a_desktop(page: Path, width: int, tmp_path: Path) -> None:
    assert misplaced(page, width, tmp_path) == []
