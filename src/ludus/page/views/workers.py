"""The workers of a running trial: what each does, and buttons that pause, resume and restart it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import htpy as h
from htpy import Node

from ludus import errors
from ludus.command_line import trial_command
from ludus.page import parts
from ludus.page.frame import note
from ludus.page.running import COMMANDS, RunningTrials
from ludus.page.spell import spell_age
from ludus.page.trials import is_running
from ludus.page.view import View, Visit

__all__ = ["VIEW"]

_SILENT_S = 3.0
_STOPPED = ("done", "exited", "failed", "ended")


def build(visit: Visit) -> Node:
    running = visit.site.part(RunningTrials)
    if not is_running(visit.folder):
        return note(
            "Nobody drives this trial now, so it has no workers.",
            more=[" To go on with a training run: ", h.code[trial_command("resume", visit.folder)]],
        )
    workers = running.workers(visit.folder)
    if not workers:
        return note(
            "This trial has no workers: everything is in one process, which cannot be paused. Ctrl-C there stops it, "
            "and its checkpoint stays."
        )
    return [
        h.p(class_="quiet")[
            "Pause: it answers calls and does no work. Restart: it exits after what it is doing, and its driver "
            "starts it again; that uses up none of its restarts."
        ],
        parts.table(
            ("Worker", "Status", "", "Does", "Restarts", "Heartbeat", "Process", "Its last end"),
            [_row(visit, worker, known) for worker, known in workers.items()],
            label="workers",
            numeric=(4, 5, 6),
            wide=(6,),
            keys=list(workers),
        ),
        _notes(running, visit.folder),
    ]


def _row(visit: Visit, worker: str, known: Mapping[str, Any]) -> tuple[Node, ...]:
    status, phase = str(known["status"]), str(known["phase"])
    doing = status.removeprefix("busy: ") if status.startswith("busy: ") else ""
    shown = "busy" if doing else status
    silent_s = known.get("silent_s")
    return (
        worker,
        h.span(class_=f"badge {_kind(shown, phase)}")[shown],
        _buttons(visit, worker, status) if known.get("pid") and phase not in _STOPPED else "",
        doing if "pid" in known or phase in _STOPPED else "a thread of another process",
        str(known.get("restarts", "")),
        _heartbeat(silent_s) if phase == "running" and known.get("pid") else "",
        str(known["pid"]) if known.get("pid") else "",
        h.span(class_="quiet")[(str(known.get("last_end") or "").splitlines() or [""])[0][:200]],
    )


def _kind(status: str, phase: str) -> str:
    if phase == "failed":
        return "failed"
    if status in ("paused", "waiting", "not there"):
        return "stopped"
    return "ended" if phase in _STOPPED else "running"


def _heartbeat(silent_s: float | None) -> Node:
    if silent_s is None:
        return ""
    if silent_s < _SILENT_S:  # rounded, so that what is well stays the same
        return "now"
    return h.strong[f"{spell_age(silent_s)} ago"]


def _buttons(visit: Visit, worker: str, status: str) -> Node:
    def button(command: str) -> Node:
        return h.form(method="post", action=visit.do(command))[
            h.input(type="hidden", name="worker", value=worker),
            h.button(aria_label=f"{command} {worker}")[command.capitalize()],
        ]

    return h.div(class_="row buttons")[button("resume" if status == "paused" else "pause"), button("restart")]


def _notes(running: RunningTrials, folder: Path) -> Node:
    notes = running.notes(folder)
    if not notes:
        return None
    return [
        h.h2["Commands given here"],
        h.ul(role="status")[
            (
                h.li(class_="failed" if each.is_failed else None)[
                    f"{each.command} {each.worker}: {each.outcome}",
                    h.span(class_="quiet")[f" ({spell_age(10 * (age_s // 10)) if age_s >= 10 else 'just now'})"],
                ]
                for age_s, each in notes
            )
        ],
    ]


def _act(command: str) -> Any:
    def act(visit: Visit, fields: Mapping[str, str]) -> None:
        worker = fields.get("worker", "")
        if worker not in visit.site.part(RunningTrials).workers(visit.folder):
            raise errors.ConfigError(f"There is no worker {worker!r} in this trial any more. Nothing was done.")
        visit.site.part(RunningTrials).command(visit.folder, command, [worker])

    return act


def applies(folder: Path) -> bool:
    return (folder / "trial.json").is_file()


VIEW = View(
    name="workers",
    title="Workers",
    applies=applies,
    build=build,
    actions={command: _act(command) for command in COMMANDS},
)
