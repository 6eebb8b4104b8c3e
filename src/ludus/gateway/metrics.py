"""The gateway's metrics in Prometheus' text format, of all workers of a port."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["BUCKETS_S", "StepMetrics", "render"]

BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

_HELP = {
    "ludus_steps_total": ("counter", "Requests to /step, by kind and by problem (ok: none)."),
    "ludus_step_seconds": ("histogram", "From a request's first byte to its answer."),
    "ludus_sessions": ("gauge", "Sessions that are live."),
    "ludus_sessions_started_total": ("counter", "Sessions that began."),
    "ludus_sessions_ended_total": ("counter", "Sessions that ended, by reason."),
    "ludus_actor_steps_total": ("counter", "Steps that actors ran."),
    "ludus_repeats_total": ("counter", "Steps that were answered again without running the actor."),
    "ludus_fallbacks_total": ("counter", "Ticks that missed their deadline and were answered by a fallback."),
    "ludus_unwritten_total": ("counter", "Steps, starts and ends that could not be recorded or journalled at once."),
    "ludus_steps_waiting": ("gauge", "Steps that are under way or wait for their turn."),
    "ludus_forwarded_total": ("counter", "Steps that were passed on to the worker of their session."),
    "ludus_connections": ("gauge", "Connections that are open."),
    "ludus_buffered_bytes": ("gauge", "Bytes of unanswered requests that came in several parts, or wait."),
    "ludus_received_bytes_total": ("counter", "Bytes read from connections."),
    "ludus_sent_bytes_total": ("counter", "Bytes written to connections."),
}


class StepMetrics:
    """Counts of steps by kind and code, and how long they took."""

    def __init__(self) -> None:
        self._answered: dict[str, int] = {}  # by kind
        self._problems: Counter[tuple[str, str]] = Counter()  # by kind and code
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0

    def add(self, kind: str, code: str, seconds: float) -> None:
        if code:
            self._problems[kind, code] += 1
        else:
            self._answered[kind] = self._answered.get(kind, 0) + 1
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds

    def to_json(self) -> dict[str, Any]:
        """From any thread: copies are made in one go, and then read."""
        return {
            "counts": [
                *([kind, "", count] for kind, count in dict(self._answered).items()),
                *([kind, code, count] for (kind, code), count in dict(self._problems).items()),
            ],
            "buckets": list(self.buckets),
            "total_s": self.total_s,
        }


def render(workers: Mapping[int, Mapping[str, Any]]) -> str:
    """The stats of each worker (`Gateway.stats`), as one page."""
    lines: list[str] = []

    def metric(name: str, samples: Iterable[tuple[dict[str, Any], float]], suffix: str = "") -> None:
        for labels, value in samples:
            inner = ",".join(f'{key}="{_escape(str(label))}"' for key, label in labels.items())
            lines.append(
                f"{name}{suffix}{{{inner}}} {value:g}"
                if value != int(value)
                else f"{name}{suffix}{{{inner}}} {int(value)}"
            )

    def head(name: str) -> None:
        kind, text = _HELP[name]
        lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}"))

    def each(name: str, key: str) -> None:
        head(name)
        metric(name, [({"worker": index}, stats[key]) for index, stats in workers.items()])

    head("ludus_steps_total")
    for index, stats in workers.items():
        counts = stats["steps"]["counts"]
        metric(
            "ludus_steps_total",
            [({"worker": index, "kind": kind, "code": code or "ok"}, count) for kind, code, count in counts],
        )
    head("ludus_step_seconds")
    for index, stats in workers.items():
        total = 0
        for bound, count in zip([*BUCKETS_S, "+Inf"], stats["steps"]["buckets"], strict=True):
            total += count
            metric("ludus_step_seconds", [({"worker": index, "le": bound}, total)], "_bucket")
        metric("ludus_step_seconds", [({"worker": index}, stats["steps"]["total_s"])], "_sum")
        metric("ludus_step_seconds", [({"worker": index}, total)], "_count")
    each("ludus_sessions", "num_sessions")
    each("ludus_sessions_started_total", "num_started")
    head("ludus_sessions_ended_total")
    for index, stats in workers.items():
        metric(
            "ludus_sessions_ended_total",
            [({"worker": index, "reason": reason}, count) for reason, count in stats["ended"].items()],
        )
    each("ludus_actor_steps_total", "num_steps")
    each("ludus_repeats_total", "num_repeats")
    each("ludus_fallbacks_total", "num_fallbacks")
    each("ludus_unwritten_total", "num_unwritten")
    each("ludus_steps_waiting", "num_waiting")
    each("ludus_forwarded_total", "num_forwarded")
    each("ludus_connections", "num_connections")
    each("ludus_buffered_bytes", "buffered_bytes")
    each("ludus_received_bytes_total", "bytes_in")
    each("ludus_sent_bytes_total", "bytes_out")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
