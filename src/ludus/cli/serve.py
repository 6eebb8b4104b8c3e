"""`ludus serve TRIAL`: games call a trial's policy over HTTP; docs/protocol.md says how.

ludus serve 20261115-201402 --port 8000 --version production --canary candidate=10%
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ludus import errors
from ludus.cli import options, page_options
from ludus.cli.extras import expect_installed
from ludus.command_line import trial_command
from ludus.options import option
from ludus.trial.find import find

if TYPE_CHECKING:
    from ludus.trial.named.model import RemoteModel

__all__ = ["add_arguments", "parse_arguments", "parse_canaries", "parse_canary", "run"]


@dataclass(frozen=True, kw_only=True)
class _Gateway:
    port: int = option(8000, help="port that games call; 0: any free port", minimum=0, maximum=65535)
    grpc_port: int | None = option(None, help="port for games by gRPC; 0: any free port", minimum=0, maximum=65535)
    host: str = option("127.0.0.1", help="host to listen on; beyond loopback a token or a secret is needed")
    num_workers: int = option(1, help="processes that share the port", minimum=1)
    lease_s: float = option(60.0, help="seconds that a session lives without a step", minimum=0.1)
    max_sessions: int = option(10_000, help="sessions at a time, in each process", minimum=1)
    max_body_bytes: int = option(16 * 1024 * 1024, help="largest request body", minimum=1)
    max_buffered_bytes: int = option(256 * 1024 * 1024, help="limit on unanswered requests, in each process", minimum=1)
    token: str | None = option(None, help="bearer token that games must have; other users can see it here")
    token_file: str | None = option(None, help="a file that has it; or set LUDUS_TOKEN or LUDUS_TOKEN_FILE")
    secret: str | None = option(None, help="secret that games sign their requests with; other users can see it here")
    secret_file: str | None = option(None, help="a file that has it; or set LUDUS_SECRET or LUDUS_SECRET_FILE")
    tls_cert: str | None = option(None, help="TLS certificate, a PEM file")
    tls_key: str | None = option(None, help="TLS key, a PEM file")
    record: bool = option(False, help="record all sessions, for `ludus replay`")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial", metavar="TRIAL", help="a name in the project folder, or the path of a trial")
    parser.add_argument("--version", default="production", help="what new sessions play: a tag, a number or latest")
    parser.add_argument(
        "--canary", action="append", default=[], metavar="TAG=PERCENT", help="give this share of new sessions to a tag"
    )
    parser.add_argument("--model", default="policy", help="the policy that is served, by its name in the trial")
    parser.add_argument("--actor", metavar="MODULE:CLASS", help="an actor of your own, or FILE.py:CLASS")
    parser.add_argument("--actor-args", default="{}", metavar="JSON", help="arguments of the actor, as a JSON object")
    options.add_options(parser, _Gateway())
    options.add_project(parser)
    parser.add_argument(
        "--trust", action="store_true", help="run the code of a trial that was made by others, or on another machine"
    )
    parser.add_argument("--json", action="store_true", help="say where it listens in one line of JSON")
    page_options.add_page(parser)


def run(args: argparse.Namespace) -> int:
    expect_installed("torch", extra="train")
    expect_installed("uvloop", "httptools", extra="serve")
    if getattr(args, "grpc_port", None) is not None:
        expect_installed("grpc", "grpc_health", "grpc_reflection", extra="grpc")
    from ludus.serving.serve import serve
    from ludus.trial import current as trials
    from ludus.trial import wait

    canary = parse_canaries(args.canary)
    actor_args = parse_arguments(args.actor_args)
    chosen = asdict(_Gateway()) | options.given_options(args, _Gateway())
    for name in ("token", "secret"):
        chosen[name] = options.find_secret(name, chosen[name], chosen.pop(f"{name}_file"))
    folder = find(args.trial, project=args.project).path
    page = page_options.page_beside(
        str(folder.parent), f"/trials/{quote(folder.name)}", is_wanted=args.page, port=args.page_port
    )
    with page:
        made, remote = trials.open(project=folder.parent, trial=folder.name, join=False), None
        try:
            player = _crown_champion(folder, args)
            remote = serve(
                folder,
                version=args.version,
                canary=canary,
                model=args.model,
                actor=args.actor,
                actor_args=actor_args,
                trust=args.trust,
                **chosen,
            )
            if args.json:
                more = {} if chosen["grpc_port"] is None else {"grpc_url": remote.grpc_url}
                print(json.dumps({"url": remote.url, **more, "trial": str(folder)}), flush=True)
            else:
                print("\n".join(_describe(folder, args, canary, remote.url, chosen, player)), flush=True)
                if chosen["grpc_port"] is not None:
                    print(f"by gRPC: {remote.grpc_url}, ludus.game.GameService", flush=True)
            wait.run_until_asked_to_stop()
        except KeyboardInterrupt:  # before it waited for that
            if remote is None:
                raise
        finally:
            made.close()
    print("all sessions have ended", file=sys.stderr)
    return 0


def _crown_champion(folder: Path, args: argparse.Namespace) -> str | None:
    """Of a league, have its champion be what is served, and say who that is."""
    from ludus.league.folder import is_league
    from ludus.trial.trained import MODEL

    if args.actor is not None or args.model != MODEL or not is_league(folder):
        return None
    if args.trust:
        from ludus.serving.serve import trust_trial

        trust_trial(folder)
    from ludus.league.champion import crown_champion  # brings torch

    return crown_champion(folder).player


def _describe(
    folder: Path,
    args: argparse.Namespace,
    canary: Mapping[str, float],
    url: str,
    gateway: Mapping[str, Any],
    player: str | None,
) -> list[str]:
    """What is served where, by which version, and a request to try it with."""
    if args.actor is not None:
        share = "".join(f", {tag} for {part:.4g} of new sessions" for tag, part in canary.items())
        return [f"serving {folder.name} ({args.version}{share}) at {url}; Ctrl-C ends it"]
    from ludus.serving.example_request import example_curl
    from ludus.trial.named.model import RemoteModel

    model = RemoteModel(args.model)
    numbers = {tag: _number(model, tag) for tag in (args.version, *canary)}
    share = "".join(f", version {numbers[tag]} ({tag}) for {part:.4g} of new sessions" for tag, part in canary.items())
    lines = [] if player is None else [f"the champion of the league {folder.name} is {player}"]
    lines += [
        f"serving {folder.name}, version {numbers[args.version]} ({args.version}){share}, at {url}; Ctrl-C ends it"
    ]
    if model.step not in numbers.values():
        promote = trial_command("promote", folder)
        lines.append(f"version {model.step} is newer and is not served; to have new sessions play it: {promote}")
    if gateway["secret"] is not None:
        lines.append("requests must be signed: docs/protocol.md, or a client of docs/clients.md")
    else:
        policy = model.get_model()
        curl = example_curl(
            url, policy.spec.obs, has_token=gateway["token"] is not None, in_session=policy.is_recurrent
        )
        lines.append(f"try it: {curl}")
    return lines


def _number(model: RemoteModel, version: str) -> int | str:
    """What a tag stands for now."""
    return model.step if version in ("latest", "follow") else model.tags().get(version, version)


def parse_canaries(texts: Iterable[str]) -> dict[str, float]:
    """The share of each tag."""
    shares: dict[str, float] = {}
    for tag, share in map(parse_canary, texts):
        if tag in shares:
            raise errors.ConfigError(f"--canary {tag} is given twice; which share is meant? Give each tag once")
        shares[tag] = share
    return shares


def parse_canary(text: str) -> tuple[str, float]:
    """`candidate=10%` or `candidate=0.1`."""
    tag, sign, share = text.partition("=")
    try:
        part = float(share.removesuffix("%")) / (100.0 if share.endswith("%") else 1.0)
    except ValueError:
        part = -1.0
    if not tag or not sign or not 0.0 <= part <= 1.0:
        raise errors.ConfigError(f"--canary {text}: must be a tag and its share, such as candidate=10%")
    return tag, part


def parse_arguments(text: str) -> dict[str, Any]:
    """An actor's arguments, of `--actor-args`."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise errors.ConfigError(f"--actor-args is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise errors.ConfigError(f"--actor-args {text}: must be a JSON object")
    return value
