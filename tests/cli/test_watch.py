from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from ludus.cli import watch
from ludus.cli.main import main

pytest.importorskip("torch")
pytest.importorskip("pygame")

from ludus import errors
from ludus.experiment import half_blocks, recording, watching
from ludus.training import api as training

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two short trials: one of an env with a picture, one of an env without."""
    folder = tmp_path_factory.mktemp("project")
    small = {"project": str(folder), "steps": 300, "num_envs": 2, "num_steps": 32, "eval_episodes": 0, "threads": 1}
    training.train("ppo", "CartPole-v1", trial="cart", **small)
    (folder / "dark.py").write_text(
        "import gymnasium\n\ndef make():\n    return gymnasium.make('CartPole-v1')\n", encoding="utf-8"
    )
    training.train("ppo", f"{folder / 'dark.py'}:make", trial="dark", **small)
    return folder


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_episode_is_a_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "cart", "--project", str(project), "--episodes", "2", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["episode 1", "episode 2"]
    assert "\x1b" not in "".join(lines)


def test_the_same_seed_shows_the_same_episode(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["watch", "cart", "--project", str(project), "--seed", "5", "--untrained"]
    assert main(words) == main(words) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_what_is_watched_has_the_env_args_of_evaluation(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(project / "cart", tmp_path / "cart")
    config = json.loads((tmp_path / "cart" / "config.json").read_text())
    config["train"]["eval_env_args"] = '{"max_episode_steps": 3}'
    (tmp_path / "cart" / "config.json").write_text(json.dumps(config))
    assert main(["watch", "cart", "--project", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split()[-2:] == ["3", "steps"]


def test_a_gif_of_the_episode_is_saved(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "new" / "cart.gif"
    assert main(["watch", "cart", "--project", str(project), "--gif", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == str(path)
    num_steps = int(lines[0].split()[-2])
    with image.open(path) as gif:
        shown_ms = 0.0
        for number in range(gif.n_frames):  # equal frames that follow each other have become one, shown for longer
            gif.seek(number)
            shown_ms += gif.info["duration"]
        assert shown_ms >= 0.9 * num_steps * 20  # CartPole has 50 steps in a second
        assert gif.size == (360, 240)
        assert gif.info["loop"] == 0


def test_an_env_without_a_picture_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "dark", "--project", str(project)]) == 2
    err = capsys.readouterr().err
    assert "cannot be watched, because it has no picture" in err
    assert 'render_mode="rgb_array"' in err


def test_envpool_says_at_once_that_it_has_no_picture() -> None:
    with pytest.raises(errors.EnvError, match="EnvPool plays without one"):
        watching.VisibleEnv("envpool:CartPole-v1")


def test_an_env_of_ones_own_is_drawn_as_it_draws_itself() -> None:
    with watching.VisibleEnv(f"{EXAMPLES / 'own_environment.py'}:make", size=5) as env:
        env.vector_env.reset(1)
        assert env.frame().shape == (120, 120, 3)
        assert env.fps == 12


def test_several_agents_are_watched_together(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pettingzoo")
    from ludus.learn.policies.policy import Policy, PolicySpec

    with watching.VisibleEnv("pettingzoo:connect_four_v3") as env:
        spec = env.vector_env.spec
        policy = Policy(PolicySpec(obs=spec.obs, action=spec.action), seed=1)
        returns = watch.show_episodes(env, policy, seeds=[1], greedy=False)
    assert returns == [0.0]  # one wins what the other loses
    assert capsys.readouterr().out.startswith("episode 1: return ")


def test_atari_is_slowed_down_by_the_frames_it_skips() -> None:
    pytest.importorskip("ale_py")
    with watching.VisibleEnv("ALE/Pong-v5") as env:
        env.vector_env.reset(1)
        assert env.frame().shape == (210, 160, 3)
        assert env.fps == 15


# ---- the terminal


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def moment(step: int, *, is_over: bool = False) -> watching.Moment:
    frame = np.full((40, 60, 3), 8 * step, np.uint8)
    return watching.Moment(frame=frame, step=step, returns=(float(step),), is_over=is_over)


def make_screen(out: io.StringIO, clock: Clock, fps: float = 10.0) -> watch.Screen:
    return watch.Screen(fps, out=out, size=os.terminal_size((31, 40)), clock=clock, sleep=clock.sleep)


def test_moments_are_shown_in_place_at_the_given_pace() -> None:
    out, clock = Terminal(), Clock()
    with make_screen(out, clock) as screen:
        for step in range(5):
            screen.show(moment(step), f"step {step}")
    assert clock.now == pytest.approx(0.4)
    assert out.getvalue().count("\x1b[11A\r") == 4  # ten lines of picture and one of text, drawn over
    assert out.getvalue().startswith("\x1b[?25l")
    assert out.getvalue().endswith("\x1b[?25h")


def test_a_slow_terminal_sees_fewer_moments_but_the_last() -> None:
    out, clock = Terminal(), Clock()
    with make_screen(out, clock) as screen:
        for step in range(21):
            screen.show(moment(step, is_over=step == 20), f"step {step}.")
            clock.now += 0.3
    shown = [step for step in range(21) if f"step {step}." in out.getvalue()]
    assert shown[0] == 0
    assert shown[-1] == 20
    assert len(shown) < 12


def test_the_cursor_comes_back_when_watching_is_interrupted() -> None:
    out = Terminal()
    with pytest.raises(KeyboardInterrupt), make_screen(out, Clock()):
        raise KeyboardInterrupt
    assert out.getvalue().endswith("\x1b[?25h")


def test_an_episode_is_drawn_where_there_is_a_terminal(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with watching.VisibleEnv("CartPole-v1") as env:
        policy = watching.untrained_policy(project / "cart")
        watch.show_episodes(env, policy, seeds=[1], fps=1000.0, max_steps=5, out=out)
    assert "▀" in out.getvalue()
    assert "CartPole-v1   step 0   return 0.0" in out.getvalue()
    assert out.getvalue().endswith("episode 1: return 5.0 in 5 steps, and cut there\n")


# ---- pictures


def test_a_picture_keeps_its_proportions_within_the_terminal() -> None:
    assert half_blocks.fit(400, 600, columns=90, lines=100) == (30, 90)
    assert half_blocks.fit(400, 600, columns=90, lines=10) == (10, 30)
    assert half_blocks.fit(4, 1000, columns=50, lines=10) == (1, 50)


def test_two_pixels_make_a_character() -> None:
    red, blue = (248, 0, 0), (0, 0, 248)
    frame = np.array([[red, blue], [blue, blue]], np.uint8)
    assert half_blocks.draw(frame, columns=2, lines=1) == ["\x1b[48;2;0;0;248m\x1b[38;2;248;0;0m▀ \x1b[0m"]


@pytest.mark.parametrize(("columns", "lines"), [(1, 1), (7, 3), (100, 40)])
def test_pictures_are_made_smaller_and_larger(columns: int, lines: int) -> None:
    rng = np.random.default_rng(1)
    frame = rng.integers(0, 255, (13, 17, 3), dtype=np.uint8)
    drawn = half_blocks.draw(frame, columns=columns, lines=lines)
    assert len(drawn) == lines
    assert all(line.count("▀") + line.count(" ") == columns for line in drawn)


def test_an_even_picture_stays_even_at_any_size() -> None:
    frame = np.full((13, 17, 3), 200, np.uint8)
    for line in half_blocks.draw(frame, columns=40, lines=4):
        assert line == "\x1b[48;2;200;200;200m" + " " * 40 + "\x1b[0m"


def test_an_empty_recording_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(errors.TrainingError, match="no frame was recorded"):
        recording.Recording(fps=30).save(tmp_path / "empty.gif")
