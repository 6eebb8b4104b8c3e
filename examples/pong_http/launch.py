"""Train: model, buffer, actors and trainer of one trial; the games are processes of their own that only know the port.

    python launch.py --versions 120 && python deploy.py

TensorBoard shows how it goes: tensorboard --logdir trials
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from actor import PongActor
from model import NUM_FEATURES, PongModel
from trainer import train_pong

import ludus


def main() -> None:
    import numpy as np

    parser = argparse.ArgumentParser(description="train Pong through the gateway")
    parser.add_argument("--project", default="trials")
    parser.add_argument("--trial", default="pong")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--versions", type=int, default=120, help="how many to train")
    parser.add_argument("--replays", type=int, default=32, help="of 64 steps, for one version")
    parser.add_argument("--trainers", type=int, default=1)
    args = parser.parse_args()

    ludus.init(project=args.project, trial=args.trial)
    ludus.RemoteModel("pong", PongModel(), forward_args=(np.zeros(NUM_FEATURES, np.float32),))
    ludus.RemoteBuffer("pong", capacity=2 * args.replays)
    actor = ludus.RemoteActor(port=args.port, route={"follow": 1.0})  # learn from the newest version always
    actor.serve(Actor=PongActor, model="pong", buffer="pong")
    trainer = ludus.RemoteTrainer(num_workers=args.trainers)
    trainer.train(train=train_pong, model="pong", buffer="pong", replays=args.replays, versions=args.versions)
    gamecore = Path(__file__).parent / "gamecore.py"
    game = subprocess.Popen([sys.executable, str(gamecore), "--url", actor.url, "--games", str(args.games)])
    try:
        ludus.run_until_asked_to_stop(stop_when_trained=True)
    finally:
        game.kill()
        game.wait()


if __name__ == "__main__":
    main()
