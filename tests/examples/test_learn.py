"""The learning table, without the learning."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "learn.py"


@pytest.fixture(scope="module")
def learn() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_learn", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["benchmarks_learn"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def trained(learn: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Runs that were made. Each ends at once with a return of 470 + 2 * seed; that of seed 9 fails."""
    made: list[tuple[str, int]] = []

    def train(run: Any, project: Path) -> dict[str, Any]:
        made.append((run.case.name, run.seed))
        if run.seed == 9:
            raise RuntimeError("exit code 1: it broke")
        return {"eval_return_mean": 470.0 + 2 * run.seed, "seconds": 12.0}

    monkeypatch.setattr(learn, "train", train)
    return made


def test_every_case_has_settings_that_ludus_train_understands(learn: ModuleType) -> None:
    pytest.importorskip("torch")
    from ludus.cli import train
    from ludus.cli.main import _parsers

    for case in (*learn.CASES, *learn.UNTUNED_CASES, *learn.GAME_CASES, *learn.OFFLINE_CASES):
        words = case.command(3)
        parser, own = _parsers("train")
        train.add_arguments(own, words[1:])
        args = parser.parse_args(words)
        assert (args.steps, args.seed, args.eval_episodes) == (case.steps, 3, case.episodes)


def test_the_page_of_examples_says_how_many_cases_are_not_tuned_for(learn: ModuleType) -> None:
    page = SCRIPT.parents[1] / "docs" / "examples.md"
    assert f"{len(learn.UNTUNED_CASES)} cases by the default settings" in page.read_text()


def test_a_run_that_is_known_is_not_made_again(learn: ModuleType, trained: list[Any], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "results.jsonl"), "--only", "ppo-cartpole"]
    assert learn.main([*out, "--seeds", "3"]) == 0
    assert learn.main([*out, "--seeds", "3,4"]) == 0
    assert trained == [("ppo-cartpole", 3), ("ppo-cartpole", 4)]


def test_a_torn_line_is_a_run_to_be_made(learn: ModuleType, trained: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"case": "ppo-cartpole", "seed": 3, "comm')
    assert learn.main(["--out", str(path), "--only", "ppo-cartpole", "--seeds", "3"]) == 0
    assert trained == [("ppo-cartpole", 3)]
    assert learn.main(["--out", str(path), "--only", "ppo-cartpole", "--seeds", "3"]) == 0
    assert len(trained) == 1


def test_a_bar_that_is_not_met_is_reported(
    learn: ModuleType, trained: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(tmp_path / "r.jsonl"), "--only", "ppo-cartpole,ppo-hidden-velocity", "--seeds", "1,5"]
    assert learn.main([*words, "--json", "--report", str(tmp_path / "page.md")]) == 1
    out = capsys.readouterr().out
    report = json.loads(out.splitlines()[-1])["cases"]
    assert [(case["case"], case["num_met"]) for case in report] == [("ppo-cartpole", 1), ("ppo-hidden-velocity", 0)]
    page = (tmp_path / "page.md").read_text()
    assert "| ppo-cartpole | 100,000 | 472.0 | 480.0 | 476.0 | ≥ 475 | 1 of 2 | 12 |" in page
    assert "| < 300 | 0 of 2 |" in page
    assert "ludus train ppo CartPole-v1 --steps 100000 --seed 1" in page


def test_a_run_that_failed_is_reported_and_tried_again(
    learn: ModuleType, trained: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(tmp_path / "r.jsonl"), "--only", "impala-cartpole", "--seeds", "9"]
    assert learn.main(words) == 1
    assert "seed 9: failed. exit code 1: it broke" in capsys.readouterr().err
    assert learn.main(words) == 1
    assert len(trained) == 2


def test_a_case_that_is_not_there_is_answered_with_those_that_are(
    learn: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        learn.main(["--only", "ppo-cartpol"])
    assert "ppo-cartpole" in capsys.readouterr().err


def test_one_part_can_be_run_alone_with_its_own_seeds_and_measures(
    learn: ModuleType, trained: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What is learnt\n\nby some\n\n## Not tuned for\n\nold\n")
    monkeypatch.setattr(learn, "REPORT", page)
    assert learn.main(["--out", str(tmp_path / "r.jsonl"), "--part", "untuned"]) == 1
    assert sorted(trained) == sorted((case.name, seed) for case in learn.UNTUNED_CASES for seed in (1, 2, 3))
    text = page.read_text()
    assert text.startswith("# What is learnt\n\nby some\n\n## Not tuned for\n")
    assert "old" not in text.partition("## Not tuned for")[2]
    assert "| one-step | 100,000 | 472.0 | 474.0 | 476.0 | 474.0 | ≥ 0.9 | 3 of 3 | 12 |" in text
    assert "| tic-tac-toe | 400,000 | nan | nan | nan | nan | ≥ 0.9 | 0 of 3 | 12 |" in text  # nothing was measured


def test_a_part_replaces_its_own_section_and_keeps_the_other(learn: ModuleType) -> None:
    page = "# What is learnt\n\nmuch\n"
    page = learn.with_section(page, "untuned", "## Not tuned for\n\nlittle\n")
    assert page == "# What is learnt\n\nmuch\n\n## Not tuned for\n\nlittle\n"
    page = learn.with_section(page, "tuned", "# What is learnt\n\nmore\n")
    assert page == "# What is learnt\n\nmore\n\n## Not tuned for\n\nlittle\n"
    page = learn.with_section(page, "games", "## From a game\n\nsome\n")
    page = learn.with_section(page, "untuned", "## Not tuned for\n\nless\n")
    assert page == "# What is learnt\n\nmore\n\n## Not tuned for\n\nless\n\n## From a game\n\nsome\n"


UNTUNED = "byte_planes dial corners locks cards t_maze one_step endless small_breakout"


@pytest.mark.parametrize("name", UNTUNED.split())
def test_an_untuned_env_keeps_to_its_spaces_and_is_decided_by_its_seed(name: str) -> None:
    from ludus import envs
    from ludus.testing.vector_envs import RandomPlayer, assert_same, copied

    moments = []
    for _ in range(2):
        vector_env = envs.make(f"{SCRIPT.with_name('untuned_envs.py')}:{name}", 2)
        player, now, seen = RandomPlayer(vector_env.spec, seed=0), vector_env.reset(seed=1), []
        for _ in range(60):
            now = vector_env.step(player(now))
            seen.append(copied(now))
        assert vector_env.statistics().num_failures == 0  # one whose observation is outside of its space has failed
        vector_env.close()
        moments.append(seen)
    assert_same(*moments)
