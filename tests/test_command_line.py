"""Commands that are printed can be pasted, whether or not `ludus` is on the PATH."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ludus
from ludus.cli.main import main
from ludus.command_line import command_line, project_words, trial_command

ROOT = Path(__file__).parent.parent


def test_the_short_name_is_used_where_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}/usr/bin")
    assert command_line("list", *project_words("trials")) == "ludus list"
    assert command_line("list", *project_words("my runs")) == "ludus list --project 'my runs'"


def test_elsewhere_the_path_of_this_very_installation_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "ludus"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    for path in ("/nowhere", str(tmp_path)):
        monkeypatch.setenv("PATH", path)
        words = shlex.split(command_line("--version"))
        assert subprocess.check_output(words, text=True, timeout=300).startswith("ludus ")
    monkeypatch.chdir(Path(sys.executable).parent.parent)
    assert command_line("list") == "bin/ludus list"


def test_python_m_does_where_there_is_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(Path, "is_file", lambda path: False)
    words = shlex.split(command_line("--version"))
    assert words[1:] == ["-m", "ludus", "--version"]
    assert subprocess.check_output(words, text=True, timeout=300).startswith("ludus ")


def test_a_command_on_a_trial_names_its_project_unless_it_is_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}/usr/bin")
    monkeypatch.chdir(tmp_path)
    assert trial_command("resume", tmp_path / "trials" / "mine") == "ludus resume mine"
    assert trial_command("ctl", tmp_path / "my runs" / "mine", "exit") == "ludus ctl mine exit --project 'my runs'"
    assert trial_command("resume", Path("/other/mine")) == "ludus resume mine --project /other"


def test_no_message_has_a_command_on_a_trial_that_works_in_the_default_project_only() -> None:
    commands = re.compile(r"ludus (?:resume|evaluate|watch|serve|promote|rollback|ctl|plot) \{")
    source = Path(ludus.__file__).parent
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if commands.search(path.read_text())}
    assert not found


def test_a_hint_names_it_by_a_path_that_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["list", "--project", str(tmp_path)]) == 0
    program = shlex.split(capsys.readouterr().out.partition("Begin one with: ")[2])[0]
    assert os.access(program, os.X_OK)


def test_setting_up_says_what_it_does_before_it_takes_long() -> None:
    words = ["make", "--dry-run", "-C", str(ROOT), "demo", "VENV=nowhere/.venv"]
    lines = subprocess.check_output(words, text=True, timeout=300).splitlines()
    [first, second] = [i for i, line in enumerate(lines) if "pip install" in line]
    assert any(line.startswith("echo") and "minutes" in line for line in lines[:first])
    assert any(line.startswith("echo") for line in lines[first:second])
    assert all(" -q" not in line and "--quiet" not in line for line in lines)
