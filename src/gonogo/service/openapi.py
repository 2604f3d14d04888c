"""The protocol as an OpenAPI document, and as a page that people read."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from gonogo._version import __version__
from gonogo.service.protocol import FIELDS, MOST_BATCH, PROTOCOL, STATES

_STATUSES = {
    "200": "known before, and judged already",
    "202": "on the disk, and on its way",
    "400": "the body is no submission",
    "401": "no token, or a wrong one",
    "404": "there is none",
    "408": "the body did not come in time",
    "413": "the body is too large",
    "422": "it names what this server does not have: an op, a contract, a dtype",
    "429": "the queue is full; Retry-After says when to come back",
    "503": "the disk takes no more; nothing was accepted",
}


def make_schemas() -> dict[str, Any]:
    """The objects of the protocol, in JSON Schema."""
    number = {"type": ["number", "null"], "description": "Seconds since 1970."}
    text = {"type": "string"}
    return {
        "Submission": {
            "type": "object", "additionalProperties": False,
            "required": [name for name, field in FIELDS.items() if field.required],
            "properties": {name: field.to_schema() for name, field in FIELDS.items()},
        },
        "Batch": {
            "type": "object", "additionalProperties": False, "required": ["submissions"],
            "properties": {"submissions": {
                "type": "array", "items": {"$ref": "#/components/schemas/Submission"},
                "minItems": 1, "maxItems": MOST_BATCH,
            }},
        },
        "Entry": {
            "type": "object",
            "required": ["protocol", "id", "state", "op", "accepted", "started", "finished", "verdict", "error"],
            "properties": {
                "protocol": {"const": PROTOCOL}, "id": text, "op": text, "state": {"enum": list(STATES)},
                "accepted": number, "started": number, "finished": number,
                "before": {"type": "integer", "description": "Submissions that are judged before it."},
                "verdict": {
                    "type": ["object", "null"],
                    "description": "Once done, what gonogo check --json prints: decision, cases, their stats.",
                },
                "error": {"anyOf": [{"$ref": "#/components/schemas/Error"}, {"type": "null"}]},
            },
        },
        "Error": {
            "type": "object", "required": ["kind", "message"], "properties": {"kind": text, "message": text},
        },
    }  # fmt: skip


def make_openapi() -> dict[str, Any]:
    """The document, of OpenAPI 3.1."""
    one, many = {"$ref": "#/components/schemas/Entry"}, {"type": "object"}
    each = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    wait = [{
        "name": "wait", "in": "query", "schema": {"type": "number", "minimum": 0, "maximum": 60},
        "description": "Seconds to wait for its end before it is told as it is.",
    }]  # fmt: skip

    def say(
        summary: str, returns: Any, statuses: str, body: str = "", parameters: Sequence[Any] = ()
    ) -> dict[str, Any]:
        responses = {
            status: {
                "description": _STATUSES.get(status, "fine"),
                "content": {"application/json": {"schema": returns if status < "3" else _error()}},
            }
            for status in statuses.split()
        }
        required = {"required": True, "content": {"application/json": {"schema": _refer(body)}}}
        return {"summary": summary, "parameters": list(parameters), "responses": responses} | (
            {"requestBody": required} if body else {}
        )

    paths = {
        "/v1/submissions": {
            "post": say("Submit a kernel", one, "200 202 400 401 408 413 422 429 503", "Submission"),
        },
        "/v1/submissions/{id}": {
            "get": say("How it stands; its verdict once it is done", one, "200 401 404", parameters=each + wait),
            "delete": say("Cancel it", one, "200 401 404", parameters=each),
        },
        "/v1/batches": {"post": say("Submit many, all or none", many, "202 400 401 408 413 422 429 503", "Batch")},
        "/v1/batches/{id}": {"get": say("How they stand", many, "200 401 404", parameters=each)},
        "/v1/ops": {"get": say("Ops that kernels can be judged as", many, "200 401")},
        "/health": {"get": say("Whether it judges; needs no token", many, "200")},
        "/metrics": {"get": say("For Prometheus", {"type": "string"}, "200 401")},
    }
    return {
        "openapi": "3.1.0", "info": {"title": "gonogo serve", "version": f"{PROTOCOL}", "summary": __version__},
        "paths": paths, "security": [{"token": []}],
        "components": {
            "schemas": make_schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip


def _refer(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _error() -> dict[str, Any]:
    return {"type": "object", "properties": {"error": _refer("Error")}}


def make_page() -> str:
    """The document for people: no scripts, nothing from elsewhere."""
    document = make_openapi()
    rows = [
        f"<tr><td><code>{method.upper()} {escape(path)}</code></td><td>{escape(what['summary'])}</td>"
        f"<td>{' '.join(what['responses'])}</td></tr>"
        for path, methods in document["paths"].items()
        for method, what in methods.items()
    ]
    fields = [
        f"<tr><td><code>{name}</code></td><td>{field.kind}{'' if field.required else ', optional'}</td>"
        f"<td>{escape(field.about)}</td></tr>"
        for name, field in FIELDS.items()
    ]
    statuses = [f"<tr><td>{status}</td><td>{escape(why)}</td></tr>" for status, why in _STATUSES.items()]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>gonogo serve</title>'
        "<style>body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "td{padding:.2rem 1rem .2rem 0;vertical-align:top}</style>"
        f"<h1>gonogo serve</h1><p>Protocol {PROTOCOL}, gonogo {__version__}. For programs: "
        '<a href="/openapi.json">openapi.json</a>.</p>'
        f"<table>{''.join(rows)}</table><h2>A submission</h2><table>{''.join(fields)}</table>"
        f"<h2>Statuses</h2><table>{''.join(statuses)}</table></html>"
    )
