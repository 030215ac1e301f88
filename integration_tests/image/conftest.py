"""The image that `--connector-image` names, a container of it for each command, and a bucket for it to write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import docker
import pytest

from integration_tests.image.container import ImageConnector, Limits
from integration_tests.lake import ProcessLake


@pytest.fixture(scope="session")
def image(pytestconfig: pytest.Config) -> str:
    """The image's name; it must be there."""
    name: str = pytestconfig.getoption("--connector-image")
    docker.from_env().images.get(name)
    return name


@pytest.fixture
def in_image(image: str, moto_lake: ProcessLake) -> Iterator[Callable[..., ImageConnector]]:
    """Makes a connector of the image that writes to `moto_lake`."""
    made: list[ImageConnector] = []

    def make(limits: Limits | None = None, environment: dict[str, str] | None = None, **options: object) -> ImageConnector:
        connector = ImageConnector(
            moto_lake.directory / f"image-{len(made)}",
            moto_lake.bucket,
            options,
            environment or {},
            image=image,
            limits=limits or Limits(),
        )
        made.append(connector)
        return connector

    yield make
    for connector in made:
        connector.remove()
