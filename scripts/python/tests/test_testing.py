"""The cluster that the package starts for tests of programs."""

from pathlib import Path

import pytest

from lockkeeper_client import Client
from lockkeeper_client.testing import Cluster

pytest_plugins = ["lockkeeper_client.testing.plugin"]


def test_the_fixture_is_a_cluster_of_three_nodes(lockkeeper_cluster: Cluster) -> None:
    """Each node of the fixture answers, and they share their locks."""
    assert len(lockkeeper_cluster.endpoints) == 3
    with lockkeeper_cluster.client() as lk, lk.lock("a") as hold:
        for endpoint in lockkeeper_cluster.endpoints:
            with Client(endpoint) as one:
                assert one.check("a", hold.token)


def test_two_clusters_run_at_the_same_time(lockkeeper_cluster: Cluster) -> None:
    """Clusters have ports of their own, and share nothing."""
    with Cluster(nodes=1) as other, other.client() as lk, lockkeeper_cluster.client() as first:
        with lk.lock("b", wait=0), first.lock("b", wait=0):
            pass


def test_a_program_that_is_no_lockkeeper_is_named(tmp_path: Path) -> None:
    """If the cluster does not start, the error contains what the program wrote."""
    program = tmp_path / "lockkeeper"
    program.write_text("#!/bin/sh\necho broken >&2\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="broken"):
        Cluster(binary=str(program))
