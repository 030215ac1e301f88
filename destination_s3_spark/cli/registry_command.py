"""Commands that make files for the platform: `registry` and `catalog`.

`registry` makes the connector's entry in a connector registry, and copies of a registry that have it. `catalog` makes a configured catalog
from what a source discovers.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import orjson

from destination_s3_spark.cli import presentable
from destination_s3_spark.cli.configuration import read_input
from destination_s3_spark.cli.terminal import write_json
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import DestinationSyncMode
from destination_s3_spark.protocol.discovered import configured_catalog, discovered_streams
from destination_s3_spark.wording import LINE_END, counted

_PACKAGE = Path(__file__).parents[1]
_NOT_IN_ENTRIES = {"definitionId", "connectorType", "connectorSubtype", "registryOverrides"}
"""Fields of metadata.yaml that say where an entry belongs, or that have another name there."""
_VERSION = re.compile(r"dev.*|\d+\.\d+\.\d+(-.+)?")
"""Tags that Airbyte reads as a version. It leaves out an entry with any other."""


class _Definition(msgspec.Struct, rename="camel"):
    destination_definition_id: str
    docker_image_tag: str = ""


def run(base: str | None, image: str | None) -> int:
    """Print the entry, or a copy of the registry `base` with it, and on stderr what changed there. Raises ConfigError."""
    entry = registry_entry(image)
    if base is None:
        write_json(entry)
        return 0
    members, destinations = _parse_registry(read_input(base, "registry"), base)
    definitions = _definitions(destinations, base)
    known = [place for place, one in enumerate(definitions) if one.destination_definition_id.lower() == entry["destinationDefinitionId"]]
    copied: list[Any] = [_unchanged(raw) for place, raw in enumerate(destinations) if place not in known]
    copied.insert(known[0] if known else len(copied), entry)
    write_json({**{name: _unchanged(raw) for name, raw in members.items()}, "destinations": copied})
    sys.stdout.flush()
    replaced = ", ".join(definitions[place].docker_image_tag for place in known)  # of one, unless somebody edited the registry
    change = f"replaces {presentable(replaced, LINE_END)}" if replaced else "is new"
    registry = f"a registry of {counted(len(destinations), 'destination')}"
    sys.stderr.write(f"{entry['dockerRepository']}:{entry['dockerImageTag']} {change} in {registry}\n")
    return 0


def registry_entry(image: str | None = None) -> dict[str, Any]:
    """Return the connector's entry: its metadata and its specification, as Airbyte's registry shows them.

    Raises ConfigError for an image that Airbyte would not take.
    """
    data = json.loads((_PACKAGE / "metadata.json").read_bytes())["data"]
    overrides = {field: value for field, value in data["registryOverrides"]["oss"].items() if field != "enabled"}
    named = {} if image is None else _image(image)
    return {
        "destinationDefinitionId": data["definitionId"],
        **{field: value for field, value in data.items() if field not in _NOT_IN_ENTRIES},
        **overrides,
        **named,
        "spec": json.loads((_PACKAGE / "spec.json").read_bytes()),
        "public": True,
        "custom": False,
        "tombstone": False,
        "language": next(tag.removeprefix("language:") for tag in data["tags"] if tag.startswith("language:")),
        "packageInfo": {"cdk_version": f"python:{metadata.version('airbyte-cdk')}"},
    }


def _image(text: str) -> dict[str, str]:
    """Parse NAME:TAG. The name may begin with a host and its port."""
    name, separator, tag = text.rpartition(":")
    if not separator or not name or "/" in tag or "@" in name:
        raise ConfigError(f"--image takes a name and a tag, such as registry.example.com/destination-s3-spark:0.1.0, not {text}.")
    if not _VERSION.fullmatch(tag):
        raise ConfigError(f"--image {text}: Airbyte takes versions as tags, such as 0.1.0, 0.1.0-mine or dev; tag the image so.")
    return {"dockerRepository": name, "dockerImageTag": tag}


def _parse_registry(text: bytes, path: str) -> tuple[dict[str, msgspec.Raw], list[msgspec.Raw]]:
    """Return the members of a registry such as Airbyte's oss_registry.json, and its destinations. Raises ConfigError for anything else.

    What is not read stays as the bytes it came in.
    """
    if not text.strip():
        raise _no_registry(path, "it is empty, perhaps because the output is written over it")
    if not _is_utf8(text):  # what is not read is not looked at otherwise
        raise _no_registry(path, "it is not UTF-8")
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise _no_registry(path, "it is not a JSON object") from error
    lists: dict[str, list[msgspec.Raw]] = {}
    for name in ("destinations", "sources"):
        try:
            lists[name] = msgspec.json.decode(members[name], type=list[msgspec.Raw])
        except (KeyError, msgspec.ValidationError) as error:
            raise _no_registry(path, f"it has no list '{name}'") from error
    return members, lists["destinations"]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _definitions(destinations: Sequence[msgspec.Raw], path: str) -> list[_Definition]:
    found = []
    for number, raw in enumerate(destinations, start=1):
        try:
            found.append(msgspec.json.decode(raw, type=_Definition))
        except msgspec.ValidationError as error:
            raise _no_registry(path, f"destination number {number} has no destinationDefinitionId") from error
    return found


def _no_registry(path: str, problem: str) -> ConfigError:
    return ConfigError(f"{path} is no connector registry: {problem}. Pass a copy of Airbyte's oss_registry.json with --base.")


def _unchanged(raw: msgspec.Raw) -> orjson.Fragment:
    return orjson.Fragment(bytes(raw))


def print_catalog(discovered: str, select: tuple[str, ...], sync_mode: str | None, destination_sync_mode: str | None) -> int:
    """Print the configured catalog, and on stderr how each stream is synced. Raises ConfigError when there is no catalog or stream."""
    mode = None if destination_sync_mode is None else DestinationSyncMode(destination_sync_mode)
    catalog = configured_catalog(discovered_streams(read_input(discovered, "catalog")), select, sync_mode, mode)
    write_json(catalog)
    sys.stdout.flush()
    for entry in catalog["streams"]:
        key = ", ".join(".".join(path) for path in entry["primary_key"]) or "none"
        cursor = ".".join(entry["cursor_field"]) or "none"
        modes = f"{entry['sync_mode']}, {entry['destination_sync_mode']}"
        described = f"{entry['stream']['name']}: {modes}, key {key}, cursor {cursor}"
        sys.stderr.write(f"{presentable(described, LINE_END)}\n")
    sys.stderr.write(f"{counted(len(catalog['streams']), 'stream')}\n")
    return 0
