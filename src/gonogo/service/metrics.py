"""What a server has done, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gonogo.service.store import Store

WAITS_S = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


class Metrics:
    """Counters of one server, and the states of its store when they are asked for."""

    def __init__(self, store: Store) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        registry.register(_States(store))
        self.requests = Counter(
            "gonogo_requests", "HTTP requests", ["method", "route", "status"], registry=registry
        )
        self.verdicts = Counter("gonogo_verdicts", "Submissions by what became of them", ["end"], registry=registry)
        self.wait_s = Histogram(
            "gonogo_wait_seconds", "From acceptance to the start of judging", buckets=WAITS_S, registry=registry
        )
        self.judge_s = Histogram(
            "gonogo_judge_seconds", "Judging of one submission", buckets=WAITS_S, registry=registry
        )

    def write(self) -> bytes:
        """All of them, in Prometheus's text format."""
        return generate_latest(self.registry)


class _States(Collector):
    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("gonogo_submissions", "Submissions kept, by state", labels=["state"])
        for state, count in self._store.count().items():
            family.add_metric([state], count)
        yield family
