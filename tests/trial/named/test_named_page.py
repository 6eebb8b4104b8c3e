"""The first example of docs/named.md runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "named.md"


def test_the_example_trains_and_ends(tmp_path: Path) -> None:
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "launch.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "launch.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "learnt [" in (tmp_path / "demo" / "first" / "logs" / "trainer-0.log").read_text()
    assert '"weight"' in (tmp_path / "demo" / "first" / "metrics.jsonl").read_text()
