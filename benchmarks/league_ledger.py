"""What the processes of a league asked for and reported, and which answers they got: the ledger of `league_chaos.py`.

As `sitecustomize.py` on the path of all processes, it stands between `LeagueCaller` and the service. Each process
appends to a file of its own in the folder `LUDUS_LEDGER`, one JSON line a call, written before the call and after it:

    {"started": [["17", ["main", "random"]], …]}         matches that were handed out, with their players by side
    {"tried": [["17", [[1.0, -1.0], …]], …]}           results that are about to be reported
    {"counted": ["17", …], "refused": ["18", …]}       what the service answered
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any

_MODULE = "ludus.league.calls"


def _write(entry: dict[str, Any]) -> None:
    """By one call, so that no line is torn by a kill."""
    path = os.path.join(os.environ["LUDUS_LEDGER"], f"{os.getpid()}.jsonl")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(fd)


def _watch(module: ModuleType) -> None:
    caller: Any = module.LeagueCaller
    request_matches, request_evaluations, report_series = (
        caller.request_matches,
        caller.request_evaluations,
        caller.report_series,
    )

    def noted(matches: list[Any]) -> list[Any]:
        _write({"started": [[each["id"], [player["name"] for player in each["players"]]] for each in matches]})
        return matches

    def report(self: Any, results: list[Any]) -> list[bool]:
        _write({"tried": results})
        counted: list[bool] = report_series(self, results)
        answers = [(match, answer) for (match, _), answer in zip(results, counted, strict=True)]
        _write(
            {
                "counted": [match for match, is_counted in answers if is_counted],
                "refused": [match for match, is_counted in answers if not is_counted],
            }
        )
        return counted

    caller.request_matches = lambda self, *args: noted(request_matches(self, *args))
    caller.request_evaluations = lambda self, *args: noted(request_evaluations(self, *args))
    caller.report_series = report


class _Finder(importlib.abc.MetaPathFinder):
    """Changes the one module when it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            _watch(module)

        loader.exec_module = exec_module
        return spec


if "LUDUS_LEDGER" in os.environ:
    sys.meta_path.insert(0, _Finder())
