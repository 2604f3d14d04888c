"""The same files as one batch to a running service: the same verdicts, and a server that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from files import FILES
from running import Running, wait_for_end

pytest.importorskip("torch")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.hostile

from gonogo.guest.stem import list_family  # noqa: E402
from gonogo.service.protocol import MOST_SOURCE  # noqa: E402

USUAL = {"dtypes": ["float32"], "seed": 0}


def test_batch(tmp_path: Path) -> None:
    with Running(tmp_path, "--timeout", "4", "--memory-gb", "1") as service:
        files = [file for file in FILES if not file.beside and len(file.source) <= MOST_SOURCE]
        ids = service.client.submit_batch(
            [
                {"source": file.source, "op": "softmax", "function": "softmax", "cases": file.cases, **USUAL}
                for file in files
            ]
        )
        wrong = {}
        for file, each in zip(files, ids, strict=True):
            entry = service.client.wait(each)
            verdict = entry["verdict"] or {"decision": "error" if entry["state"] == "refused" else entry["state"]}
            if verdict["decision"] != file.decision or file.outcome not in (None, *verdict.get("outcomes", ())):
                wrong[file.name] = (verdict["decision"], verdict.get("outcomes"), entry["error"])
        assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())
        health = service.client.check_health()
        assert (health["status"], health["queued"], health["running"]) == ("ok", 0, 0)
        family = list_family(service.process.pid)
        assert service.end() == 0
        assert all(map(wait_for_end, family))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "state.sqlite"]
