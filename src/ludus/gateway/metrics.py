"""What the gateway counts: for Prometheus, of all workers of a port, and as metrics of the trial."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ludus.telemetry.counts import BUCKETS_S, Counts

__all__ = ["StepMetrics", "counts", "render"]

_STEPS = ("ludus_steps_total", "counter", "Requests to /step, by kind and by problem (ok: none).")
_SECONDS = ("ludus_step_seconds", "histogram", "From a request's first byte to its answer.")
_ENDED = ("ludus_sessions_ended_total", "counter", "Sessions that ended, by reason.")


class _Number(NamedTuple):
    """One number of `Gateway.stats`."""

    key: str
    metric: str  # of the trial, below `gateway/`; Prometheus' is made of it
    kind: str
    help: str

    @property
    def name(self) -> str:
        return f"ludus_{self.metric}_total" if self.kind == "counter" else f"ludus_{self.metric}"


_NUMBERS = (
    _Number("num_sessions", "sessions", "gauge", "Sessions that are live."),
    _Number("num_started", "sessions_started", "counter", "Sessions that began."),
    _Number("num_steps", "actor_steps", "counter", "Steps that actors ran."),
    _Number("num_repeats", "repeats", "counter", "Steps that were answered again without running the actor."),
    _Number("num_fallbacks", "fallbacks", "counter", "Ticks that missed their deadline: a fallback answered."),
    _Number(
        "num_unwritten", "unwritten", "counter",
        "Steps, starts and ends that could not be recorded or journalled at once.",
    ),
    _Number("num_waiting", "steps_waiting", "gauge", "Steps that are under way or wait for their turn."),
    _Number("num_forwarded", "forwarded", "counter", "Steps that were passed on to the worker of their session."),
    _Number("num_connections", "connections", "gauge", "Connections that are open."),
    _Number("buffered_bytes", "buffered_bytes", "gauge", "Bytes of unanswered requests that are not whole, or wait."),
    _Number("num_grpc_calls", "grpc_calls", "counter", "gRPC calls, an open stream among them."),
    _Number("num_grpc_streams", "grpc_streams", "gauge", "gRPC streams that are open."),
    _Number("bytes_in", "received_bytes", "counter", "Bytes read from connections."),
    _Number("bytes_out", "sent_bytes", "counter", "Bytes written to connections."),
)  # fmt: skip
# A look at /metrics changes these.
_QUIET = frozenset({"connections", "buffered_bytes", "received_bytes", "sent_bytes"})


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

    def head(name: str, kind: str, text: str) -> None:
        lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}"))

    def each(number: _Number) -> None:
        head(number.name, number.kind, number.help)
        metric(number.name, [({"worker": index}, stats[number.key]) for index, stats in workers.items()])

    head(*_STEPS)
    for index, stats in workers.items():
        by_kind = stats["steps"]["counts"]
        metric(
            "ludus_steps_total",
            [({"worker": index, "kind": kind, "code": code or "ok"}, count) for kind, code, count in by_kind],
        )
    head(*_SECONDS)
    for index, stats in workers.items():
        total = 0
        for bound, count in zip([*BUCKETS_S, "+Inf"], stats["steps"]["buckets"], strict=True):
            total += count
            metric("ludus_step_seconds", [({"worker": index, "le": bound}, total)], "_bucket")
        metric("ludus_step_seconds", [({"worker": index}, stats["steps"]["total_s"])], "_sum")
        metric("ludus_step_seconds", [({"worker": index}, total)], "_count")
    for number in _NUMBERS:
        each(number)
    head(*_ENDED)
    for index, stats in workers.items():
        metric(
            "ludus_sessions_ended_total",
            [({"worker": index, "reason": reason}, count) for reason, count in stats["ended"].items()],
        )
    return "\n".join(lines) + "\n"


def counts(stats: Mapping[str, Any]) -> Counts:
    """The stats of one worker, as what they are: `steps/tick/ok`, `sessions`, `step_s/p95`, …"""
    steps = stats["steps"]
    by_kind = {f"steps/{kind}/{code or 'ok'}": count for kind, code, count in steps["counts"]}
    return Counts(
        totals={
            "steps": sum(by_kind.values()),
            **by_kind,
            **{f"sessions_ended/{reason}": count for reason, count in stats["ended"].items()},
            **{number.metric: stats[number.key] for number in _NUMBERS if number.kind == "counter"},
        },
        levels={number.metric: stats[number.key] for number in _NUMBERS if number.kind == "gauge"},
        rates={"steps_per_second": "steps"},
        durations={"step_s": steps["buckets"]},
        quiet=_QUIET,
    )


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
