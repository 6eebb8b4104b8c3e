"""From the name of a game to a population that plays it.

run = league("board:connect_four", minutes=15)
run.standings[0]["name"]
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ludus import envs, errors
from ludus.experiment import saved_config
from ludus.experiment.results import RESULT_FILE
from ludus.league import code_bots
from ludus.league import config as configs
from ludus.league.config import LeagueRunConfig
from ludus.league.folder import FOLDER, is_league
from ludus.league.match_port import MatchPort, match_port, with_whole_paths, without_secrets
from ludus.learn.algorithms import registry
from ludus.program import folder as folders
from ludus.trial import current as trials
from ludus.trial.find import find
from ludus.trial.metrics import TrialMetrics

__all__ = ["LeagueRun", "league", "resume"]

OnProgress = Callable[[int, dict[str, float]], None]
OnStatus = Callable[[str], None]
OnServed = Callable[[str], None]


class LeagueRun:
    """A league that has ended, or was stopped: its folder and its standings, the strongest first."""

    def __init__(self, trial_dir: Path, result: Mapping[str, Any]) -> None:
        self.trial_dir = trial_dir
        self.result = dict(result)
        self.standings: list[dict[str, Any]] = self.result["standings"]


def league(
    game: str,
    *,
    algorithm: str | None = None,
    on_progress: OnProgress | None = None,
    on_status: OnStatus | None = None,
    on_served: OnServed | None = None,
    **settings: Any,
) -> LeagueRun:
    """Train a population and come back when it is over; a trial of that name that is there goes on.

    `settings` are those of `ludus league --help`, with underscores. Interrupted (Ctrl-C), it ends the turn that is
    under way, keeps all, and raises `KeyboardInterrupt`; the same call goes on from there. With `serve`, `on_served` is
    given the url where games play matches.
    """
    project, name = settings.get("project") or "trials", settings.get("trial") or configs.trial_name(game)
    path = Path(project) / str(name)
    if is_league(path):
        return resume(
            path,
            algorithm=algorithm,
            on_progress=on_progress,
            on_status=on_status,
            on_served=on_served,
            settings=settings,
            game=game,
        )
    if (path / "config.json").exists() and not (path / FOLDER).is_dir():
        raise errors.ConfigError(f"trial {path.name!r} is there already, and is no league. Choose another --trial")
    config = configs.resolve(game, without_secrets(settings), algorithm=algorithm)
    _check(config)
    port = _checked_port(config, settings)
    folder = folders.TrialFolder.create(project, str(name))
    return _run(
        config, folder, is_new=True, port=port, on_progress=on_progress, on_status=on_status, on_served=on_served
    )


def resume(
    trial: str | Path,
    *,
    project: str = "trials",
    algorithm: str | None = None,
    on_progress: OnProgress | None = None,
    on_status: OnStatus | None = None,
    on_served: OnServed | None = None,
    settings: Mapping[str, Any] | None = None,
    game: str | None = None,
) -> LeagueRun:
    """Go on with a league that was stopped, killed or has ended. `settings` are given again: how long, how spread."""
    folder = find(trial, project=project)
    config = configs.load(folder.path)
    if game is not None and game != config.game:
        raise errors.ConfigError(
            f"trial {folder.path.name!r} is a league of {config.game}, not of {game}. Choose another --trial"
        )
    config = configs.with_settings(config, without_secrets(settings or {}), algorithm=algorithm)
    for bot in config.league.bots:
        does = code_bots.allow if "bots" in (settings or {}) else code_bots.expect_allowed
        does(folder.path / FOLDER, bot)
    _check(config, folder.path)
    port = _checked_port(config, settings or {})
    return _run(
        config, folder, is_new=False, port=port, on_progress=on_progress, on_status=on_status, on_served=on_served
    )


def _checked_port(config: LeagueRunConfig, settings: Mapping[str, Any]) -> MatchPort | None:
    port = match_port(config.league, settings)
    if port is not None:
        port.check()
    return port


def _check(config: LeagueRunConfig, folder: Path | None = None) -> None:
    """Before anything is written. Raises `ConfigError` for what could not be played."""
    from ludus.league.bots import make_bot

    env = envs.spec(config.game, **config.training.env_args)
    if len(env.agents) < 2:
        raise errors.ConfigError(f"{config.game} has one agent: a league needs a game of two or more")
    config.settings(len(env.agents))
    if config.league.oracle == "exact":
        from ludus.league.psro.exact_oracle import exact_game  # brings OpenSpiel

        exact_game(config)
    _check_search(config)
    for bot in config.league.bots:
        make_bot(bot, config.game, config.training.env_args)
    if config.league.pool is not None or folder is not None:
        from ludus.league.pools import check_pool  # brings NumPy and the library of the server

        check_pool(config, folder)


def _check_search(config: LeagueRunConfig) -> None:
    train, network = config.training.train, config.training.network
    learns = registry.algorithm_class(train.algorithm).searches
    if not learns and not config.league.search:
        return
    what = f"--algorithm {train.algorithm}" if learns else f"--search {config.league.search}"
    if envs.rules(config.game, **config.training.env_args) is None:
        raise errors.ConfigError(
            f"{what} looks ahead by the rules of a game, and {envs.without_rules(config.game)}. Leave it out here"
        )
    if network.recurrent != "none":
        raise errors.ConfigError(f"{what} needs a network without state, not --recurrent {network.recurrent}")


def _run(
    config: LeagueRunConfig,
    folder: folders.TrialFolder,
    *,
    is_new: bool,
    port: MatchPort | None,
    on_progress: OnProgress | None,
    on_status: OnStatus | None,
    on_served: OnServed | None,
) -> LeagueRun:
    with (
        contextlib.closing(TrialMetrics(folder.path, is_loops=True)) as written,
        trials.take(folder, engine="local", metrics=written, has_workers=True) as trial,
    ):
        if is_new:
            saved_config.write_trial(folder.path, config.training)
            for bot in config.league.bots:
                code_bots.allow(folder.path / FOLDER, bot)
        from ludus.league.pools import settle_pool  # brings NumPy

        config = dataclasses.replace(settle_pool(config, folder.path), folder=folder.path)
        config = dataclasses.replace(config, league=with_whole_paths(config.league))
        config.write(folder.path)
        (folder.path / RESULT_FILE).unlink(missing_ok=True)
        from ludus.league import running  # brings torch and the engines

        result = running.run(
            config, trial, written, on_progress=on_progress, on_status=on_status, port=port, on_served=on_served
        )
        return LeagueRun(folder.path, result)
