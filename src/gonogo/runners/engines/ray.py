"""A Ray cluster, as an engine: one that is there already, or one of this machine, started for the campaign.

A node is of the kind that its resource `gonogo_kind:NAME` names, else of that of its GPUs as Ray names them.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gonogo.errors import BackendMissing, CampaignFailed, InputError
from gonogo.runners.engines import Order
from gonogo.runners.engines._ray_crew import ClusterLost, Node, RayCrew

ADDRESS = "RAY_ADDRESS"
"""Where Ray's own commands, and jobs submitted to a cluster, have its address from."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Read when Ray is imported: it tells nobody of its use, and prints nothing where gonogo prints what was found."""
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""By this, whatever its name says, a cluster is reached from its own machine alone; also read on import."""
TOKEN_MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""By which Ray knows who may use a cluster."""
STORE_BYTES = 2**27
"""For objects of a cluster of our own: what goes to and fro is small."""
KNOCK_S = 10.0
"""How long a head may take to answer."""
LOOK_S = 2.0
"""How long one that has answered before: a campaign stands still meanwhile."""
ABSENT_S = 20.0
"""A head that does not answer so long has lost its cluster; Ray would end this process after a minute, unsaid."""
TOLD_LENGTH = 300
"""Of what Ray says of a failure."""
KINDS = ("gonogo_kind:", "accelerator_type:")
"""What begins the name of a resource that names a node's kind; the first counts more."""


def open_engine(address: str | None = None) -> RayEngine:
    """The cluster at an address or RAY_ADDRESS; where neither is given, one on this machine alone."""
    address = address or os.environ.get(ADDRESS)
    for name, value in (QUIET | ({} if address else LOOPBACK | _make_token())).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise BackendMissing(str(error.name), "--engine ray", extra="ray") from None
    if ray.is_initialized():  # by whoever calls: it stays theirs
        return RayEngine(is_ours=False)
    if address is not None and "://" in address:
        raise InputError(
            f"address {address}: gonogo needs the address of a node, as in 10.0.0.1:6379, and to run on a machine "
            "of the cluster. From elsewhere: ray job submit -- gonogo run --engine ray"
        )
    return _start_own() if address is None else _connect(address)


def _make_token() -> dict[str, str]:
    """For this process alone: Ray would leave one in the home folder, and want it of clusters to come."""
    return {} if TOKEN_MODE in os.environ or TOKEN_PATH in os.environ else {TOKEN: secrets.token_hex(32)}


def _connect(address: str) -> RayEngine:
    import ray

    try:
        _knock(address)
    except (OSError, ValueError) as error:
        raise InputError(
            f"address {address}: nothing answers there: {_shorten(error)}. Start a cluster: ray start --head"
        ) from None
    try:
        with _keep_signals():
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise InputError(
            f"address {address}: Ray {ray.__version__} joins no cluster there: {_shorten(error)}. It must be of "
            f"the same version. If it wants a token, set {TOKEN_MODE}=token, and the token by {TOKEN} or in "
            "~/.ray/auth_token"
        ) from None
    return RayEngine(is_ours=True)


def _shorten(error: BaseException) -> str:
    """The beginning of what an error says: those of Ray go on for pages."""
    return " ".join(str(error).split())[:TOLD_LENGTH].rstrip(".")


def _knock(address: str, patience_s: float = KNOCK_S) -> None:
    """Raise where nobody listens: Ray would try again for minutes, and cannot be interrupted."""
    host, colon, port = address.rpartition(":")
    if colon:  # else it is "auto", which Ray looks up
        socket.create_connection((host.strip("[]"), int(port)), timeout=patience_s).close()


class Head:
    """The head of the cluster that this process is connected to, and whether it is still there."""

    def __init__(self) -> None:
        import ray

        self.address: str = ray.get_runtime_context().gcs_address
        self.absent_since: float | None = None

    def list_nodes(self, device: str) -> list[Node]:
        """Nodes that can be used; none while the head does not answer, and not for long."""
        began = time.monotonic()
        try:
            _knock(self.address, LOOK_S)
        except OSError:
            self.absent_since = self.absent_since or began
            if time.monotonic() - self.absent_since < ABSENT_S:
                return []
            raise ClusterLost(
                f"the Ray cluster at {self.address} is gone: nothing has answered there for {ABSENT_S:g} s"
            ) from None
        self.absent_since = None
        return list_nodes(device)


def _start_own() -> RayEngine:
    """Reached from this machine alone; its files are gone afterwards."""
    import ray

    # A short path, for there are sockets below it.
    folder = tempfile.mkdtemp(prefix="gonogo-", dir="/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else None)
    try:
        with _keep_signals():
            ray.init(
                address="local", _node_ip_address="127.0.0.1", _temp_dir=folder, include_dashboard=False,
                object_store_memory=STORE_BYTES, log_to_driver=False, logging_level=logging.CRITICAL,
            )  # fmt: skip
    except BaseException as error:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, ConnectionError | RuntimeError | OSError):
            why = _shorten(error)
            raise CampaignFailed(f"Ray does not start on this machine: {why}. Use --engine local") from None
        raise
    return RayEngine(is_ours=True, folder=folder)


@contextmanager
def _keep_signals() -> Iterator[None]:
    """Afterwards a signal means what it did: Ray has SIGTERM end a process without a word."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True, slots=True)
class RayEngine:
    """The cluster that this process is connected to."""

    is_ours: bool
    """Whether the connection ends with the engine."""
    folder: str | None = None
    """Files of a cluster that was started here."""
    head: Head = field(default_factory=Head)

    def find_device(self, name: str) -> str:
        """`auto` → cuda where a node has a GPU, else cpu; anything else is checked."""
        if name not in ("auto", "cpu", "cuda"):
            raise InputError(f"unknown device {name!r}; known: auto, cpu, cuda")
        has_gpu = bool(list_nodes("cuda"))
        if name == "cuda" and not has_gpu:
            raise InputError("device cuda: no node of the Ray cluster has a GPU. See: ray status")
        return "cuda" if has_gpu and name != "cpu" else "cpu"

    def list_kinds(self, device: str) -> tuple[str, ...]:
        """Of nodes that have such devices."""
        return tuple(sorted({node.kind for node in list_nodes(device)}))

    def hire(self, order: Order) -> RayCrew:
        """Workers on all nodes of a kind; refused where there are several and none is asked for."""
        kinds = self.list_kinds(order.device)
        if order.kind is None and len(kinds) > 1:
            raise InputError(
                f"the cluster has nodes of {len(kinds)} kinds, {' and '.join(kinds)}: a run is of one. "
                "Run the same cases on each by --per-device-kind"
            )
        if order.kind is not None and kinds and order.kind not in kinds:
            raise InputError(
                f"the cluster has no node of kind {order.kind}, which the run is of; it has {', '.join(kinds)}. "
                "Run on each kind by --per-device-kind"
            )
        kind = order.kind or next(iter(kinds), None)

        def list_own() -> list[Node]:
            return [node for node in self.head.list_nodes(order.device) if kind in (None, node.kind)]

        return RayCrew(order, list_own)

    def close(self) -> None:
        """Leave the cluster; end it if it was started here."""
        import ray

        if self.is_ours:
            ray.shutdown()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def list_nodes(device: str) -> list[Node]:
    """Nodes that are alive and have such a device."""
    import ray

    nodes = [_read_node(facts, device) for facts in ray.nodes() if facts["Alive"]]
    return [node for node in nodes if (node.gpus if device == "cuda" else node.cpus)]


def _read_node(facts: dict[str, Any], device: str) -> Node:
    resources: dict[str, float] = facts["Resources"]
    named = [name.removeprefix(kind) for kind in KINDS for name in sorted(resources) if name.startswith(kind)]
    return Node(
        id=facts["NodeID"],
        name=facts["NodeManagerHostname"] or facts["NodeManagerAddress"],
        kind=named[0] if named else device,
        is_named=bool(named),
        cpus=int(resources.get("CPU", 0)),
        gpus=int(resources.get("GPU", 0)),
    )
