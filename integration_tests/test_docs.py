"""Every snippet of README.md and docs/ works as it stands, in one bucket, or says why nothing runs it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from integration_tests.connector import PASSED_ON, SCRIPT, TIMEOUT_S
from integration_tests.documentation import OTHERS, PAGES, ROOT, RUNNABLE, Snippet, snippets
from unit_tests.cases import each
from unit_tests.lake.buckets import REGION, Bucket, S3Server
from unit_tests.lake.messages import EMITTED_AT_MS, catalog, line
from unit_tests.lake.shop import complete, record, state, stream

TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
EVERY = [snippet for page in PAGES for snippet in snippets(page)]
SHELL = [snippet for snippet in EVERY if snippet.is_run_here and snippet.language in {"bash", "console", "sh"}]
SQL = [snippet for snippet in EVERY if snippet.is_run_here and snippet.language == "sql"]
PYTHON_PAGES = sorted({snippet.page for snippet in EVERY if snippet.is_run_here and snippet.language == "python"})

LAKE, PATH = "lake", "airbyte"
"""Bucket and bucket path of the examples."""
INTEGER, TEXT = {"type": ["null", "integer"]}, {"type": ["null", "string"]}
TIME = {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}
COLUMNS: dict[str, dict[str, Any]] = {
    "orders": {"id": INTEGER, "note": TEXT, "status": TEXT},
    "events": {"id": INTEGER},
    "stores": {"id": INTEGER, "opens": TIME},
    "prices": {"id": INTEGER, "price": TEXT},
}
SOURCE = """#!{python}
import sys
from pathlib import Path
sys.stdout.write(Path("{directory}", sys.argv[1] + ".jsonl").read_text())
"""


def streams(columns: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    mode: dict[str, Any] = {"mode": "append_dedup", "primary_key": [["id"]], "cursor_field": ["id"]}
    return [stream(name, schema={"type": "object", "properties": fields}, **mode) for name, fields in columns.items()]


def messages(first: int, price: Any) -> list[bytes]:
    """Three records of each stream, with the first of these ids."""
    found = []
    for name in COLUMNS:
        for number in range(first, first + 3):
            more = {"orders": {"note": f"note {number}", "status": "new"}, "stores": {"opens": "08:30:00"}, "prices": {"price": price}}
            found.append(record({"id": number, **more.get(name, {})}, name, emitted_at=EMITTED_AT_MS + first))
        found += [state(first, name), complete(name)]
    return found


@pytest.fixture(scope="module")
def environment(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a reader of the examples has set: credentials, the endpoint, and a path with the command and a source on it."""
    programs = tmp_path_factory.mktemp("bin")
    return {
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        "PATH": os.pathsep.join([str(programs), str(SCRIPT.parent), os.environ["PATH"]]),
        "PROGRAMS": str(programs),
        "AWS_ENDPOINT_URL": moto.endpoint,
        "AWS_ACCESS_KEY_ID": moto.access_key,
        "AWS_SECRET_ACCESS_KEY": moto.secret_key,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.fixture(scope="module")
def workplace(moto: S3Server, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files of the examples, after two syncs. Prices were text at first."""
    moto.client().create_bucket(Bucket=LAKE)
    directory = tmp_path_factory.mktemp("docs")
    (directory / "config.json").write_text(
        json.dumps(
            {
                "s3_bucket_name": LAKE,
                "s3_bucket_path": PATH,
                "s3_bucket_region": REGION,
                "s3_endpoint": moto.endpoint,
                "access_key_id": moto.access_key,
                "secret_access_key": moto.secret_key,
                "format": {"format_type": "Parquet"},
                "publish": {"delta": True},
                "change_log": {"enabled": True},
                "spark": {"master": "local[1]"},
            }
        )
    )
    (directory / "source.json").write_text("{}")
    (directory / "oss_registry.json").write_text(json.dumps({"destinations": [], "sources": []}))
    first = catalog(*streams(COLUMNS))
    sync(directory, environment, first, messages(1, "9.99 EUR"))
    columns = {**COLUMNS, "prices": {"id": INTEGER, "price": INTEGER}}
    sync(directory, environment, catalog(*streams(columns)), messages(3, 10))
    for entry in (discovered := streams(columns)):
        entry["stream"].update(source_defined_primary_key=[["id"]], source_defined_cursor=True, default_cursor_field=["id"])
    source = Path(environment["PROGRAMS"]) / "some-source"
    source.write_text(SOURCE.format(python=sys.executable, directory=directory))
    source.chmod(0o755)
    catalogued = {"type": "CATALOG", "catalog": {"streams": [entry["stream"] for entry in discovered]}}
    (directory / "discover.jsonl").write_bytes(line(catalogued))
    (directory / "read.jsonl").write_bytes(b"".join(messages(40, 11)))
    return directory


def sync(directory: Path, environment: dict[str, str], configured: dict[str, Any], sent: list[bytes]) -> None:
    (directory / "catalog.json").write_text(json.dumps(configured))
    command = [str(SCRIPT), "write", "--config", "config.json", "--catalog", "catalog.json"]
    done = subprocess.run(
        command, input=b"".join(sent), cwd=directory, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:].decode()


@pytest.fixture(scope="module")
def copy(moto: S3Server, workplace: Path) -> Path:
    """The bucket's objects below a directory: neither DuckDB nor Spark has an S3 client of its own here."""
    bucket = Bucket(moto, LAKE)
    directory = workplace / "copy"
    for key in bucket.list_keys():
        file = directory / key
        file.parent.mkdir(parents=True, exist_ok=True)
        content = bucket.read(key)
        file.write_bytes(content.replace(f"s3://{LAKE}/".encode(), f"{directory}/".encode()) if key.endswith("/manifest") else content)
    return directory


@each("snippet", EVERY, ids=lambda snippet: snippet.place)
def test_every_snippet_is_run_or_says_why_not(snippet: Snippet) -> None:
    assert snippet.language in RUNNABLE | OTHERS, f"{snippet.place}: name the language of the snippet, or call it text"
    if snippet.test is not None:
        test = ROOT / snippet.test
        assert test.is_file(), f"{snippet.place}: there is no {snippet.test}"
        assert snippet.page.name in test.read_text(), f"{snippet.test} does not read {snippet.page.name}"


def test_the_index_has_every_page_and_the_readme_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {path for path, _ in targets(index)}

    assert {page.name for page in PAGES if page.parent != ROOT and page != index} - {path.name for path in linked} == set()
    assert index in {path for path, _ in targets(ROOT / "README.md")}


@each("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [f"{path}#{anchor}" for path, anchor in targets(page) if not path.exists() or (anchor and anchor not in anchors(path))] == []


@each("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text())

    assert [name for name in named if not (ROOT / name).exists() and not (ROOT / "destination_s3_spark" / name).exists()] == []


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_begins_with_a_paragraph_that_says_for_whom_it_is(page: Path) -> None:
    title, blank, first = page.read_text().splitlines()[:3]

    assert (title[:2], blank) == ("# ", "")
    assert re.match(r"For whoever |An Airbyte destination .* for ", first), first


@each("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda example: example.name)
def test_an_example_is_yaml_and_runs_the_connectors_image_and_commands(example: Path) -> None:
    text = example.read_text()
    repository = yaml.safe_load((ROOT / "metadata.yaml").read_text())["data"]["dockerRepository"]

    assert yaml.safe_load(text)
    assert set(re.findall(r"image: (\S*s3-spark\S*)", text)) == {f"{repository}:dev"}
    assert set(re.findall(r"destination(?:-s3-spark)? (\w+) --config", text)) <= {"write", "inspect", "merge"}


def targets(page: Path) -> list[tuple[Path, str]]:
    """The files that a page links, with the anchors."""
    found = [target.partition("#") for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if not re.match(r"[a-z]+:", target)]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in found]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("snippet", SHELL, ids=lambda snippet: snippet.place)
def test_the_shell_snippet_works(snippet: Snippet, workplace: Path, environment: dict[str, str]) -> None:
    command = ["bash", "-euo", "pipefail", "-c", snippet.commands]
    done = subprocess.run(command, cwd=workplace, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("snippet", SQL, ids=lambda snippet: snippet.place)
def test_the_sql_snippet_works_in_duckdb(snippet: Snippet, copy: Path, workplace: Path) -> None:
    # Making the secret needs DuckDB's extension for S3, which is downloaded.
    text = re.sub(r"CREATE SECRET .*?;\n", "", snippet.text).replace(f"s3://{LAKE}/", f"{copy}/")
    with duckdb.connect() as connection:
        for name in COLUMNS:
            files = f"{copy}/{PATH}/shop/{name}/*.parquet"
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}', union_by_name = true)")

        assert connection.execute(text).fetchall() != []


@pytest.fixture
def as_a_reader(workplace: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The process as one in which the examples are typed, with the change log of orders on standard input."""
    monkeypatch.chdir(workplace)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    command = [str(SCRIPT), "changes", "--config", "config.json", "--stream", "orders", "--namespace", "shop", "--latest-snapshot"]
    log = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    monkeypatch.setattr(sys, "stdin", io.StringIO(log))


@pytest.mark.usefixtures("as_a_reader")
@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_snippets_of_a_page_work_one_after_the_other(page: Path, copy: Path, spark_session: Any) -> None:
    names: dict[str, Any] = {"spark": spark_session}

    for snippet in snippets(page):
        if snippet.is_run_here and snippet.language == "python":
            exec(compile(snippet.text.replace(f"s3a://{LAKE}/", f"{copy}/"), snippet.place, "exec"), names)
