"""What the README shows runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_first_example_runs(tmp_path):
    [code] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    script = tmp_path / "hello.py"
    script.write_text(f"{code}    print([record.status.value for record in run.workers()])\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == 4
    assert (tmp_path / "trials").is_dir()


def test_every_page_it_links_to_exists():
    for link in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (README.parent / link).exists(), link
