"""The datasets of the offline cases of `learn.py`, each made unless it is there: under build/offline.

    python benchmarks/offline_data.py cartpole corridor continuous_corridor

`cartpole`: 20 episodes of a linear controller that is served by a gateway and recorded there, converted by
`ludus dataset from-recording`. The corridors: 200 episodes of players who go to the prize one time in four, 50 of those
who do so every other time; `tests/experiment/datasets/corridor.py` is the env.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "offline"
sys.path.insert(0, str(ROOT / "tests" / "experiment" / "datasets"))  # what is measured here is tested there, smaller

from corridor import CONTINUOUS_CORRIDOR, CORRIDOR, record_corridor  # noqa: E402
from recorded_games import SPEC_FILE, record_cartpole  # noqa: E402


def cartpole() -> None:
    log, spec, out = FOLDER / "cartpole.sessions", FOLDER / "cartpole.json", FOLDER / "cartpole"
    log.unlink(missing_ok=True)
    record_cartpole(log, episodes=20)
    spec.write_text(json.dumps(SPEC_FILE))
    words = ["dataset", "from-recording", str(log), "--spec", str(spec), "--out", str(out)]
    subprocess.run([sys.executable, "-m", "ludus.cli.main", *words], check=True, stdout=subprocess.DEVNULL)


def corridor() -> None:
    record_both("corridor", CORRIDOR)


def continuous_corridor() -> None:
    record_both("continuous_corridor", CONTINUOUS_CORRIDOR)


def record_both(name: str, env: str) -> None:
    record_corridor(FOLDER / f"{name}-bad", to_the_right=0.25, episodes=200, env=env)
    record_corridor(FOLDER / name, to_the_right=0.5, episodes=50, env=env, seed=1)


DATASETS: dict[str, Callable[[], None]] = {
    "cartpole": cartpole,
    "corridor": corridor,
    "continuous_corridor": continuous_corridor,
}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for wanted in sys.argv[1:]:
        if not (FOLDER / wanted / "dataset.json").exists():
            DATASETS[wanted]()
