"""`ludus league`: a population of players that train against each other.

    ludus league board:connect_four                    # begins, or goes on; Ctrl-C keeps all
    ludus league board:connect_four --main 2 --learners 2 --simulators 1 --minutes 15
    ludus league status TRIAL                          # standings, and who beats whom
    ludus league add TRIAL second --role main          # also: freeze, remove, snapshot, promote NAME; set KEY=VALUE
    ludus league add TRIAL rival --from OTHER@main-3   # weights of another trial, to be met as they are

What is changed of a league that runs counts from its next match on.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from rich import box, text
from rich.console import Console
from rich.table import Table

from ludus import errors
from ludus.cli import options, page_options
from ludus.cli.extras import expect_installed
from ludus.command_line import command_line
from ludus.experiment import config as experiment
from ludus.league import config as configs
from ludus.league.players import ROLES
from ludus.learn.algorithms import registry
from ludus.telemetry import progress

__all__ = ["add_arguments", "print_payoff", "run"]

_MOST_SHOWN = 20
_TERMINATED = 128 + signal.SIGTERM

_ACTIONS = {
    "status": "standings, and who beats whom",
    "add": "a player: NAME, with --role and --model, or --from another trial",
    "freeze": "NAME learns no more",
    "remove": "NAME and all its results",
    "snapshot": "NAME as it is now becomes a player",
    "promote": "NAME is the champion; without a name, the one that is rated highest",
    "set": "KEY=VALUE ... of the rules, as roles.main.share=2",
}
_TRAIN = ("steps", "seed", "project", "trial", "checkpoint_seconds", "env_args", "threads", "device")


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    if words and words[0] in _ACTIONS:
        _add_action(parser, words[0])
        return
    parser.usage = "ludus league GAME [--option value …]"
    parser.epilog = "also: ludus league ACTION TRIAL\n" + "\n".join(
        f"  {name:<9} {what}" for name, what in _ACTIONS.items()
    )
    parser.add_argument("game", metavar="GAME", help="board:connect_four, pettingzoo:tictactoe_v3, openspiel:…, …")
    parser.add_argument(
        "--algorithm", default=None, help="ppo, appo, a2c, impala or, the default of board games, alphazero"
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON on standard output")
    page_options.add_page(parser)
    group = parser.add_argument_group("the league")
    options.add_options(group, configs.LeagueConfig())
    _add_secrets(group)
    game = _game(words)
    if game is None:
        return
    algorithm = _algorithm(words) or configs.default_algorithm(game)
    config = experiment.resolve(algorithm, game)
    without = {field for field in vars(config.train) if field not in _TRAIN}
    options.add_options(parser.add_argument_group("the run"), config.train, without=without)
    unused = registry.algorithm_class(algorithm).unused
    options.add_options(parser.add_argument_group(f"the algorithm, {algorithm}"), config.algorithm, hidden=unused)
    options.add_options(parser.add_argument_group("the network"), config.network)


def _add_secrets(group: Any) -> None:
    """What games must have; for one run, as no file of the trial has it."""
    for name, help in (("token", "bearer token that games must have"), ("secret", "secret that games sign by")):
        group.add_argument(f"--{name}", metavar="TEXT", help=f"serve: {help}; other users can see it here")


def run(args: argparse.Namespace) -> int:
    if hasattr(args, "action"):
        return _act(args)
    algorithm = args.algorithm or configs.default_algorithm(args.game)
    given = options.given_options(args, configs.LeagueConfig())
    given |= {name: vars(args)[name] for name in ("token", "secret") if vars(args)[name] is not None}
    if given.get("serve") is not None:
        expect_installed("uvloop", "httptools", extra="serve")
    config = experiment.resolve(algorithm, args.game)
    for part in (config.train, config.algorithm, config.network):
        given |= {name: value for name, value in options.given_options(args, part).items() if name != "algorithm"}
    given.pop("env", None)
    from ludus.league import api  # brings torch

    steps = int(given["steps"]) if "steps" in given else None
    total_s = 60.0 * float(given["minutes"]) if given.get("minutes") is not None else None
    project, name = given.get("project") or "trials", given.get("trial") or configs.trial_name(args.game)
    page = page_options.page_beside(project, f"/trials/{quote(str(name))}", is_wanted=args.page, port=args.page_port)
    try:
        with page, progress.Progress(steps, total_s=total_s) as shown:
            found = api.league(
                args.game,
                algorithm=args.algorithm,
                on_progress=shown.update,
                on_status=shown.status,
                on_served=lambda url: print(f"games play matches at {url}", file=sys.stderr, flush=True),
                **given,
            )
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != _TERMINATED:
            raise
        where = [word for name in ("project", "trial") if name in given for word in (f"--{name}", str(given[name]))]
        print(f"\nstopped; go on with: {command_line('league', args.game, *where)}", file=sys.stderr)
        return _TERMINATED if isinstance(end, SystemExit) else 130
    if args.json:
        print(json.dumps(found.result))
        return 0
    print(f"{found.result['game']}: {found.result['steps']:,} steps; trial {found.result['trial']}")
    for number, each in enumerate(found.standings[:_MOST_SHOWN], 1):
        rating = f"{each['mean']:6.1f} ± {1.96 * each['std']:.1f}"
        print(f"{number:>3}. {each['name']:<24} {rating}   {each['win_rate']:.0%} won")
    return 0


def _algorithm(words: Sequence[str]) -> str | None:
    for index, word in enumerate(words):
        if word == "--algorithm" and index + 1 < len(words):
            return words[index + 1]
        if word.startswith("--algorithm="):
            return word.partition("=")[2]
    return None


def _game(words: Sequence[str]) -> str | None:
    return words[0] if words and not words[0].startswith("-") else None


# --- what is done to a league that is there


def _add_action(parser: argparse.ArgumentParser, action: str) -> None:
    parser.usage = f"ludus league {action} TRIAL{'' if action == 'status' else ' …'}"
    parser.add_argument("action", choices=[action], metavar=action, help=_ACTIONS[action])
    parser.add_argument("trial", metavar="TRIAL", help="a name in the project folder, or the path of a trial")
    options.add_project(parser)
    match action:
        case "status":
            parser.add_argument("--json", action="store_true", help="print one line of JSON instead of tables")
            parser.add_argument(
                "--side", type=int, help="who beats whom where the player of a row has this side, from 0"
            )
        case "set":
            parser.add_argument("settings", nargs="+", metavar="KEY=VALUE", help="values are read as JSON, or as text")
        case "promote":
            parser.add_argument("name", nargs="?", metavar="NAME")
        case "add":
            parser.add_argument("name", metavar="NAME")
            parser.add_argument("--role", choices=ROLES, help="default: main, or frozen with --from")
            parser.add_argument("--model", help="of a bot, its program; of others, a model in the pool (default: NAME)")
            parser.add_argument(
                "--from",
                dest="source",
                metavar="TRIAL",
                help="weights of another trial, as they are: TRIAL, TRIAL@VERSION, or LEAGUE@PLAYER",
            )
            parser.add_argument("--model-version", type=int, help="that it plays; default: the newest")
            parser.add_argument("--sides", help="that it can play, as 0,1; default: all")
            parser.add_argument("--search", type=int, default=0, help="simulations of a tree search before each move")
            parser.add_argument("--gumbel", action="store_true", help="the search has Gumbel roots")
        case _:
            parser.add_argument("name", metavar="NAME")


def _act(args: argparse.Namespace) -> int:
    from ludus.league.live import open_league

    if args.action == "status":
        return _show_status(args)
    if args.action == "add" and args.source is not None:
        print(_import(args))
        return 0
    with open_league(args.trial, project=args.project) as league:
        done = _DO[args.action](league, args)
    print(done)
    return 0


def _add(league: Any, args: argparse.Namespace) -> str:
    role = args.role or "main"
    model = None if role == "human" else args.model or args.name
    league.add_player(
        {
            "name": args.name,
            "role": role,
            "model": model,
            "version": args.model_version,
            "search": args.search,
            "gumbel": args.gumbel,
            "sides": _sides(args),
        }
    )
    return f"{args.name} is a player now: {role}" + ("" if model is None else f", model {model}")


def _import(args: argparse.Namespace) -> str:
    if args.role not in (None, "frozen"):
        raise errors.ConfigError(
            f"--from is for players that are met as they are, --role frozen; a {args.role} has weights of its own. "
            "Leave --role or --from out"
        )
    if args.model_version is not None:
        raise errors.ConfigError("--model-version is of a model that is here: write --from TRIAL@VERSION instead")
    from ludus.league.frozen_import import import_player  # brings torch

    player = import_player(
        args.trial,
        args.name,
        args.source,
        project=args.project,
        model=args.model,
        sides=_sides(args),
        search=args.search,
        gumbel=args.gumbel,
    )
    of = f"version {player.version} of model {player.model}, from {args.source}"
    return f"{player.name} is a player now: frozen, {of}"


def _sides(args: argparse.Namespace) -> list[int]:
    sides = [] if args.sides is None else args.sides.split(",")
    if not all(side.isdecimal() for side in sides):
        raise errors.ConfigError(f"--sides {args.sides}: write the numbers of sides, as 0,1")
    return [int(side) for side in sides]


def _freeze(league: Any, args: argparse.Namespace) -> str:
    league.freeze_player(args.name)
    return f"{args.name} learns no more"


def _remove(league: Any, args: argparse.Namespace) -> str:
    league.remove_player(args.name)
    return f"{args.name} and its results are gone"


def _snapshot(league: Any, args: argparse.Namespace) -> str:
    taken = league.snapshot(args.name)
    return f"{taken['name']} is {args.name} at step {taken['step']:,}"


def _promote(league: Any, args: argparse.Namespace) -> str:
    from ludus.league.champion import crown, crown_champion, why_not_served  # brings torch
    from ludus.league.players import player_of
    from ludus.serving import promotion
    from ludus.trial.find import find
    from ludus.trial.trained import MODEL

    folder = find(args.trial, project=args.project).path
    if args.name is None:
        league.promote(None)
        if promotion.is_chosen(folder, MODEL):  # it was of one that was promoted
            crown_champion(folder)
        return "the champion is the one that is rated highest"
    player = next((player_of(each) for each in league.players() if each["name"] == args.name), None)
    if player is None:
        league.promote(args.name)  # which refuses a name that is nobody's
        return f"{args.name} is the champion"
    if (why_not := why_not_served(folder, player)) is not None:
        league.promote(player.name)
        return f"{player.name} is the champion, and `ludus serve` does not play it: {why_not}"
    version = crown(folder, player, league).version
    return f"{player.name} is the champion, and what `ludus serve` has new sessions play: version {version} of policy"


def _set(league: Any, args: argparse.Namespace) -> str:
    change: dict[str, Any] = {}
    for setting in args.settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise errors.ConfigError(f"{setting!r} sets nothing: write KEY=VALUE, as roles.main.share=2")
        at = change
        *path, last = key.split(".")
        for part in path:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                break
        if not isinstance(at, dict) or last in at:
            raise errors.ConfigError(f"{setting!r} is set twice: give each rule, or a whole that has it, once")
        try:
            at[last] = json.loads(value)
        except ValueError:
            at[last] = value
    league.update_config(change)
    return "the rules are changed, from the next match on"


_DO: dict[str, Callable[[Any, argparse.Namespace], str]] = {
    "add": _add,
    "freeze": _freeze,
    "remove": _remove,
    "snapshot": _snapshot,
    "promote": _promote,
    "set": _set,
}


def _show_status(args: argparse.Namespace) -> int:
    from ludus.league.folder import FOLDER
    from ludus.league.live import champion_of, find_league
    from ludus.league.view import VIEW_FILE, expect_view, num_sides, payoff_of, spell_side

    folder, config = find_league(args.trial, project=args.project)
    view = expect_view(folder / FOLDER / VIEW_FILE)
    num = num_sides(view)
    view["payoff"] = payoff = payoff_of(view, args.side)
    if args.json:
        print(json.dumps(view))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    stats = view["stats"]
    found = champion_of([{"player": each} for each in view["players"]], view.get("champion"))
    champion = f"; champion {found['name']}" if found is not None else ""
    console.print(
        f"{config.game}: {stats['num_players']} players, {stats['num_games']:,} games, "
        f"{stats['num_in_flight']} matches in flight{champion}"
    )
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("", "player", "role"):
        table.add_column(column)
    for column in ("step", "rating", "Elo", "won", "games, decayed"):
        table.add_column(column, justify="right")
    for number, each in enumerate(view["players"][:_MOST_SHOWN], 1):
        table.add_row(
            str(number),
            text.Text(each["name"]),
            text.Text(each["role"]),
            f"{each['step']:,}",
            f"{each['mean']:.1f} ± {1.96 * each['std']:.1f}",
            f"{each['elo']:+.0f} ± {1.96 * each['elo_std']:.0f}",
            f"{each['win_rate']:.0%}",
            f"{each['games']:.0f}",
        )
    console.print(table)
    if len(view.get("mixture") or ()) > 1:
        shares = sorted(view["mixture"].items(), key=lambda each: -each[1])
        shown = ", ".join(f"{share:.0%} {name}" for name, share in shares[:_MOST_SHOWN])
        console.print(text.Text(f"mixture of snapshots and bots that is hardest to beat: {shown}"))
    names = [each["name"] for each in view["players"][:_MOST_SHOWN]]
    of_row = "row" if args.side is None else f"row as {spell_side(args.side, num)}"
    print_payoff(console, names, payoff, title=f"won by {of_row} against column")
    if (left_out := len(view["players"]) - _MOST_SHOWN) > 0:
        console.print(f"and {left_out} more; --json has all")
    return 0


def print_payoff(
    console: Console, names: Sequence[str], payoff: Any, *, title: str = "won by row against column"
) -> None:
    """How often the player of a row beats that of a column; a dot: they have not met."""
    where = {name: number for number, name in enumerate(payoff["players"])}
    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column("")
    for number, _name in enumerate(names, 1):
        table.add_column(str(number), justify="right")
    for number, name in enumerate(names, 1):
        cells = []
        for other in names:
            games = payoff["games"][where[name]][where[other]]
            rate = payoff["win_rate"][where[name]][where[other]]
            colour = "green" if rate > 0.55 else "red" if rate < 0.45 else ""
            cells.append(text.Text(f"{100 * rate:.0f}" if games else "·", style=colour if games else "dim"))
        table.add_row(text.Text(f"{number} {name}"), *cells)
    console.print(table)
