"""What was found: one finding for each rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Finding", "Outcome", "Report"]

Outcome = Literal["pass", "fail", "skip"]
_MARKS = {"pass": "ok  ", "fail": "FAIL", "skip": "skip"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One rule: its code, what it says, how it went and, unless all was well, what was seen."""

    code: str
    rule: str
    outcome: Outcome
    seen: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """All findings on one server."""

    url: str
    findings: Sequence[Finding]

    @property
    def passed(self) -> bool:
        """Whether nothing failed; what was skipped does not count."""
        return not self.failed

    @property
    def failed(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.outcome == "fail"]

    def finding(self, code: str) -> Finding:
        """Of the rule with that code. Raises `KeyError`."""
        for finding in self.findings:
            if finding.code == code:
                return finding
        raise KeyError(code)

    def count(self, outcome: Outcome) -> int:
        return sum(finding.outcome == outcome for finding in self.findings)

    @property
    def text(self) -> str:
        """For people: a line for each rule, and what was seen under those that failed."""
        width = max((len(finding.code) for finding in self.findings), default=0)
        lines = []
        for finding in self.findings:
            lines.append(f"{_MARKS[finding.outcome]}  {finding.code:<{width}}  {finding.rule}")
            if finding.seen:
                lines.append(f"{'':<{width + 8}}{finding.seen}")
        passed, failed, skipped = self.count("pass"), self.count("fail"), self.count("skip")
        lines.append(f"\n{self.url}: {passed} passed, {failed} failed, {skipped} skipped")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "passed": self.passed,
            "counts": {outcome: self.count(outcome) for outcome in ("pass", "fail", "skip")},
            "findings": [asdict(finding) for finding in self.findings],
        }
