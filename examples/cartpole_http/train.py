"""CartPole learnt entirely through the gateway: the game is another process that only speaks the protocol.

    python train.py --steps 200000

There is no actor code: `PolicyActor` takes JSON observations, and `train_policy` is PPO on what it keeps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import ludus
from ludus.data.actions import Discrete
from ludus.data.spec import ArraySpec
from ludus.learn.policies.policy import PolicySpec
from ludus.learn.policies.served import ServedPolicy
from ludus.serving.policy_actor import PolicyActor
from ludus.training.policy_trainer import train_policy

GAME = Path(__file__).parent / "game.py"
SETTINGS = {"num_epochs": 10, "minibatch_size": 256, "gamma": 0.98, "lam": 0.8, "learning_rate": 1e-3, "anneal": True}


def main() -> None:
    parser = argparse.ArgumentParser(description="CartPole through the gateway")
    parser.add_argument("--project", default="trials")
    parser.add_argument("--trial", default=None)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument(
        "--episodes", type=int, default=100, help="of the evaluation, which goes through the gateway, too"
    )
    args = parser.parse_args()

    began = time.monotonic()
    trial = ludus.init(project=args.project, trial=args.trial)
    spec = PolicySpec(obs=ArraySpec((4,), np.float32), action=Discrete(2))
    policy = ServedPolicy(spec, seed=args.seed)
    model = ludus.RemoteModel("cartpole", policy, forward_args=policy.example())
    ludus.RemoteBuffer("cartpole", capacity=64)
    training = ludus.RemoteActor()
    training.serve(Actor=PolicyActor, model="cartpole", buffer="cartpole", num_steps=32, seed=args.seed)
    serving = ludus.RemoteActor()
    serving.serve(Actor=PolicyActor, model="cartpole")
    trainer = ludus.RemoteTrainer()
    trainer.train(
        train=train_policy, model="cartpole", buffer="cartpole", steps=args.steps, batch_steps=1024, seed=args.seed,
        **SETTINGS,
    )  # fmt: skip
    game = [sys.executable, str(GAME), "--games", str(args.games), "--seed", str(args.seed), "--port"]
    playing = subprocess.Popen([*game, str(training.port)])
    try:
        while not trainer.wait(1.0):
            if playing.poll() is not None:
                raise RuntimeError("the game has ended before the training")
    finally:
        playing.kill()
        playing.wait()
    trained_s = time.monotonic() - began
    evaluation = [*game, str(serving.port), "--episodes", str(args.episodes), "--version", "latest"]
    report = json.loads(subprocess.run(evaluation, check=True, capture_output=True, text=True).stdout)
    print(json.dumps({"seed": args.seed, "versions": model.step, "train_seconds": round(trained_s, 1), **report}))
    trial.close()


if __name__ == "__main__":
    main()
