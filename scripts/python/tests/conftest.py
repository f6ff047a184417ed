"""Fixtures of all tests."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from nodes import Nodes

# A busy machine may stop the process within an example.
settings.register_profile("lockkeeper", deadline=None)
settings.load_profile("lockkeeper")


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Three node processes for all tests that leave the nodes as they are. Each test uses its own lock names."""
    with Nodes() as started:
        yield started


@pytest.fixture
def own_nodes() -> Iterator[Nodes]:
    """Three node processes for a test that kills or stops some."""
    with Nodes() as started:
        yield started
