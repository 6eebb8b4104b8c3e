"""The gateway's paths as an OpenAPI document, for tools; docs/protocol.md is for people."""

from __future__ import annotations

from typing import Any

import ludus
from ludus.gateway.http.wire import PROBLEMS

__all__ = ["document"]

_ID = {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$"}
_HEADERS: dict[str, dict[str, Any]] = {
    "session": _ID,
    "game_id": _ID,
    "step_kind": {"type": "string", "enum": ["start", "tick", "end", "stop"]},
    "step": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    "run": _ID,
    "deadline_ms": {"type": "integer", "minimum": 1, "maximum": 600_000},
    "model": _ID,
    "version": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
    "key": {"type": "string"},  # these three are looked at only where there is a secret
    "time": {"type": "string"},
    "token": {"type": "string"},
}


def document() -> dict[str, Any]:
    """OpenAPI 3.0."""
    return {
        "openapi": "3.0.3",
        "info": {"title": "Ludus gateway", "version": ludus.__version__},
        "paths": {
            "/step": {"post": _step()},
            "/healthz": {"get": _get("text/plain", {"type": "string"}, "the process lives")},
            "/readyz": {"get": _get("text/plain", {"type": "string"}, "sessions can begin")},
            "/metrics": {"get": _get("text/plain", {"type": "string"}, "Prometheus' text format")},
            "/sessions": {"get": _get("application/json", _sessions(), "the sessions that are live")},
            "/openapi.json": {"get": _get("application/json", {"type": "object"}, "this document")},
        },
        "components": {"schemas": {"Problem": _problem()}},
    }


def _step() -> dict[str, Any]:
    binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {
        "summary": "one step of a session",
        "parameters": [{"name": name, "in": "header", "schema": schema} for name, schema in _HEADERS.items()],
        "requestBody": {"required": False, "content": binary},
        "responses": {"200": {"description": "the actor's bytes", "content": binary}, **_problems()},
    }


def _get(kind: str, schema: dict[str, Any], about: str) -> dict[str, Any]:
    return {
        "summary": about,
        "responses": {"200": {"description": about, "content": {kind: {"schema": schema}}}, **_problems()},
    }


def _problems() -> dict[str, Any]:
    statuses: dict[int, list[str]] = {}
    for code, (status, _title) in PROBLEMS.items():
        statuses.setdefault(status, []).append(code)
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {str(status): {"description": " or ".join(codes), "content": content} for status, codes in statuses.items()}


def _problem() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type", "code", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "code": {"type": "string", "enum": list(PROBLEMS)},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "expected": {"type": "integer"},
            "id": {"type": "string"},
        },
    }


def _sessions() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["num_sessions", "sessions"],
        "properties": {
            "num_sessions": {"type": "integer"},
            "sessions": {"type": "array", "items": {"type": "object", "required": ["session", "worker", "step"]}},
        },
    }
