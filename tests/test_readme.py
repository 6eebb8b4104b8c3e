"""What the README shows runs as it stands."""

import json
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_first_example_runs(tmp_path):
    code = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]
    script = tmp_path / "hello.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.rpartition("one more episode:")[2]) >= 300.0  # a policy that knows nothing gets about 20
    [result] = (tmp_path / "trials").glob("*/result.json")
    assert json.loads(result.read_text())["steps"] >= 50_000


def test_every_page_it_links_to_exists():
    for link in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (README.parent / link).exists(), link
