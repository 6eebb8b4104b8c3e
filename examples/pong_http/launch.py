"""Train: model, buffer, actors and trainer of one trial; the games are processes of their own that only know the port.

    python launch.py --versions 120 && python deploy.py

It prints how far it is; TensorBoard shows more: tensorboard --logdir trials
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from actor import PongActor
from model import NUM_FEATURES, PongModel
from trainer import train_pong

import ludus

PROGRESS_S = 5.0


def main() -> None:
    import numpy as np

    parser = argparse.ArgumentParser(description="train Pong through the gateway")
    parser.add_argument("--project", default="trials")
    parser.add_argument("--trial", default="pong")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--versions", type=int, default=120, help="how many to train")
    parser.add_argument("--segments", type=int, default=32, help="of 64 steps, for one version")
    parser.add_argument("--trainers", type=int, default=1)
    args = parser.parse_args()

    trial = ludus.init(project=args.project, trial=args.trial)
    model = ludus.RemoteModel("pong", PongModel(), forward_args=(np.zeros(NUM_FEATURES, np.float32),))
    ludus.RemoteBuffer("pong", capacity=2 * args.segments)
    actor = ludus.RemoteActor(port=args.port, route={"follow": 1.0})  # learn from the newest version always
    actor.serve(Actor=PongActor, model="pong", buffer="pong")
    first = model.step
    trainer = ludus.RemoteTrainer(num_workers=args.trainers)
    trainer.train(train=train_pong, model="pong", buffer="pong", segments=args.segments, versions=args.versions)
    gamecore = Path(__file__).parent / "gamecore.py"
    game = subprocess.Popen([sys.executable, str(gamecore), "--url", actor.url, "--games", str(args.games)])
    print(f"training {args.versions} versions with {args.games} games at {actor.url}; Ctrl-C ends it", flush=True)
    try:
        while not trainer.wait(PROGRESS_S):
            print(progress(model.step - first, args.versions, trial.folder / "metrics.jsonl"), flush=True)
        print(progress(model.step - first, args.versions, trial.folder / "metrics.jsonl"), flush=True)
    except KeyboardInterrupt:
        print("interrupted; the versions that were trained are kept", flush=True)
    finally:  # the games first: those that are left without a server would say so
        game.kill()
        game.wait()
        trial.close()


def progress(num_versions: int, wanted: int, metrics: Path) -> str:
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
    points = [values["points"] for values in map(json.loads, lines) if "points" in values]
    score = f", {points[-1]:+.1f} points a match" if points else ""
    return f"version {num_versions} of {wanted}{score}"


if __name__ == "__main__":
    main()
