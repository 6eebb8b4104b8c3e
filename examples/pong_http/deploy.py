"""Serve: the same actor as in training, without the buffer, with the newest version of the trial that launch.py made.

python deploy.py --matches 20     # plays 20 matches against it and tells the score
python deploy.py                  # serves until Ctrl-C
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from actor import PongActor

import ludus


def main() -> None:
    parser = argparse.ArgumentParser(description="serve Pong")
    parser.add_argument("--project", default="trials")
    parser.add_argument("--trial", default="pong")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--matches", type=int, default=0)
    args = parser.parse_args()

    trial = ludus.init(project=args.project, trial=args.trial)
    actor = ludus.RemoteActor(port=args.port)
    actor.serve(Actor=PongActor, model="pong")
    if not args.matches:
        print(f"Pong is served at {actor.url}", flush=True)
        ludus.run_until_asked_to_stop()
        return
    gamecore = Path(__file__).parent / "gamecore.py"
    command = [sys.executable, str(gamecore), "--url", actor.url, "--matches", str(args.matches), "--seed", "2"]
    subprocess.run(command, check=True)
    trial.close()


if __name__ == "__main__":
    main()
