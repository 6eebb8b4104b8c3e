"""Sample Factory's APPO: two rollout workers, a learner and an inference worker, all on the CPU.

    with_sample_factory.py rate --seconds 25      CartPole-v1: steps per second at 2 gradient steps per 2,048 steps
    with_sample_factory.py to-475                 seconds from process start to a greedy return of 475
    with_sample_factory.py pong --seconds 45      Pong, 84×84×4, frame-skip 4, Nature CNN, one epoch

Steps are counted when the learner has consumed them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import cv2
import gymnasium as gym
import numpy as np
import torch
from greedy import GOAL, greedy_return
from report import Pace, Report
from sample_factory.algo.learning.learner import Learner
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.action_distributions import argmax_actions
from sample_factory.algo.utils.rl_utils import prepare_and_normalize_obs
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.actor_critic import create_actor_critic
from sample_factory.model.model_utils import get_rnn_size
from sample_factory.train import make_runner

WARMUP_S, WINDOW_S = 8.0, 5.0

COMMON = ["--algo=APPO", "--device=cpu", "--num_workers=2", "--use_rnn=False", "--recurrence=1", "--with_wandb=False"]
ONE_EPOCH = [
    *COMMON,
    "--worker_num_splits=2",
    "--rollout=32",
    "--num_epochs=1",
    "--num_batches_per_epoch=1",
    "--normalize_input=False",
    "--normalize_returns=False",
    "--save_every_sec=1000",
]
ARGUMENTS = {
    "rate": [
        *ONE_EPOCH,
        "--env=CartPole-v1",
        "--num_envs_per_worker=64",
        "--batch_size=1024",
        *("--encoder_mlp_layers", "64", "64"),
    ],
    "pong": [
        *ONE_EPOCH,
        "--env=pong",
        "--num_envs_per_worker=8",
        "--batch_size=512",
        "--encoder_conv_architecture=convnet_atari",
        *("--encoder_conv_mlp_layers", "512"),
        "--nonlinearity=relu",
        "--obs_scale=255.0",
        "--env_frameskip=1",  # the environment skips frames itself, so that a step is an agent's step
    ],
    # As in the example of Sample Factory's own sf_examples/train_gym_env.py, but saved more often.
    "to-475": [
        *COMMON,
        "--env=CartPole-v1",
        "--num_envs_per_worker=20",
        "--policy_workers_per_policy=2",
        "--with_vtrace=False",
        "--batch_size=512",
        "--reward_scale=0.1",
        "--save_every_sec=2",
    ],
}


class Pong(gym.Env):
    """ale-py's Pong, seen as everybody sees it: grey, 84×84, 4 frames, the brighter of the last two of 4 skipped."""

    render_mode = None

    def __init__(self, seed: int) -> None:
        from ale_py import ALEInterface, LoggerMode, roms

        cv2.setNumThreads(0)
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self._ale = ALEInterface()
        self._ale.setInt("random_seed", seed)
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.loadROM(roms.get_rom_path("pong"))
        self._actions = self._ale.getMinimalActionSet()
        self._random = np.random.default_rng(seed)
        self._screens = np.zeros((2, 210, 160), np.uint8)
        self._frames = np.zeros((4, 84, 84), np.uint8)
        self.observation_space = gym.spaces.Box(0, 255, self._frames.shape, np.uint8)
        self.action_space = gym.spaces.Discrete(len(self._actions))

    def reset(self, **_: Any) -> tuple[np.ndarray, dict]:
        self._ale.reset_game()
        for _ in range(self._random.integers(1, 30)):
            self._ale.act(0)
        self._frames[:] = 0
        self._ale.getScreenGrayscale(self._screens[0])
        self._screens[1] = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = sum(self._ale.act(self._actions[action]) for _ in range(3))
        self._ale.getScreenGrayscale(self._screens[0])
        reward += self._ale.act(self._actions[action])
        self._ale.getScreenGrayscale(self._screens[1])
        return self._observe(), float(reward), self._ale.game_over(), False, {}

    def _observe(self) -> np.ndarray:
        self._frames[:-1] = self._frames[1:]
        cv2.resize(self._screens.max(0), (84, 84), dst=self._frames[-1], interpolation=cv2.INTER_AREA)
        return self._frames.copy()


def make_pong(_name: str, _cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> gym.Env:
    return Pong(seed=1 + (env_config.env_id if env_config else 0))


def make_cartpole(name: str, _cfg: Any = None, _env_config: Any = None, render_mode: str | None = None) -> gym.Env:
    return gym.make(name)


class PaceObserver(AlgoObserver):
    """Ends the run when it was measured for long enough."""

    def __init__(self, seconds: float) -> None:
        self.pace = Pace(skip=1)
        self._seconds = seconds

    def on_training_step(self, runner: Runner, _iteration: int) -> None:
        if runner.env_steps:
            self.pace.mark(sum(runner.env_steps.values()))
        if self.pace.measured_s() >= self._seconds:
            end(runner)


class GoalObserver(AlgoObserver):
    """Plays every new checkpoint greedily: the weights live in the learner's process, so files are the way to them."""

    def __init__(self, report: Report) -> None:
        self.reached_s: float | None = None
        self.steps = 0
        self._report = report
        self._newest = ""

    def on_training_step(self, runner: Runner, _iteration: int) -> None:
        checkpoints = Learner.get_checkpoints(Learner.checkpoint_dir(runner.cfg, 0), "checkpoint_*")
        if self.reached_s is None and checkpoints and checkpoints[-1] != self._newest:
            self._newest = checkpoints[-1]
            saved = Learner.load_checkpoint([self._newest], torch.device("cpu"))
            if saved and self._greedy_return(runner.cfg, saved["model"]) >= GOAL:
                self.reached_s, self.steps = self._report.seconds(), saved["env_steps"]
                end(runner)

    def _greedy_return(self, cfg: Any, weights: dict[str, torch.Tensor]) -> float:
        example = gym.make("CartPole-v1")
        space = gym.spaces.Dict({"obs": example.observation_space})
        actor_critic = create_actor_critic(cfg, space, example.action_space)
        actor_critic.load_state_dict(weights)
        actor_critic.eval()

        @torch.inference_mode()
        def act(obs: np.ndarray) -> np.ndarray:
            inputs = prepare_and_normalize_obs(actor_critic, {"obs": torch.from_numpy(obs)})
            actor_critic(inputs, torch.zeros(len(obs), get_rnn_size(cfg)))
            return argmax_actions(actor_critic.action_distribution()).numpy().reshape(-1)

        return greedy_return(act, seed=1)


def end(runner: Runner) -> None:
    runner.cfg.train_for_env_steps = 0  # its limit in seconds is never looked at (2.1.1)


def train(task: str, observer: AlgoObserver, *, seed: int) -> None:
    folder = tempfile.mkdtemp(prefix="sf", dir=os.environ.get("BENCH_FOLDER"))
    arguments = [*ARGUMENTS[task], f"--train_dir={folder}", "--experiment=run", f"--seed={seed}"]
    register_env("pong", make_pong)
    register_env("CartPole-v1", make_cartpole)
    parser, _ = parse_sf_args(arguments)
    _, runner = make_runner(parse_full_cfg(parser, arguments))
    runner.register_observer(observer)
    runner.init()
    runner.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=ARGUMENTS)
    parser.add_argument("--seconds", type=float, default=25.0, help="measured time, after a warm-up of 8 s")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    report = Report.take_stdout()
    if args.task == "to-475":
        goal = GoalObserver(report)
        train(args.task, goal, seed=args.seed)
        report.send("sample-factory", seconds=goal.reached_s, steps=goal.steps)
    else:
        observer = PaceObserver(WARMUP_S + args.seconds)
        train(args.task, observer, seed=args.seed)
        rate = observer.pace.median_rate(warmup_s=WARMUP_S, window_s=min(WINDOW_S, args.seconds / 2))
        report.send("sample-factory", steps_per_second=rate)


if __name__ == "__main__":
    main()
