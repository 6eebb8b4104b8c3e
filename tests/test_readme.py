"""What the README shows runs as it stands."""

import contextlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from discovery.servers import free_port
from ludus.cli.main import main

README = Path(__file__).parent.parent / "README.md"


def test_the_first_example_runs(tmp_path):
    code = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]
    script = tmp_path / "hello.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.rpartition("one more episode:")[2]) >= 300.0  # a policy that knows nothing gets about 20
    [result] = (tmp_path / "trials").glob("*/result.json")
    assert json.loads(result.read_text())["steps"] >= 50_000


def shell_blocks():
    """The blocks of commands, each as a list of lines."""
    blocks = re.findall(r"```\n((?:ludus|curl) .*?)```", README.read_text(), re.DOTALL)
    return [[line for line in block.splitlines() if line.strip()] for block in blocks]


@pytest.mark.timeout(300)
def test_its_commands_work_as_written_and_in_order(tmp_path, monkeypatch, capsys):
    """Training with fewer steps, what can be asked of it, then serving, on a free port."""
    monkeypatch.chdir(tmp_path)
    training, _game, *serving = shell_blocks()
    names = [line.split()[1] for line in training if "cartpole" in line or line.startswith("ludus list")]
    assert names == ["train", "list", "watch", "plot", "evaluate", "resume"]
    served = [line for block in serving for line in block]
    assert [line.split()[0] for line in served] == ["ludus", "curl", "curl", "curl", "ludus", "ludus"]
    port = str(free_port())
    said, outputs = [], {}
    with contextlib.ExitStack() as stack:
        asked = [line for line in training if line.split()[1] in ("list", "plot", "evaluate", "resume")]
        for line in [training[0], *asked, *served]:
            line = line.replace("8000", port).replace("--steps 100000", "--steps 4096 --eval-episodes 1")
            line = line.replace("ludus evaluate cartpole", "ludus evaluate cartpole --episodes 2")
            words = shlex.split(line, comments=True)
            if words[0] == "curl":
                if shutil.which("curl") is not None:
                    said.append(subprocess.check_output(words, text=True, timeout=300))
            elif words[1] == "serve":
                stack.close()  # one server at a time
                process = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True)
                stack.callback(end, process)
                said.append("")
                while "try it" not in said[-1]:
                    new = process.stdout.readline()
                    assert new, (line, said[-1])
                    said[-1] += new
            else:
                assert main(words[1:]) == 0, (line, capsys.readouterr().err)
                outputs[words[1]] = capsys.readouterr().out
    assert "cartpole" in outputs["list"]
    assert "over 2 episodes" in outputs["evaluate"]
    assert "trial " in outputs["resume"]
    assert [path.suffix for path in tmp_path.rglob("*.png")] == [".png"]
    if shutil.which("curl") is not None:
        _, _, answer, ended, _ = said
        assert json.loads(answer)["action"] in (0, 1)
        assert ended == ""
    assert "(candidate) for 0.1 of new sessions" in said[-1]


@pytest.mark.timeout(300)
def test_the_game_is_learnt_from_as_it_says(tmp_path):
    """The two shells, with fewer steps, on a free port."""
    _training, (train, play), *_serving = shell_blocks()
    port = str(free_port())
    lines = [line.replace("8000", port).replace("examples/", f"{README.parent}/examples/") for line in (train, play)]
    train, play = (shlex.split(line, comments=True) for line in lines)
    assert (train[0], play[0]) == ("ludus", "python")
    few = ["--steps=600", "--num-envs=4", "--num-steps=16", "--eval-episodes=2", "--json"]
    with subprocess.Popen([sys.executable, *play[1:]], stdout=subprocess.DEVNULL) as game:
        try:
            done = subprocess.run(
                [sys.executable, "-m", *train, *few], cwd=tmp_path, capture_output=True, text=True, timeout=300
            )
        finally:
            game.terminate()
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["steps"] >= 600
    assert result["eval_episodes"] == 2
    assert Path(result["trial"]).name == "poles"


def end(process):
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()


def test_every_page_it_links_to_exists():
    for link in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (README.parent / link).exists(), link
