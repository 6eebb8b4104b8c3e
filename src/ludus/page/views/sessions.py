"""The sessions of games that are live, and the steps of one of them as they come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import htpy as h
from htpy import Node

from ludus.page import parts
from ludus.page.frame import note
from ludus.page.metric_series import MetricFiles
from ludus.page.running import RunningTrials, Sessions
from ludus.page.spell import spell_age
from ludus.page.trials import is_running
from ludus.page.view import View, Visit

__all__ = ["VIEW"]

_GATEWAYS = "gateway"
_NUMBERS = (("steps/s", "steps_per_second", 1.0, ""), ("step, median", "step_s/p50", 1e3, " ms"),
            ("step, 99 %", "step_s/p99", 1e3, " ms"))  # fmt: skip


def build(visit: Visit) -> Node:
    """`query`: `session` and the `worker` that has it, for the steps of one."""
    if "session" in visit.query:
        return _session(visit, visit.query.get("worker", ""), visit.query["session"])
    if not is_running(visit.folder):
        return note("Nobody drives this trial now, so it serves no sessions.")
    found = visit.site.part(RunningTrials).sessions(visit.folder)
    return [[note(problem, kind="warning") for problem in found.problems], _live(visit, found)]


def _live(visit: Visit, found: Sessions) -> Node:
    if not found.shares and not found.problems:
        return h.p(class_="quiet")["It runs, and serves no games: it has no gateway."]
    named = [
        (text, f"{scale * value:.4g}{unit}")
        for text, name, scale, unit in _NUMBERS
        if (value := _last(visit, f"gateway/{name}")) is not None
    ]
    return [
        parts.numbers([("sessions", f"{found.num:,}"), *named]),
        parts.table(
            ("Session", "Age", "Ticks", "Last step", "Silent for", "Plays", "State"),
            [_session_row(visit, each) for each in found.sessions],
            label="live sessions",
            numeric=(1, 2, 3, 4),
            wide=(4,),
            keys=[each["session"] for each in found.sessions],
        )
        if found.sessions
        else h.p(class_="quiet")["No session is live."],
        h.p(class_="quiet")[f"The newest {len(found.sessions)} are shown."]
        if found.num > len(found.sessions)
        else None,
    ]


def _last(visit: Visit, name: str) -> float | None:
    """Of the last line of metrics that has it, by whichever axis."""
    return visit.site.part(MetricFiles).use(
        visit.folder, lambda metrics: metrics.last(name, "seconds") or metrics.last(name)
    )


def _session_row(visit: Visit, each: Mapping[str, Any]) -> tuple[Node, ...]:
    url = visit.url(session=each["session"], worker=each["worker"])
    return (
        h.a(href=url)[each["session"]],
        spell_age(each["age_s"]),
        f"{each['step']:,}",
        _milliseconds(each["last_s"]),
        spell_age(each["idle_s"]),
        _spell_versions(each["versions"]),
        each["state"] + (f", {each['waiting']} steps wait" if each["waiting"] else ""),
    )


def _session(visit: Visit, worker: str, session: str) -> Node:
    """The steps of one session as they come."""
    back = h.p[h.a(href=visit.url())["All sessions"]]
    found = visit.site.part(RunningTrials).steps(visit.folder, worker, session)
    if found is None:
        return [h.h2[f"Session {session}"], note("It is not live: it has ended, or never began here."), back]
    return [
        h.h2[f"Session {session}"],
        parts.numbers(
            [
                ("age", spell_age(found["age_s"])),
                ("ticks", f"{found['step']:,}"),
                ("last step", _milliseconds(found["last_s"])),
                ("plays", _spell_versions(found["versions"])),
                ("state", found["state"]),
            ]
        ),
        _steps(found["steps"]),
        h.p(class_="quiet", data_soon="0.5")[
            "Its last steps since somebody looks at it, the newest first. Recordings (serve --record) have all of them."
        ],
        back,
    ]


def _steps(steps: list[dict[str, Any]]) -> Node:
    if not steps:
        return h.p(class_="quiet")["No step has come yet since somebody looks."]
    rows = [
        (
            f"{each['kind']} {each['step']}",
            f"{time.strftime('%H:%M:%S', time.localtime(each['time']))}.{int(each['time'] % 1 * 10)}",
            _milliseconds(each["seconds"]),
            h.code[each["request"]],
            h.code(class_="failed" if each["is_failed"] else None)[each["answer"]],
            _spell_versions(each["versions"]),
        )
        for each in steps
    ]
    return parts.table(
        ("Step", "At", "Took", "Request", "Answer", "Played"), rows, label="steps", numeric=(1, 2), wide=(1,)
    )


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{1000 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _spell_versions(versions: Mapping[str, int]) -> str:
    if not versions:
        return "no model"
    if len(versions) == 1:
        return f"version {next(iter(versions.values()))}"
    return ", ".join(f"{model} {number}" for model, number in versions.items())


def applies(folder: Path) -> bool:
    return (folder / _GATEWAYS).is_dir()


VIEW = View(name="sessions", title="Sessions", applies=applies, build=build)
