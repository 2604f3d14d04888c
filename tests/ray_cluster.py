"""A Ray cluster of several nodes on this machine, in one process of its own; tests start nodes and lose them.

Ray stays out of the process that runs the tests: it changes signals and leaves threads behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OWN = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # only loopback
    "RAY_USAGE_STATS_ENABLED": "0",
    "GONOGO_COMMIT": "tested",  # the same on all nodes, whoever commits meanwhile
}
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
"""How soon a node is missed."""


class Cluster:
    """Seen from tests; nodes have a CPU each, the one that drivers connect to has none."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = str(self._ask("address"))
        self.roots: dict[int, str] = {}
        """The process that all others of a node are below → the node's name."""

    def _ask(self, *words: object) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def add(self, name: str, kind: str) -> None:
        """Start a node."""
        root = self._ask("add", name, kind)
        assert isinstance(root, int)
        self.roots[root] = name

    def kill(self, name: str) -> None:
        """End a node as a machine does that goes down; back when it is missed."""
        self._ask("kill", name)

    def behead(self) -> None:
        """End the process that knows of all nodes; the cluster is of no use afterwards."""
        self._ask("behead")


@contextmanager
def start_cluster(environment: dict[str, str]) -> Iterator[Cluster]:
    """A cluster whose nodes have an environment of their own beside this one; gone afterwards."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ray-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, env=os.environ | OWN | {"RAY_TMPDIR": folder} | environment,
        )  # fmt: skip
        with process:  # its input ends, and with that the cluster
            yield Cluster(process)


def serve(answers: int) -> None:
    """In the process of the cluster, until nobody asks any more."""
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 2**27}
    cluster = Cluster(initialize_head=True, head_node_args=options | {"_system_config": QUICK})
    nodes = {}
    for line in sys.stdin:
        verb, *words = json.loads(line)
        answer: object = cluster.address
        if verb == "add":
            resources = {f"gonogo_kind:{words[1]}": 1}
            node = nodes[words[0]] = cluster.add_node(num_cpus=1, object_store_memory=2**27, resources=resources)
            answer = node.all_processes["raylet"][0].process.pid
        elif verb == "kill":
            cluster.remove_node(nodes.pop(words[0]), allow_graceful=False)
            cluster.wait_for_nodes()
        elif verb == "behead":
            cluster.head_node.kill_gcs_server(check_alive=False)
        os.write(answers, json.dumps(answer).encode() + b"\n")
    cluster.shutdown()


def list_ancestors(process: int) -> list[int]:
    """The process that started one, the one that started that, and so on."""
    ancestors = []
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        ancestors.append(process)
    return ancestors


if __name__ == "__main__":
    said = os.dup(1)
    os.dup2(2, 1)  # what Ray prints is no answer
    serve(said)
