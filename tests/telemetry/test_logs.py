from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path

from ludus.telemetry import logs

CHATTY = """
import logging, os, sys
from pathlib import Path
from ludus.telemetry import logs
logs.log_process("policy/0", Path(sys.argv[1]))
logging.getLogger("mine").warning("a record")
print("printed")
os.write(2, b"by a C library\\n")
raise ValueError("the end")
"""


def test_everything_a_process_says_goes_to_its_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "policy-0.log"
    done = subprocess.run([sys.executable, "-c", CHATTY, str(path)], capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"", b"")
    text = path.read_text()
    assert " W policy/0 mine: a record" in text
    for line in ("printed", "by a C library", "ValueError: the end"):
        assert line in text


def test_a_thread_logs_to_its_own_file(tmp_path: Path) -> None:
    def work(name: str) -> None:
        with logs.log_thread(name, tmp_path / f"{name}.log"):
            logging.getLogger("mine").warning("hello from %s", name)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logging.getLogger("mine").warning("from the main thread")
    assert [line.split(": ")[1] for line in logs.tail(tmp_path / "a.log")] == ["hello from a"]
    assert [line.split(": ")[1] for line in logs.tail(tmp_path / "b.log")] == ["hello from b"]


def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("".join(f"line {n}\n" for n in range(100_000)))
    assert logs.tail(path, num_lines=2) == ["line 99998", "line 99999"]


def test_there_is_no_tail_without_a_file(tmp_path: Path) -> None:
    assert logs.tail(tmp_path / "none.log") == []
