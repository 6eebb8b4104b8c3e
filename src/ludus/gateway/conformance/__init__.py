"""Whether a server keeps docs/protocol.md: every rule, checked with nothing but bytes over a socket.

report = check("http://127.0.0.1:8000")
print(report.text)
report.passed

It works on any server, with any actor: it assumes nothing of what the actor answers, but that it takes `data`.
"""

from __future__ import annotations

from ludus.gateway.conformance.report import Finding, Report
from ludus.gateway.conformance.rules import RULES, check

__all__ = ["RULES", "Finding", "Report", "check"]
