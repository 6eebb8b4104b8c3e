"""`ludus.train`: from a name of an algorithm and of an environment to a policy that plays.

run = ludus.train("ppo", "CartPole-v1", steps=100_000, seed=1)
run.result["eval_return_mean"]
run.policy.act(obs)
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ludus import errors
from ludus.command_line import command_line, trial_command
from ludus.envs.games import Games
from ludus.experiment import config as configs
from ludus.experiment.results import read_result
from ludus.program import folder as folders
from ludus.program import lock
from ludus.trial import current as trials
from ludus.trial import interrupts
from ludus.trial.find import find
from ludus.trial.metrics import LoopMetrics, TrialMetrics

__all__ = ["TrainingRun", "evaluate", "resume", "train"]

_LOG = logging.getLogger(__name__)
_NUM_COMPARED = 20

OnProgress = Callable[[int, dict[str, float]], None]
OnStatus = Callable[[str], None]


class TrainingRun:
    """A run that has ended: its result, its folder, its policy."""

    def __init__(self, trial_dir: Path, result: Mapping[str, Any]) -> None:
        self.trial_dir = trial_dir
        self.result = dict(result)
        self._player: Any = None

    @property
    def policy(self) -> Any:
        """The trained policy, as a `Player`: `action = run.policy.act(obs)`. Loaded when first asked for."""
        if self._player is None:
            from ludus.experiment.player import load_player

            self._player = load_player(self.trial_dir)
        return self._player


def train(
    algorithm: str,
    env: str | Games,
    *,
    on_progress: OnProgress | None = None,
    on_status: OnStatus | None = None,
    began: float | None = None,
    **settings: Any,
) -> TrainingRun:
    """Train and come back when it is over. `settings` are those of `ludus train --help`, with underscores.

    `env` is the name of an environment, or `Games`, which call: docs/games.md.

    `on_progress(step, values)` comes a few times a second; `on_status("busy: update, 4.1 s")`, from any thread, what
    is under way while there is no progress. Interrupted (Ctrl-C), it ends the update that is under way, writes a
    checkpoint and raises `KeyboardInterrupt`; `resume` goes on from there. Raises `ConfigError` and `EnvError` before
    anything is started, and `ProgramError` if a trial of that name is running.
    """
    began = time.time() if began is None else began
    config = configs.resolve(algorithm, env, settings)
    folder = folders.TrialFolder.create(config.train.project, config.train.trial)
    is_new = False
    try:
        with (
            contextlib.closing(TrialMetrics(folder.path, is_loops=True)) as written,
            _take(config, folder, written) as taken,
        ):
            if (folder.path / "config.json").exists():
                raise errors.ConfigError(
                    f"trial {folder.path.name!r} is there already; go on with it "
                    f"({trial_command('resume', folder.path)}), or choose another name."
                )
            is_new = True
            return _run(config, taken, written, began=began, on_progress=on_progress, on_status=on_status)
    except (errors.ConfigError, errors.EnvError, errors.MissingExtra):
        if is_new:
            # unless another process drives it now, or it is gone
            with contextlib.suppress(errors.ProgramError, FileNotFoundError), lock.driving(folder.path):
                _forget(folder.path)
        raise


def resume(
    trial: str | Path,
    *,
    project: str = "trials",
    on_progress: OnProgress | None = None,
    on_status: OnStatus | None = None,
    began: float | None = None,
    trust: bool = False,
) -> TrainingRun:
    """Go on with a trial that was stopped, killed or cut off, from its newest valid checkpoint.

    A trial that was killed before its first checkpoint starts again; one that has ended is returned as it is. `trust`:
    run the files of code that its config names, though it was made by another user or on another machine.
    """
    began = time.time() if began is None else began
    folder = find(trial, project=project, trained=True)
    from ludus.experiment.saved_config import load_config, trust_config

    if trust:
        trust_config(folder.path)
    config = load_config(folder.path)
    if (folder.path / "league").is_dir():
        raise errors.ConfigError(
            f"trial {folder.path.name!r} is a league, and is not trained as one policy. Go on with it: "
            f"{command_line('league', config.train.env, '--trial', folder.path.name)}"
        )
    if (result := read_result(folder.path)) is not None:
        return TrainingRun(folder.path, result)
    with (
        contextlib.closing(TrialMetrics(folder.path, is_loops=True)) as written,
        _take(config, folder, written) as taken,
    ):
        if (known := folder.find()) is not None and known.is_live:
            raise errors.ProgramError(
                f"trial {folder.path.name!r} is running: process {known.driver_pid} on {known.driver_host} drives it."
            )
        if (result := read_result(folder.path)) is not None:  # it ended just now
            return TrainingRun(folder.path, result)
        if (damaged := folder.path / "result.json").exists():
            _LOG.warning("%s is damaged and removed: the end of the run is gone through again.", damaged)
            damaged.unlink()
        return _run(config, taken, written, began=began, on_progress=on_progress, on_status=on_status)


def evaluate(
    trial: str | Path,
    *,
    project: str = "trials",
    episodes: int = 100,
    seed: int = 0,
    greedy: bool = True,
    max_steps: int | None = None,
    env_args: str | Mapping[str, Any] = "{}",
    env: str | None = None,
    model: str = "policy",
    search: int = 0,
    gumbel: bool = False,
) -> dict[str, Any]:
    """Play episodes with a trial's newest weights, none longer than `max_steps`; `None`: as the trial has it.

    `search`: simulations of a tree search before each move, in games that have rules; 0: the policy alone plays.
    `gumbel`: by Gumbel roots.
    `env_args`, a mapping or its JSON, go over the arguments that the trial's evaluation has: on ALE, unclipped rewards.
    Of several agents each has its `return_mean/AGENT`; where they compete, `vs_random` is the share of games won
    against random play. A trial that was not trained plays a policy that a script made as its `model`, in `env`.
    """
    folder = find(trial, project=project)
    if gumbel and not search:
        raise errors.ConfigError("gumbel is about a search: give its simulations, as search=64, too, or neither")
    from ludus.experiment import evaluation, matches
    from ludus.experiment.search_player import SearchPlayer
    from ludus.learn.search.settings import SearchSettings

    loaded, config = _load_for_evaluation(folder.path, env, model)
    options: dict[str, Any] = {
        "seed": seed,
        "max_steps": max_steps,
        "env_args": configs.parse_env_args(env_args, setting="env_args") if isinstance(env_args, str) else env_args,
    }
    policy = loaded.policy
    if search:
        game_args = {**config.eval_env_args, **(options["env_args"] or {})}
        policy = SearchPlayer(policy, config.train.env, game_args, SearchSettings.at_play(search, gumbel=gumbel))
    played = evaluation.evaluate(policy, config, episodes=episodes, greedy=greedy, **options)
    result = {
        "trial": str(folder.path),
        "steps": loaded.num_steps,
        "return_mean": played.mean,
        "return_std": played.std,
        "return_min": min(played.returns),
        "return_max": max(played.returns),
        "length_mean": sum(played.lengths) / len(played.lengths),
        "episodes": played.num_episodes,
        "cut_off": played.num_cut_off,
    }
    if (num_agents := len(played.agents)) == 1:
        return result
    result |= {f"return_mean/{agent}": played.mean_of(row) for row, agent in enumerate(played.agents)}
    few = min(episodes, _NUM_COMPARED)  # played the other way: in a game of many draws one way alone does not tell
    other = evaluation.evaluate(policy, config, episodes=few, greedy=not greedy, warns=False, **options)
    if not config.is_cooperative and matches.is_competitive(played, other):
        against = matches.play_matches(
            policy, None, config, num_agents=num_agents, episodes=episodes, greedy=greedy, **options
        )
        result |= {
            "vs_random": against.win_rate,
            "vs_random_return_mean": against.return_mean,
            "vs_episodes": against.num_episodes,
        }
    return result


def _load_for_evaluation(folder: Path, env: str | None, model: str) -> tuple[Any, configs.Config]:
    """The player, and a config that says what it plays."""
    from ludus import envs
    from ludus.data import nest as nests
    from ludus.experiment import player
    from ludus.experiment.saved_config import load_config

    def shapes(obs: Any) -> list[Any]:
        return [(leaf.shape, leaf.dtype) for leaf in nests.leaves(obs)]

    if (folder / "config.json").is_file():
        if env is not None:
            raise errors.ConfigError(f"trial {folder.name!r} has an environment of its own: leave env={env!r} out.")
        return player.load_player(folder), load_config(folder)
    loaded = player.load_model_player(folder, model)
    if env is None:
        raise errors.ConfigError(f"trial {folder.name!r} was not made by `ludus train`: say what it plays, by its env.")
    config = configs.resolve("ppo", env, {})
    wanted, given = loaded.policy.spec.obs, envs.spec(env, **config.env_args).obs
    if shapes(wanted) != shapes(given):
        raise errors.ConfigError(
            f"the policy {model!r} of trial {folder.name!r} sees {wanted}, and {env} shows {given}."
        )
    return loaded, config


def _take(config: configs.Config, folder: folders.TrialFolder, written: TrialMetrics) -> trials.Trial:
    has_workers = not config.is_embedded
    return trials.take(folder, engine=config.train.engine, metrics=written, has_workers=has_workers)


def _run(
    config: configs.Config,
    trial: trials.Trial,
    written: TrialMetrics,
    *,
    began: float,
    on_progress: OnProgress | None,
    on_status: OnStatus | None,
) -> TrainingRun:
    try:
        import torch  # noqa: F401 - to tell of its absence in one clear sentence
    except ImportError:
        raise errors.MissingExtra("torch", extra="train") from None
    from ludus.experiment import saved_config, status, wiring

    saved_config.write_trial(trial.folder, config)
    if not config.is_embedded:
        from ludus.training import spread

        ended_with = spread.run(config, trial, began=began, on_progress=on_progress, on_status=on_status)
        return TrainingRun(trial.folder, ended_with)
    folder = folders.TrialFolder(trial.folder)
    _mark(folder, config)
    ended = "failed"
    interruption = KeyboardInterrupt()

    def tell(step: int, values: dict[str, float]) -> None:
        nonlocal interruption
        try:
            if on_progress is not None:
                on_progress(step, values)
        except KeyboardInterrupt as error:  # as if by Ctrl-C
            interruption = error
            training.ask_stop()

    try:
        with (
            wiring.embedded(
                config,
                folder.path,
                began=began,
                on_progress=tell,
                open_metrics=functools.partial(LoopMetrics, written),
            ) as training,
            contextlib.ExitStack() as stack,
        ):
            training.restore()
            if on_status is not None:
                stack.enter_context(status.StatusReporter(lambda: (training.num_steps, training.doing), on_status))
            with interrupts.deferred_to(training.ask_stop):
                while not training.is_done and not training.is_stopped:
                    training.turn()
                if not training.is_stopped:
                    training.keep_last()
            if training.is_stopped:
                ended = f"stopped at step {training.num_steps}"
                raise interruption
            result = training.finish()
        ended = "finished"
        return TrainingRun(folder.path, result)
    finally:
        folder.mark_ended(ended)


def _mark(folder: folders.TrialFolder, config: configs.Config) -> None:
    """Say who drives the trial, so that nobody else does at the same time."""
    folder.save(folders.TrialRecord.own(folder.path, experiment="train", names_url="memory://", engine="embedded"))
    folder.save_program({"program": "train", "nodes": [], "edges": [], "config": config.to_json()})


def _forget(folder: Path) -> None:
    """Take back what was written of a run that could not even begin, so that its name is free for the next try."""
    if (folder / "metrics.jsonl").exists() or any((folder / "checkpoints").glob("*")):
        return
    for name in ("config.json", "config.seal", "versions.json", "trial.json", "program.json", lock.LOCK_FILE):
        (folder / name).unlink(missing_ok=True)
    for path in (folder / "checkpoints", folder / "logs", folder / "workers", folder):
        with contextlib.suppress(OSError):  # it holds something that is not ours to remove, or was never made
            path.rmdir()
