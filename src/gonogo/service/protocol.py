"""The body of a request → a submission, checked field by field; the same table makes the published schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, NoReturn

from gonogo import client
from gonogo.cases import SEEDS
from gonogo.errors import InputError

PROTOCOL = 1
"""Raised with every change that a client of the one before would not understand."""
MOST_SOURCE = 2**20
"""Characters of a kernel's file."""
MOST_BATCH = 1000
STATES = ("queued", "running", "done", "refused", "failed", "cancelled")
ENDED = client.ENDED
"""States that do not change by themselves. `refused` is the submission's own fault, `failed` the service's."""


@dataclass(frozen=True)
class Field:
    """One field of a submission."""

    about: str
    kind: str
    """Its type in JSON."""
    least: float | None = None
    most: float | None = None
    """Of a number its size, of a text its length, of a list its items."""
    required: bool = False

    def to_schema(self) -> dict[str, Any]:
        """The field in JSON Schema."""
        sizes = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}
        least, most = sizes.get(self.kind, ("minimum", "maximum"))
        schema: dict[str, Any] = {
            "type": self.kind if self.required else [self.kind, "null"], "description": self.about,
        }  # fmt: skip
        schema |= {"items": {"type": "string", "maxLength": 100}} if self.kind == "array" else {}
        schema |= {} if self.least is None else {least: self.least}
        return schema | ({} if self.most is None else {most: self.most})


FIELDS = {
    "source": Field("Text of the kernel's file.", "string", 1, MOST_SOURCE, required=True),
    "op": Field("The op that it implements: one of GET /v1/ops.", "string", 1, 200, required=True),
    "function": Field("By default the only public one of the file, or that named like the op.", "string", 1, 200),
    "contract": Field("What it promises: float32, float16, bfloat16, tf32, fast-math, atomics …", "string", 1, 200),
    "dtypes": Field("Only these; by default all that the op takes.", "array", 1, 20),
    "cases": Field("Per dtype; 24 by default.", "integer", 1, 1000),
    "seed": Field("Of the cases; by default a fresh one, which the verdict tells.", "integer", 0, SEEDS - 1),
    "strict": Field("No-go for a suspect case, too, instead of running it again.", "boolean"),
    "timeout_s": Field("Seconds per case, up to what the server allows.", "number", 0.01, 3600),
    "memory_gb": Field("Memory of the kernel's processes, up to what the server allows.", "number", 0.25, 1024),
}
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
}  # fmt: skip


@dataclass(frozen=True)
class Submission:
    """A kernel to judge, and by what."""

    source: str
    op: str
    function: str | None = None
    contract: str | None = None
    dtypes: tuple[str, ...] | None = None
    cases: int | None = None
    seed: int | None = None
    strict: bool | None = None
    timeout_s: float | None = None
    memory_gb: float | None = None

    def to_json(self) -> str:
        """As text that equal submissions share."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    def find_id(self, setting: str) -> str:
        """The hash of all that its verdict depends on; `setting` is the server's own share of it."""
        return sha256(f"{PROTOCOL}\n{setting}\n{self.to_json()}".encode()).hexdigest()[:40]


def read_json(body: bytes) -> Any:
    """The value of a strict JSON text, of whatever depth; InputError where it is none."""
    try:
        return json.loads(body.decode(), parse_constant=_refuse_constant)
    except RecursionError:
        raise InputError("the body is nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are among them
        raise InputError(f"the body is no JSON: {str(error)[:200]}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def read_submission(value: Any, where: str = "the body") -> Submission:
    """A submission; InputError names the field that is wrong."""
    if not isinstance(value, dict):
        raise InputError(f"{where} is no JSON object; a submission is one, with source and op")
    unknown = [name for name in value if name not in FIELDS]
    if unknown:
        raise InputError(f"{where}: unknown field {unknown[0][:100]!r}; known: {', '.join(FIELDS)}")
    return Submission(**{name: _read_field(name, field, value, where) for name, field in FIELDS.items()})


def _read_field(name: str, field: Field, value: Mapping[str, Any], where: str) -> Any:
    content = value.get(name)
    if content is None:
        if field.required:
            raise InputError(f"{where}: {name} is missing")
        return None
    if type(content) not in _KINDS[field.kind]:
        raise InputError(f"{where}: {name} is {type(content).__name__}, and must be {field.kind}")
    if field.kind == "array":
        if not all(type(word) is str and len(word) <= 100 for word in content):
            raise InputError(f"{where}: {name} must be a list of words")
        content = tuple(content)
    size: Any = len(content) if field.kind in ("string", "array") else content
    if (field.least is not None and not size >= field.least) or (field.most is not None and size > field.most):
        unit = {"string": " characters", "array": " items"}.get(field.kind, "")
        raise InputError(f"{where}: {name} has {size:,}{unit}; {field.least:,} to {field.most:,} are allowed")
    if not _is_text(content):
        raise InputError(f"{where}: {name} has a lone surrogate, which is no character")
    return float(size) if field.kind == "number" else content


def _is_text(content: Any) -> bool:
    """Whether all texts in it can be written as UTF-8."""
    texts = content if isinstance(content, tuple) else (content,)
    try:
        return all(text.encode() is not None for text in texts if isinstance(text, str))
    except UnicodeEncodeError:
        return False


def read_batch(value: Any) -> list[Submission]:
    """The submissions of a batch."""
    listed = value.get("submissions") if isinstance(value, dict) else None
    if not isinstance(listed, list) or not listed or len(value) != 1:
        raise InputError('a batch is {"submissions": […]}, with at least one')
    if len(listed) > MOST_BATCH:
        raise InputError(f"a batch of {len(listed):,}; {MOST_BATCH:,} are allowed")
    return [read_submission(each, f"submissions[{at}]") for at, each in enumerate(listed)]
