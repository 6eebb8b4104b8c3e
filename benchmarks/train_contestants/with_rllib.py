"""RLlib on a Ray cluster that this process starts and ends: PPO on CartPole-v1, IMPALA on Pong (new API stack).

with_rllib.py rate --runners 2 --seconds 12      steps per second at the work that all contestants share
with_rllib.py to-475                             seconds from process start to a greedy return of 475
with_rllib.py pong --seconds 40                  steps per second, one epoch, lagging policies corrected by V-trace
"""

from __future__ import annotations

import os

# Before Ray is imported. Its workers would otherwise be niced by 15, and starve beside their own driver.
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")

import argparse
import tempfile
from typing import Any

import gymnasium as gym
import numpy as np
import ray
import torch
from greedy import GOAL, greedy_return
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env
from report import Pace, Report

NUM_ENVS = 64
# Without this, RLlib steps 64 separate environments; its tuned example and Pong have no other way.
VECTORISED = {"gym_env_vectorize_mode": "vector_entry_point"}


def shared_work(num_runners: int) -> PPOConfig:
    """64 environments × 32 steps, 4 epochs of 4 minibatches, 2×64 networks. No runner: the driver steps them itself."""
    num_envs = NUM_ENVS // max(1, num_runners)
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=num_runners, num_envs_per_env_runner=num_envs, rollout_fragment_length=32, **VECTORISED
        )
        .training(train_batch_size_per_learner=2048, minibatch_size=512, num_epochs=4, lr=2.5e-4)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
    )


def tuned_example() -> PPOConfig:
    """As in RLlib's own example of PPO on CartPole-v1, with more environments a runner (it has one)."""
    model = DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True)
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=8)
        .training(lr=0.0003, num_epochs=6, vf_loss_coeff=0.01)
        .rl_module(model_config=model)
    )


def pong() -> IMPALAConfig:
    model = DefaultModelConfig(
        conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]],
        conv_activation="relu",
        head_fcnet_hiddens=[512],
        vf_share_layers=True,
    )
    register_env("pong", make_pong)
    return (
        IMPALAConfig()
        .environment("pong")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=4, rollout_fragment_length=32)
        .training(train_batch_size_per_learner=512, lr=5e-4, grad_clip=40.0)
        .rl_module(model_config=model)
        .reporting(min_time_s_per_iteration=2)
    )


def make_pong(_config: Any) -> gym.Env:
    """84×84×4 grey frames, frame-skip 4; RLlib wants channels last and floats."""
    import ale_py

    gym.register_envs(ale_py)
    env = gym.make("ALE/Pong-v5", frameskip=1)
    env = gym.wrappers.AtariPreprocessing(env, frame_skip=4, grayscale_obs=True)
    env = gym.wrappers.FrameStackObservation(env, 4)
    space = gym.spaces.Box(0, 1, (84, 84, 4), np.float32)
    return gym.wrappers.TransformObservation(
        env, lambda obs: np.transpose(obs, (1, 2, 0)).astype(np.float32) / 255, space
    )


def sampled_steps(result: dict[str, Any]) -> int:
    return int(result["env_runners"].get("num_env_steps_sampled_lifetime", 0))


def trained_steps(result: dict[str, Any]) -> int:
    """Counts a step once for each epoch."""
    return int(result.get("learners", {}).get("default_policy", {}).get("num_module_steps_trained_lifetime", 0))


def measure_rate(config: AlgorithmConfig, seconds: float, *, seed: int, report: Report) -> None:
    algorithm = config.debugging(seed=seed).learners(num_learners=0).build_algo()
    pace, trained = Pace(skip=3), Pace(skip=3)
    while pace.measured_s() < seconds:
        result = algorithm.train()
        if sampled_steps(result):  # IMPALA's first iterations may end before any sample has arrived
            pace.mark(sampled_steps(result))
            trained.mark(trained_steps(result))
    report.send("ray", steps_per_second=pace.rate(), steps_trained_per_second=trained.rate())
    algorithm.stop()


def train_to_goal(config: AlgorithmConfig, *, seed: int, report: Report) -> None:
    algorithm = config.debugging(seed=seed).learners(num_learners=0).build_algo()

    @torch.inference_mode()
    def act(obs: np.ndarray) -> np.ndarray:
        outputs = algorithm.get_module().forward_inference({"obs": torch.from_numpy(obs)})
        return outputs["action_dist_inputs"].argmax(-1).numpy()

    while True:  # an iteration is 4,000 steps
        result = algorithm.train()
        if greedy_return(act, seed=sampled_steps(result)) >= GOAL:
            break
    report.send("ray", seconds=report.seconds(), steps=sampled_steps(result))
    algorithm.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=["rate", "to-475", "pong"])
    parser.add_argument("--runners", type=int, default=2, help="for rate; 0: everything in this process")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    report = Report.take_stdout()
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=1 << 30,
        _temp_dir=os.path.join(os.environ.get("BENCH_FOLDER", tempfile.gettempdir()), "ray"),
        _node_ip_address="127.0.0.1",
    )
    try:
        if args.task == "rate":
            measure_rate(shared_work(args.runners), args.seconds, seed=args.seed, report=report)
        elif args.task == "pong":
            measure_rate(pong(), args.seconds, seed=args.seed, report=report)
        else:
            train_to_goal(tuned_example(), seed=args.seed, report=report)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
