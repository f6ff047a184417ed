"""The pytest fixture `lockkeeper_cluster`. pytest finds it when the package is installed."""

from collections.abc import Iterator

import pytest

from . import Cluster


@pytest.fixture(scope="session")
def lockkeeper_cluster() -> Iterator[Cluster]:
    """A cluster for all tests of a run. Use other lock names, or another namespace, in each test."""
    with Cluster() as cluster:
        yield cluster
