"""Progress of a run on standard error: a live view in a terminal, now and then a line elsewhere.

    with Progress(100_000) as progress:
        progress.update(2048, {"episode/return": 22.0, "time/steps_per_second": 9000.0, "time/act": 0.3})

`rich` is imported when something is first drawn, so that the first gradient step does not wait for it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["Progress", "spell_return"]

_REDRAW_S = 0.2
_LINE_S = 10.0
_QUIET_S = 2.0  # nobody waits for a run that is over by then
_RATE = "time/steps_per_second"
_NUM_PARTS = 6
_MOST_AGENTS = 4
_BAR_WIDTH = 24


class Progress:
    """How far a run is, which has no end if `total_steps` is `None`. `total_s`: it ends after so long, if not sooner.

    `is_live`: draw in place; by default, if standard error is a terminal. `return_label`: what the return of training
    is called. `unit`: what is counted.

    Nothing is drawn between updates, and no thread is started: a run costs its updates. `status` says what a run is
    doing that has no news; it may be called from another thread than `update`.
    """

    def __init__(
        self,
        total_steps: int | None,
        is_live: bool | None = None,
        *,
        return_label: str = "return",
        unit: str = "steps",
        total_s: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = None if total_steps is None else max(1, total_steps)
        self._return_label = return_label
        self._unit = unit
        self._total_s = total_s
        self._stream = sys.stderr if stream is None else stream
        self._is_live = self._stream.isatty() if is_live is None else is_live
        self._clock = clock
        self._began = self._next = 0.0
        self._first: tuple[int, float] | None = None  # the step and time of the first update: not 0 after a resume
        self._step = 0
        self._shown_step: int | None = None
        self._values: dict[str, float] = {}
        self._status = ""
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._began = self._clock()
        self._next = self._began + (_REDRAW_S if self._is_live else _QUIET_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Show how far it came, unless it was over at once."""
        is_long = self._live is not None or self._clock() - self._began >= _QUIET_S
        if is_long and self._first is not None and self._shown_step != self._step:
            self._show()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, step: int, values: Mapping[str, float | None] | None = None) -> None:
        """`step` steps are done; of each name in `values` the last number is shown."""
        with self._lock:
            self._step = step
            if self._first is None:
                self._first = (step, self._clock())
            self._values |= {name: value for name, value in (values or {}).items() if value is not None}
            self._status = ""
            self._show_if_due()

    def status(self, text: str) -> None:
        """What is being done since the last update: `busy: update, 4.1 s`."""
        with self._lock:
            self._status = text
            self._show_if_due()

    def _show_if_due(self) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + (_REDRAW_S if self._is_live else _LINE_S)
            self._show()

    def _show(self) -> None:
        self._shown_step = self._step
        if self._is_live:
            self._draw()
        else:
            words = [self._position(), *self._metrics(), *self._parts(), *self._left(), *filter(None, [self._status])]
            self._stream.write("   ".join(words) + "\n")
            self._stream.flush()

    # --- what is shown

    def _position(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        share = "" if (done := self._done()) is None else f" ({done:.0%})"
        return f"{self._step:,}{of} {self._unit}{share}"

    def _done(self) -> float | None:
        shares = [self._step / self._total] if self._total is not None else []
        if self._total_s:
            shares.append((self._clock() - self._began) / self._total_s)
        return min(1.0, max(shares)) if shares else None

    def _metrics(self) -> list[str]:
        shown = [f"{rate:,.0f} {self._unit}/s"] if (rate := self._rate()) else []
        labels = {"episode/return": self._return_label, "eval/return": "evaluated", "lag/mean": "lag"}
        for name, label in labels.items():
            if name in self._values:
                shown.append(f"{label} {self._spell_returns(name)}")
        return shown

    def _spell_returns(self, name: str) -> str:
        """Of agents whose returns differ, each one's: where they compete, the mean of all is 0 by the rules."""
        agents = {key: value for key, value in self._values.items() if key.startswith(f"{name}/")}
        if len(agents) < 2 or max(agents.values()) - min(agents.values()) <= 1e-6:
            return spell_return(self._values[name])
        each = [f"{key.rpartition('/')[2]} {spell_return(value)}" for key, value in agents.items()]
        return ", ".join([*each[:_MOST_AGENTS], *(["…"] if len(each) > _MOST_AGENTS else [])])

    def _parts(self) -> list[str]:
        """Where time goes: the largest fractions first."""
        fractions = {name: value for name, value in self._values.items() if name.startswith("time/") and name != _RATE}
        largest = sorted(fractions.items(), key=lambda item: -item[1])[:_NUM_PARTS]
        shown = [
            f"{name.removeprefix('time/').replace('_', ' ')} {value:.0%}" for name, value in largest if value >= 0.005
        ]
        return [f"time: {', '.join(shown)}"] if shown else []

    def _left(self) -> list[str]:
        seconds, done = self._clock() - self._began, self._done()
        if done is None:
            return [f"after {_spell(seconds)}"]
        if done >= 1.0:
            return [f"{_spell(seconds)} in all"]
        left = [self._total_s - seconds] if self._total_s is not None else []
        if self._total is not None and (rate := self._average() or self._rate()):
            left.append((self._total - self._step) / rate)
        return [f"{_spell(min(left))} left"] if left else []

    def _rate(self) -> float:
        return self._values.get(_RATE) or self._average()

    def _average(self) -> float:
        if self._first is None or self._clock() <= self._first[1]:
            return 0.0
        return (self._step - self._first[0]) / (self._clock() - self._first[1])

    # --- how it is drawn

    def _draw(self) -> None:
        view = self._view()
        if self._live is None:
            from rich import console, live

            screen = console.Console(file=self._stream, force_terminal=True, highlight=False)
            self._live = live.Live(console=screen, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
        self._live.update(view, refresh=True)

    def _view(self) -> Any:
        from rich import text

        done = self._done() or 0.0
        filled = round(done * _BAR_WIDTH)
        bar = text.Text("━" * filled, style="green" if done >= 1.0 else "cyan", no_wrap=True, overflow="ellipsis")
        bar.append("━" * (_BAR_WIDTH - filled), style="bright_black")
        bar.append(f"  {self._position()}", style="default")
        bar.append("".join(f"   {left}" for left in self._left()), style="bright_black")
        metrics = self._metrics()
        if metrics:
            bar.append("\n" + "   ".join(metrics), style="bold default")
        for parts in (*self._parts(), *filter(None, [self._status])):
            bar.append("\n" + parts, style="bright_black")
        return bar


def spell_return(value: float) -> str:
    """With a tenth; below 1, with three digits, so that small rewards do not read as none."""
    return f"{value:.1f}" if value == 0.0 or abs(value) >= 1.0 else f"{value:.3g}"


def _spell(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
