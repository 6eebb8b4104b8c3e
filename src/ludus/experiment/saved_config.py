"""The configuration of a trial in its folder: `config.json`, and whether the code that it names may be run."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from ludus import errors, files
from ludus.command_line import trial_command
from ludus.envs.games import is_game
from ludus.envs.registry import PREFIXES
from ludus.experiment.config import Config
from ludus.program import trust

__all__ = ["load_config", "trust_config", "write_trial"]

_SEAL_FILE = "config.seal"


def write_trial(folder: Path, config: Config) -> None:
    """What is known at the start: `config.json` and `versions.json`; if it names files of code, a seal of it, too."""
    files.replace_json(folder / "config.json", config.to_json())
    if _named_code(config.to_json()):
        trust_config(folder)
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("ludus", "torch", "numpy", "gymnasium", "ale-py", "envpool", "pettingzoo", "mpe2"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    files.replace_json(folder / "versions.json", versions)


def load_config(folder: Path) -> Config:
    """What `config.json` of a trial says.

    Raises `ConfigError`, also if it names code, a file or a module, and was not made by this user on this machine:
    its callers go on to run that.
    """
    path = folder / "config.json"
    try:
        content = path.read_bytes()
        saved = json.loads(content)
        if (named := _named_code(saved)) and not _is_own(folder, content):
            raise errors.ConfigError(
                f"{path} says to run code of {' and '.join(named)}, and it was not made by this user on this machine; "
                f"nothing was run. If you trust its author, once: {trial_command('serve', folder, '--trust')}, or "
                f"{trial_command('resume', folder, '--trust')}"
            )
        return Config.from_json(saved)
    except FileNotFoundError:
        raise errors.ConfigError(f"{folder} is not the folder of a training run: it has no config.json.") from None
    except errors.ConfigError:
        raise
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise errors.ConfigError(f"{path} cannot be read: {error!r}.") from None


def trust_config(folder: Path) -> None:
    """The user agrees to run the code that `config.json` names, as it is now."""
    content = (folder / "config.json").read_bytes()
    files.replace(folder / _SEAL_FILE, [trust.seal(content).hex().encode()])


def _is_own(folder: Path, content: bytes) -> bool:
    try:
        return trust.is_own(content, bytes.fromhex((folder / _SEAL_FILE).read_text()))
    except (FileNotFoundError, ValueError):
        return False


def _named_code(saved: Any) -> list[str]:
    """The names that stand for code outside of the libraries that Ludus knows: files, and modules to be imported."""
    named = (saved["train"]["env"], saved["train"]["algorithm"], saved["network"].get("model"))
    return [
        str(name)
        for name in named
        if name and not is_game(str(name)) and str(name).rpartition(":")[0] not in ("", *PREFIXES)
    ]
