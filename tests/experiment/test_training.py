"""Whole runs in this process: envs of many kinds, what is written, what is kept when something goes wrong."""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus import data, envs
from ludus.data.digest import digest
from ludus.errors import CheckpointError, ConfigError, EnvError, TrainingError
from ludus.experiment import wiring
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.config import resolve
from ludus.experiment.evaluation import Evaluation
from ludus.experiment.flows.report import Report
from ludus.experiment.saved_config import load_config, write_trial
from ludus.experiment.training import Training
from ludus.services.simulator.episodes import Episode
from ludus.telemetry.metrics_file import read_metrics
from ludus.training import api as runs

torch.set_num_threads(1)
GAMES = Path(__file__).parents[1] / "services" / "simulator" / "marked_envs.py"
SMALL_GAMES = Path(__file__).with_name("games.py")
TINY = {"num_envs": 4, "num_steps": 16, "num_epochs": 1, "minibatch_size": 32, "threads": 1, "eval_episodes": 2}


def train(folder: Path, env: str = "CartPole-v1", algorithm: str = "ppo", **settings: Any) -> runs.TrainingRun:
    return runs.train(algorithm, env, **{"project": str(folder), "seed": 1, "steps": 300, **TINY, **settings})


@pytest.mark.parametrize("env", ["pettingzoo:connect_four_v3", "mpe2:simple_spread_v3"])
@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_envs_of_several_agents_are_trained_in(tmp_path: Path, env: str, recurrent: str) -> None:
    result = train(tmp_path, env, recurrent=recurrent, num_steps=24).result
    assert result["steps"] >= 300
    assert np.isfinite(result["eval_return_mean"])
    assert all(np.isfinite(line["train/loss"]) for line in read_metrics(Path(result["trial"])) if "train/loss" in line)


@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_where_agents_take_turns_only_allowed_choices_of_those_who_may_act_are_learnt_from(algorithm: str) -> None:
    config = resolve(algorithm, "pettingzoo:connect_four_v3", {**TINY, "flow": "sync"})
    groups = wiring.make_groups(config)
    from ludus.learn.algorithms.learner import Sample
    from ludus.learn.policies.policy import Policy

    policy = Policy(wiring.make_policy_spec(config, groups[0].spec), seed=1)
    learner = wiring.make_learner(config, policy)
    simulator = wiring.make_simulator(config, groups, policy, seed=1)
    for _ in range(6):
        segment = simulator.collect(learner.version).segment
        active = segment.active[:-1]
        assert 0 < active.sum() <= active.size / 2  # of two agents one acts at a time
        assert segment.mask is not None
        chosen = np.take_along_axis(segment.mask[:-1], segment.action[..., None], axis=2)[..., 0]
        assert chosen[active].all()
        assert np.isfinite(learner.update(Sample(segment)).metrics["loss"])
    simulator.close()


def test_envs_that_raise_are_restarted_and_training_goes_on(tmp_path: Path) -> None:
    run = train(tmp_path, f"{GAMES}:brittle", steps=1500, num_envs=8)
    lines = read_metrics(run.trial_dir)
    assert run.result["steps"] >= 1500
    assert lines[-2]["count/dropped_rows"] > 0
    assert run.result["eval_return_mean"] == 10.0  # of episodes that came to their end


def test_envs_that_always_raise_end_the_run_with_their_error(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="the game broke"):
        train(tmp_path, f"{GAMES}:brittle", env_args='{"raise_at": 1, "one_in": 1}')


def test_envs_that_never_give_a_whole_segment_end_the_run_instead_of_going_on_for_ever(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="nothing to learn from"):
        train(tmp_path, f"{GAMES}:brittle", env_args='{"raise_at": 3, "one_in": 1}')


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala", "appo"])
def test_every_algorithm_runs_in_the_sync_flow(tmp_path: Path, algorithm: str) -> None:
    settings: dict[str, Any] = {"flow": "sync", "minibatch_size": 0}
    result = train(tmp_path, algorithm=algorithm, **settings).result
    again = train(tmp_path, algorithm=algorithm, **settings).result
    assert result["weights_hash"] == again["weights_hash"]


def test_a_run_leaves_what_its_folder_promises(tmp_path: Path) -> None:
    calls: list[tuple[int, dict[str, float]]] = []
    run = train(tmp_path, trial="monday", on_progress=lambda step, values: calls.append((step, values)))
    folder = tmp_path / "monday"
    assert run.trial_dir == folder
    assert load_config(folder) == resolve(
        "ppo", "CartPole-v1", {**TINY, "project": str(tmp_path), "seed": 1, "steps": 300, "trial": "monday"}
    )
    assert json.loads((folder / "result.json").read_text()) == run.result
    assert "torch" in json.loads((folder / "versions.json").read_text())
    step, content = CheckpointStore(folder / "checkpoints").load()
    assert step == run.result["steps"] == calls[-1][0]
    assert digest(content["weights"]) == run.result["weights_hash"]
    assert sum(value for name, value in calls[-1][1].items() if name.startswith("time/") and "per" not in name) == (
        pytest.approx(1.0)
    )
    assert json.loads((folder / "trial.json").read_text())["ended"] == "finished"
    with pytest.raises(ConfigError, match="ludus resume monday"):
        train(tmp_path, trial="monday")


def test_a_run_that_has_ended_is_returned_by_resume_as_it_is(tmp_path: Path) -> None:
    run = train(tmp_path, trial="monday")
    assert runs.resume("monday", project=str(tmp_path)).result == run.result


class Enough(KeyboardInterrupt):
    """What a callback may raise to end a run as Ctrl-C would."""


def enough(step: int, values: dict[str, float]) -> None:
    raise Enough


@pytest.fixture
def metrics_at_every_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.experiment.training._METRICS_EVERY_S", 0.0)


@pytest.mark.usefixtures("metrics_at_every_update")
def test_a_callback_that_interrupts_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    whole = train(tmp_path, trial="whole")
    with pytest.raises(Enough):
        train(tmp_path, trial="part", on_progress=enough)
    assert "stopped at step" in json.loads((tmp_path / "part" / "trial.json").read_text())["ended"]
    resumed = runs.resume("part", project=str(tmp_path))
    assert resumed.result["weights_hash"] == whole.result["weights_hash"]


@pytest.mark.usefixtures("metrics_at_every_update")
def test_no_metric_is_written_twice_of_one_step_after_a_stop(tmp_path: Path) -> None:
    with pytest.raises(Enough):
        train(tmp_path, trial="part", on_progress=enough)
    with pytest.raises(Enough):
        runs.resume("part", project=str(tmp_path), on_progress=enough)
    runs.resume("part", project=str(tmp_path))
    lines = read_metrics(tmp_path / "part")
    counts = Counter((line["step"], name) for line in lines for name in line if "/" in name)
    assert max(counts.values()) == 1
    steps = [line["step"] for line in lines]
    assert steps == sorted(steps)
    assert len(steps) >= 3


@pytest.mark.usefixtures("metrics_at_every_update")
@pytest.mark.parametrize("settings", [{}, {"groups": 2, "recurrent": "gru"}])
def test_envs_that_cannot_be_put_back_go_on_with_new_episodes_and_the_run_says_so(
    tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Enough):
        train(tmp_path, f"{SMALL_GAMES}:noisy", trial="part", on_progress=enough, **settings)
    step, _ = CheckpointStore(tmp_path / "part" / "checkpoints").load()
    run = runs.resume("part", project=str(tmp_path))
    assert "it is not deterministic" in caplog.text
    assert f"part goes on from step {step} with new episodes" in caplog.text
    assert run.result["steps"] >= 300
    assert run.result["eval_return_mean"] == 20.0
    lengths = [line["episode/length"] for line in read_metrics(run.trial_dir) if "episode/length" in line]
    assert set(lengths) == {20.0}  # none is the sum of an old part and a new one


class ScriptedFlow:
    """Gives reports; notes what is done to it."""

    def __init__(self, *reports: Report | None, error: Exception | None = None) -> None:
        self._reports = list(reports)
        self._error = error
        self.num_closed = 0

    def turn(self, progress: float) -> Report | None:
        if not self._reports and self._error is not None:
            raise self._error
        return self._reports.pop(0)

    def save(self) -> Any:
        return None

    def restore(self, saved: Any) -> bool:
        return saved is not None

    def close(self) -> None:
        self.num_closed += 1


def scripted(folder: Path, flow: ScriptedFlow, **settings: Any) -> Training:
    config = resolve("ppo", "CartPole-v1", {**TINY, "project": str(folder), **settings})
    folder.mkdir(exist_ok=True)
    write_trial(folder, config)
    from ludus.learn.policies.policy import Policy

    policy = Policy(wiring.make_policy_spec(config, envs.spec("CartPole-v1")), seed=1)
    return Training(config, folder, flow, wiring.make_learner(config, policy))


def test_nothing_to_learn_from_yet_is_no_turn(tmp_path: Path) -> None:
    with scripted(tmp_path, ScriptedFlow(None, Report(num_steps=100))) as training:
        assert not training.turn()
        assert training.num_steps == 0
        assert training.turn()
        assert training.num_steps == 100


def test_asked_to_stop_it_keeps_what_was_done_and_is_stopped_before_its_end(tmp_path: Path) -> None:
    flow = ScriptedFlow(Report(num_steps=64), Report(num_steps=64))
    with scripted(tmp_path, flow, checkpoint_seconds=3600) as training:
        training.turn()
        assert not training.is_stopped
        training.ask_stop()
        training.turn()
        assert training.is_stopped
        assert not training.is_done
    assert [record.step for record in CheckpointStore(tmp_path / "checkpoints").records()] == [128]
    assert flow.num_closed == 1


def test_stopped_while_there_is_nothing_to_learn_from_it_stops_too(tmp_path: Path) -> None:
    with scripted(tmp_path, ScriptedFlow(Report(num_steps=64), None), checkpoint_seconds=3600) as training:
        training.turn()
        training.ask_stop()
        training.turn()
        assert training.is_stopped
    assert [record.step for record in CheckpointStore(tmp_path / "checkpoints").records()] == [64]


def test_checkpoints_are_written_as_often_as_asked_and_no_more_are_kept(tmp_path: Path) -> None:
    flow = ScriptedFlow(*[Report(num_steps=10) for _ in range(5)])
    with scripted(tmp_path, flow, checkpoint_seconds=0, keep_checkpoints=2) as training:
        for _ in range(5):
            training.turn()
    assert [record.step for record in CheckpointStore(tmp_path / "checkpoints").records()] == [40, 50]


def test_a_torn_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    flow = ScriptedFlow(*[Report(num_steps=10) for _ in range(3)])
    with scripted(tmp_path, flow, checkpoint_seconds=0) as training:
        for _ in range(3):
            training.turn()
    newest = tmp_path / "checkpoints" / "checkpoint-000000030.ludus"
    newest.write_bytes(newest.read_bytes()[:-7])
    with scripted(tmp_path, ScriptedFlow()) as training:
        assert training.restore()
        assert training.num_steps == 20
    for path in (tmp_path / "checkpoints").glob("*.ludus"):
        path.write_bytes(b"")
    with scripted(tmp_path, ScriptedFlow()) as training, pytest.raises(CheckpointError, match="no checkpoint"):
        training.restore()


@pytest.mark.usefixtures("metrics_at_every_update")
def test_a_resumed_run_goes_on_with_its_counts_its_window_of_episodes_and_its_goal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played_at: list[int] = []

    def play(*_args: Any, seed: int, **_kwargs: Any) -> Evaluation:
        played_at.append(training.num_steps)
        return Evaluation(returns=(10.0,) * 20, lengths=(6,) * 20)

    monkeypatch.setattr("ludus.experiment.goal.evaluate", play)
    early = Report(num_steps=100, episodes=[Episode(5.0, 10)] * 30)
    later = [Report(num_steps=100, episodes=[Episode(1_000.0, 40)] * number) for number in (20, 0, 0, 0, 0, 1)]
    settings = {"stop_at_return": 2_000.0, "checkpoint_seconds": 3600}

    def watch(training: Training, num_turns: int) -> list[dict[str, Any]]:
        lines = []
        for _ in range(num_turns):
            training.turn()
            lines.append(
                {name: training.shown[1][name] for name in ("episode/count", "episode/return", "episode/length")}
            )
        return lines

    with scripted(tmp_path / "whole", ScriptedFlow(early, *later), **settings) as training:
        whole = watch(training, 7)
    at_once, played_at[:] = list(played_at), []
    with scripted(tmp_path / "part", ScriptedFlow(early, later[0]), **settings) as training:
        lines = watch(training, 2)
        training.checkpoint()
    with scripted(tmp_path / "part", ScriptedFlow(*later[1:]), **settings) as training:
        assert training.restore()
        lines += watch(training, 5)
    assert lines == whole
    assert whole[-1]["episode/count"] == 51
    assert whole[-1]["episode/return"] == pytest.approx((30 * 5.0 + 21 * 1_000.0) / 51)
    assert played_at == at_once == [200, 500]  # halfway: each plays 120 steps, a quarter of training's at most


def test_the_seconds_before_a_resume_are_in_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.perf_counter
    with scripted(tmp_path, ScriptedFlow(Report(num_steps=10)), checkpoint_seconds=3600) as training:
        training.turn()
        monkeypatch.setattr(time, "perf_counter", lambda: clock() + 5000.0)
        training.checkpoint()
    with scripted(tmp_path, ScriptedFlow(), eval_episodes=0) as training:
        assert training.restore()
        assert 5000.0 <= training.finish()["seconds"] < 10_000.0


def test_what_a_checkpoint_holds_can_be_sent_anywhere(tmp_path: Path) -> None:
    with wiring.embedded(resolve("ppo", "CartPole-v1", TINY), tmp_path) as training:
        training.turn()
        training.checkpoint()
    _, content = CheckpointStore(tmp_path / "checkpoints").load()
    data.encode(content)
    assert {"weights", "learner", "flow", "num_steps"} <= content.keys()


def test_it_ends_as_soon_as_a_greedy_evaluation_is_good_enough(tmp_path: Path) -> None:
    run = train(tmp_path, steps=200_000, stop_at_return=30.0, num_envs=8, num_steps=32, learning_rate=3e-3)
    assert run.result["steps"] < 100_000
    assert run.result["seconds_to_first_update"] < run.result["seconds_to_return"]
    assert runs.evaluate(run.trial_dir, episodes=20, seed=1 + 7919)["return_mean"] >= 30.0


def test_two_runs_of_a_seed_that_stop_early_stop_alike(tmp_path: Path) -> None:
    wanted = {"steps": 200_000, "stop_at_return": 60.0, "num_envs": 8, "num_steps": 32, "learning_rate": 3e-3}
    first, second = (train(tmp_path / name, **wanted).result for name in ("a", "b"))
    assert first["steps"] == second["steps"] < 100_000
    assert first["weights_hash"] == second["weights_hash"]


def test_a_misspelt_environment_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="CartPole-v1"):
        train(tmp_path, "CartPloe-v1")


def test_a_run_whose_evaluation_does_not_end_has_its_result_and_says_how_many_were_cut_off(tmp_path: Path) -> None:
    run = train(tmp_path, f"{SMALL_GAMES}:endless", env_args='{"one_in": 2}', eval_episodes=8, eval_max_steps=30)
    assert run.result["eval_episodes"] == 8
    assert 0 < run.result["eval_cut_off"] < 8
    assert 10.0 < run.result["eval_return_mean"] < 30.0
    assert read_metrics(run.trial_dir)[-1]["eval/cut_off"] == run.result["eval_cut_off"]


def test_a_run_whose_evaluation_fails_has_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise EnvError("the game broke")

    monkeypatch.setattr("ludus.experiment.final_evaluation.evaluate", fail)
    run = train(tmp_path, trial="monday")
    assert run.result["eval_error"] == "EnvError: the game broke"
    assert (run.result["eval_return_mean"], run.result["eval_episodes"]) == (None, 0)
    assert json.loads((tmp_path / "monday" / "result.json").read_text()) == run.result
    assert runs.resume("monday", project=str(tmp_path)).result == run.result


def test_a_run_reports_greedy_sampled_and_training_returns(tmp_path: Path) -> None:
    run = train(tmp_path, steps=1_000, eval_episodes=6)
    result, last = run.result, read_metrics(run.trial_dir)[-1]
    assert (result["eval_episodes"], result["eval_sampled_episodes"]) == (6, 6)
    for greedy, name in ((True, "eval"), (False, "eval_sampled")):
        again = runs.evaluate(run.trial_dir, episodes=6, seed=1 + 104_729, greedy=greedy)
        assert (again["return_mean"], again["return_std"]) == (
            result[f"{name}_return_mean"],
            result[f"{name}_return_std"],
        )
    assert result["eval_return_mean"] != result["eval_sampled_return_mean"]
    assert last["eval/return"] == result["eval_return_mean"]
    assert last["eval/sampled_return"] == result["eval_sampled_return_mean"]
    *_, trained = (line for line in read_metrics(run.trial_dir) if "episode/return" in line)
    assert result["return_mean"] == trained["episode/return"]
    assert result["episodes"] == trained["episode/count"] > 0


def test_of_long_episodes_fewer_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.experiment.final_evaluation._MAX_SAMPLED_STEPS", 360)
    run = train(tmp_path, f"{SMALL_GAMES}:endless", eval_episodes=20, eval_max_steps=30)
    assert (run.result["eval_episodes"], run.result["eval_sampled_episodes"]) == (20, 12)


def test_envs_that_never_end_are_evaluated_by_a_budget_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.experiment.evaluation._FEWEST_TOTAL_STEPS", 600)
    monkeypatch.setattr("ludus.experiment.evaluation._FEWEST_STEPS", 30)
    result = train(tmp_path, f"{SMALL_GAMES}:endless", eval_episodes=20).result
    assert (result["eval_return_mean"], result["eval_cut_off"]) == (30.0, 20)
    assert result["eval_sampled_return_mean"] == 30.0


def test_evaluations_and_the_goal_are_played_with_the_env_args_of_evaluation(tmp_path: Path) -> None:
    ended = '{"one_in": 1000000}'
    settings = {"env_args": '{"one_in": 4}', "eval_env_args": ended, "eval_max_steps": 30, "eval_episodes": 8}
    run = train(tmp_path, f"{SMALL_GAMES}:endless", steps=5_000, num_envs=32, stop_at_return=10.0, **settings)
    assert run.result["steps"] < 5_000  # with the args of training some are cut off, and the goal is not reached
    assert run.result["eval_return_mean"] == run.result["eval_sampled_return_mean"] == 10.0
    assert run.result["eval_env_args"] == json.loads(ended)
    assert runs.evaluate(run.trial_dir, episodes=8, env_args='{"one_in": 1}', max_steps=15)["return_mean"] == 15.0


def test_where_agents_compete_a_run_reports_them_one_by_one_and_plays_random_and_its_earlier_self(
    tmp_path: Path,
) -> None:
    run = train(tmp_path, f"{SMALL_GAMES}:higher", steps=4_000, num_steps=32, learning_rate=3e-3, eval_episodes=20)
    result, last = run.result, read_metrics(run.trial_dir)[-1]
    assert result["return_mean"] == pytest.approx(0.0, abs=1e-9)
    assert result["return_mean/left"] == pytest.approx(-result["return_mean/right"])
    assert result["eval_return_mean/left"] == -result["eval_return_mean/right"]
    assert result["eval_vs_episodes"] == 20
    assert result["eval_vs_random"] > 0.7  # it has learnt to name high numbers
    assert result["eval_vs_random_return_mean"] > 1.0
    assert 0.5 <= result["eval_vs_earlier"] <= 1.0
    assert 2_000 <= result["eval_vs_earlier_step"] < 2_200  # halfway
    assert (last["eval/vs_random"], last["eval/vs_earlier"]) == (result["eval_vs_random"], result["eval_vs_earlier"])
    *_, trained = (line for line in read_metrics(run.trial_dir) if "episode/return" in line)
    assert trained["episode/return/left"] == result["return_mean/left"]
    again = runs.evaluate(run.trial_dir, episodes=20)
    assert again["return_mean/left"] == -again["return_mean/right"]
    assert again["vs_random"] > 0.7
    assert again["vs_episodes"] == 20
    assert again["vs_random_return_mean"] > 1.0


def test_where_agents_share_their_reward_nothing_is_played_against_others(tmp_path: Path) -> None:
    result = train(tmp_path, f"{SMALL_GAMES}:sharing").result
    assert result["return_mean/left"] == result["return_mean/right"] > 0
    assert "eval_vs_random" not in result


@pytest.mark.parametrize("env", [f"{SMALL_GAMES}:higher", "pettingzoo:connect_four_v3"])
def test_a_step_of_an_env_counts_once_however_many_agents_act_in_it(tmp_path: Path, env: str) -> None:
    training = wiring.embedded(resolve("ppo", env, TINY), tmp_path)
    with training:
        before = [group.vector_env.statistics().num_steps for group in training.flow._source._simulator._groups]  # type: ignore[attr-defined]
        assert before == [0]
        for _ in range(3):
            training.turn()
        [after] = [group.vector_env.statistics().num_steps for group in training.flow._source._simulator._groups]  # type: ignore[attr-defined]
    assert training.num_steps == after


@pytest.mark.usefixtures("metrics_at_every_update")
def test_the_earlier_self_outlives_a_stop(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 1_000, "num_steps": 32}
    whole = train(tmp_path, f"{SMALL_GAMES}:higher", trial="whole", **settings).result

    def late(step: int, values: dict[str, float]) -> None:
        if step > 600:
            raise Enough

    with pytest.raises(Enough):
        train(tmp_path, f"{SMALL_GAMES}:higher", trial="part", on_progress=late, **settings)
    resumed = runs.resume("part", project=str(tmp_path)).result
    for name in ("eval_vs_earlier_step", "eval_vs_earlier", "eval_vs_random", "return_mean/left", "episodes"):
        assert resumed[name] == whole[name], name


def test_weights_that_are_not_finite_are_never_in_a_checkpoint(tmp_path: Path) -> None:
    flow = ScriptedFlow(*[Report(num_steps=10) for _ in range(2)])
    with scripted(tmp_path, flow, checkpoint_seconds=0) as training:
        training.turn()
        with torch.no_grad():
            next(iter(training.learner.policy.parameters())).view(-1)[3] = float("nan")
        with pytest.raises(TrainingError, match="the last checkpoint is valid"):
            training.turn()
    assert CheckpointStore(tmp_path / "checkpoints").load()[0] == 10


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{", b"[]", b'{"train": []}', b'{"train": {"algorithm": 3}}'])
def test_a_config_that_cannot_be_read_is_reported_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("device", "message"),
    [("nonsense", "none that torch knows"), ("cuda:99", "sees . GPUs here"), ("mps", "cannot be computed on here")],
)
@pytest.mark.parametrize("simulators", [0, 1])
def test_a_device_that_is_not_there_is_reported_before_anything_is_started(
    tmp_path: Path, device: str, message: str, simulators: int
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(tmp_path, device=device, trial="monday", simulators=simulators)
    assert not (tmp_path / "monday").exists()


@pytest.mark.usefixtures("metrics_at_every_update")
def test_a_full_disk_does_not_end_a_run_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No file may be written to for a while, by a limit of the kernel's, which fails as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    steps: list[int] = []

    def on_progress(step: int, values: dict[str, float]) -> None:
        steps.append(step)
        if len(steps) in (3, 12):
            soft = 1 if len(steps) == 3 else before[0]
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, before[1]))

    try:
        run = runs.train(
            "ppo", "CartPole-v1", steps=5_000, seed=1, num_envs=4, num_steps=32, num_epochs=1, threads=1,
            eval_episodes=1, checkpoint_seconds=0, project=str(tmp_path), on_progress=on_progress,
        )  # fmt: skip
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert run.result["steps"] >= 5_000
    written = [line["step"] for line in read_metrics(run.trial_dir)]
    assert steps[0] in written
    assert not {*steps[3:11]} & {*written}
    assert {*steps[13:]} <= {*written}
    for text in ("metrics of step", "metrics are written again", "Training goes on; the next one is tried"):
        assert caplog.text.count(text) == 1
    assert runs.evaluate(run.trial_dir, episodes=1)["steps"] == run.result["steps"]
