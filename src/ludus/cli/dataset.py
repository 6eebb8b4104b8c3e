"""`ludus dataset`: make episodes into data that `ludus train bc` or `iql` learns from.

ludus dataset from-recording trials/poles/recordings --out expert          # sessions that `ludus serve --record` wrote
ludus dataset from-recording log.sessions --spec game.json --out expert    # of a game that this file describes
ludus dataset play poles --episodes 20 --out expert                        # a trained policy plays
ludus dataset from-trial lander --out seen                             # all that the replay of a DQN run has kept
ludus dataset from-minari ~/.minari/datasets/D4RL/pen/human-v2 --out pen
ludus dataset info expert

ludus train bc CartPole-v1 --dataset expert
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ludus import errors, spelling
from ludus.cli import options
from ludus.cli.extras import expect_installed
from ludus.command_line import command_line
from ludus.experiment.config import MAX_SEED
from ludus.options import option
from ludus.telemetry.progress import Progress
from ludus.trial.find import find

if TYPE_CHECKING:
    from ludus.core import EnvSpec
    from ludus.experiment.datasets.dataset import Dataset

__all__ = ["add_arguments", "run"]


@dataclass(frozen=True, kw_only=True)
class _Play:
    episodes: int = option(20, help="number of episodes to play", minimum=1)
    seed: int = option(0, help="seed of the environments", minimum=0, maximum=MAX_SEED)
    greedy: bool = option(True, help="play the most likely action instead of a sample")


class _Source(NamedTuple):
    """`add(parser)` declares what it takes, `make(args)` writes the dataset and may have more to say about it."""

    summary: str
    add: Callable[[argparse.ArgumentParser], None]
    make: Callable[[argparse.Namespace], tuple[Dataset, list[str]]]


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    what = next((word for word in words if not word.startswith("-")), None)
    if what is not None and what not in _SOURCES:
        raise errors.ConfigError(f"there is no `ludus dataset {what}`. {spelling.nearest(what, _SOURCES)}")
    choices = "; ".join(f"{name}: {source.summary}" for name, source in _SOURCES.items())
    parser.add_argument("what", metavar="WHAT", help=choices)
    if what is None:
        parser.epilog = "With one of these before it, --help shows what it takes."
        return
    parser.usage = f"ludus dataset {what} … [--option value …]"
    _SOURCES[what].add(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of sentences")


def run(args: argparse.Namespace) -> int:
    dataset, remarks = _SOURCES[args.what].make(args)
    if args.json:
        print(json.dumps({"folder": str(dataset.folder), **dataset.summary}))
        return 0
    for line in (*_sentences(dataset), *remarks):
        print(line)
    if args.what != "info":
        env = dataset.source.get("env", "ENV")
        print(f"learn from it: {command_line('train', 'bc', env, '--dataset', str(dataset.folder))}")
    return 0


def _sentences(dataset: Dataset) -> list[str]:
    summary = dataset.summary
    return [
        f"{dataset.folder}: {dataset.num_episodes:,} episodes, {dataset.num_steps:,} steps, each of "
        f"{summary['length_min']} to {summary['length_max']}",
        f"return {summary['return_mean']:.4g} ± {summary['return_std']:.4g}, from {summary['return_min']:.4g} to "
        f"{summary['return_max']:.4g}",
        f"obs {json.dumps(summary['spec']['obs'])}, action {json.dumps(summary['spec']['action'])}"
        f"{', with masks' if summary['spec']['mask'] else ''}",
        f"made from: {json.dumps(dataset.source)}",
    ]


# --- recordings


def _add_recording(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="+", help="recordings, or folders of them")
    parser.add_argument("--spec", metavar="FILE", help="JSON that says what the game sees and does; docs/games.md")
    parser.add_argument("--trial", help="take that from this trial; by default from the one that was recorded")
    options.add_project(parser)
    _add_out(parser)


def _from_recording(args: argparse.Namespace) -> tuple[Dataset, list[str]]:
    from ludus.experiment.datasets.recordings import dataset_from_recordings, find_recordings
    from ludus.gateway.record import count_records

    recordings = find_recordings(args.file)
    spec = _recorded_spec(args, recordings[0])
    with Progress(sum(map(count_records, recordings)), unit="records") as progress:
        dataset, counts = dataset_from_recordings(
            recordings,
            Path(args.out),
            spec,
            env=spec.name if args.spec is None else None,
            on_progress=progress.update,
        )
    remarks = [f"of {counts.num_records:,} records, {counts.num_sessions:,} sessions; {counts.num_cut_off:,} cut off"]
    if counts.num_refused or counts.num_stateless:
        remarks.append(f"left out: {counts.num_refused} refused steps, {counts.num_stateless} ticks without a session")
    return dataset, remarks


def _recorded_spec(args: argparse.Namespace, recording: Path) -> EnvSpec:
    from ludus.envs import games
    from ludus.experiment.datasets.recordings import recorded_spec
    from ludus.gateway.record import read_recording

    if args.spec is not None:
        return games.parse_spec(games.read_spec(args.spec), name=str(args.spec))
    if args.trial is not None:
        return recorded_spec(find(args.trial, project=args.project).path)
    trial = Path(str(read_recording(recording)[0].get("trial") or ""))
    if not trial.name or not trial.is_dir():
        raise errors.ConfigError(
            f"{recording} does not say what its game sees and does: its trial is not here. Give --trial, or --spec "
            'game.json, such as {"obs": {"shape": [4]}, "action": {"discrete": 2}}'
        )
    return recorded_spec(trial)


# --- others


def _add_play(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial", metavar="TRIAL", help="a name in the project folder, or the path of a trial")
    options.add_options(parser, _Play())
    options.add_project(parser)
    _add_out(parser)


def _play(args: argparse.Namespace) -> tuple[Dataset, list[str]]:
    expect_installed("torch", extra="train")
    trial = find(args.trial, project=args.project, trained=True).path
    from ludus.experiment.datasets.playing import dataset_from_play  # brings torch

    chosen: dict[str, Any] = asdict(_Play()) | options.given_options(args, _Play())
    with Progress(chosen["episodes"], unit="episodes") as progress:
        return dataset_from_play(trial, Path(args.out), on_progress=progress.update, **chosen), []


def _add_trial(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial", metavar="TRIAL", help="a run of an algorithm with replay: dqn, sac, …")
    options.add_project(parser)
    _add_out(parser)


def _from_trial(args: argparse.Namespace) -> tuple[Dataset, list[str]]:
    trial = find(args.trial, project=args.project, trained=True).path
    from ludus.experiment.datasets.table_dumps import dataset_from_trial

    with _Shown("steps") as shown:
        return dataset_from_trial(trial, Path(args.out), on_progress=shown), []


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="DIR", help="the folder of a store of trajectories")
    parser.add_argument("--spec", metavar="FILE", help="JSON that says what is seen and done; docs/games.md")
    parser.add_argument("--trial", help="take that from this trial")
    options.add_project(parser)
    _add_out(parser)


def _from_store(args: argparse.Namespace) -> tuple[Dataset, list[str]]:
    from ludus.experiment.datasets.table_dumps import dataset_from_store

    if args.spec is None and args.trial is None:
        raise errors.ConfigError("a store does not say how many choices its actions have: give --spec or --trial")
    spec = _recorded_spec(args, Path(args.store))
    with _Shown("steps") as shown:
        return dataset_from_store(Path(args.store), Path(args.out), spec, on_progress=shown), []


def _add_minari(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the folder of a Minari dataset, or its main_data.hdf5")
    _add_out(parser)


def _from_minari(args: argparse.Namespace) -> tuple[Dataset, list[str]]:
    from ludus.experiment.datasets.minari import dataset_from_minari

    with _Shown("episodes") as shown:
        return dataset_from_minari(args.path, Path(args.out), on_progress=shown), []


def _add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a dataset")
    parser.add_argument("--verify", action="store_true", help="read all of it and compare it with its SHA-256")


def _info(args: argparse.Namespace) -> tuple[Dataset, list[str]]:
    from ludus.experiment.datasets.dataset import Dataset

    dataset = Dataset.open(args.folder)
    if not args.verify:
        return dataset, []
    with Progress(dataset.num_episodes, unit="episodes") as progress:
        for number, _ in enumerate(dataset.episodes(), 1):
            progress.update(number)
    return dataset, ["all of it is as it was written"]


class _Shown(contextlib.ExitStack):
    """Progress whose total is known only with its first number."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit
        self._progress: Progress | None = None

    def __call__(self, num: int, total: int) -> None:
        if self._progress is None:
            self._progress = self.enter_context(Progress(total, unit=self._unit))
        self._progress.update(num)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", required=True, help="folder of the new dataset")


_SOURCES = {
    "from-recording": _Source("recorded sessions of games", _add_recording, _from_recording),
    "play": _Source("a trained policy plays in its environment", _add_play, _play),
    "from-trial": _Source("what the replay of a training run has kept", _add_trial, _from_trial),
    "from-store": _Source("a replay store in a folder", _add_store, _from_store),
    "from-minari": _Source("a Minari dataset on disk", _add_minari, _from_minari),
    "info": _Source("what a dataset holds", _add_info, _info),
}
