from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "programs.md"


def test_the_example_of_the_page_runs(project: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    script = project / "hello.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "player/0 done 0" in done.stdout
    assert "policy/2 running 0" in done.stdout
    (log,) = project.glob("trials/*/logs/player-0.log")
    assert "the last action was" in log.read_text()
