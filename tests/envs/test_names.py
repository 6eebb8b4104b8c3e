"""From a name to envs: what is found, and what is said when it is not."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from ludus import envs
from ludus.data import Discrete
from ludus.envs.registry import adapter_of
from ludus.errors import EnvError, MissingExtra

GAMES = Path(__file__).parent / "games.py"


@pytest.mark.parametrize(
    ("name", "adapter"),
    [
        ("CartPole-v1", "gymnasium"),
        ("my_package:MyGame-v0", "gymnasium"),
        ("ALE/Pong-v5", "ale"),
        ("envpool:Pong-v5", "envpool"),
        ("pettingzoo:connect_four_v3", "pettingzoo"),
        ("mpe2:simple_spread_v3", "pettingzoo"),
        ("lbforaging:Foraging-8x8-2p-2f-coop-v3", "tuple_spaces"),
        ("rware:rware-tiny-2ag-v2", "tuple_spaces"),
        ("scenario:repositioning", "scenarios.named"),
        ("my_package.games:Chess.make", "function"),
        ("games/mine.py:make", "function"),
    ],
)
def test_a_name_tells_its_adapter(name, adapter):
    assert adapter_of(name) == adapter


@pytest.mark.parametrize("name", ["", ":make", "module:"])
def test_what_cannot_be_a_name_is_refused(name):
    with pytest.raises(EnvError, match="not the name of an env"):
        envs.make(name, 1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("CartPol-v1", "Did you mean 'CartPole-v1'"),
        ("ALE/Pongg-v5", "Did you mean 'ALE/Pong-v5'"),
        ("envpool:CartPol-v1", "Did you mean 'CartPole-v1'"),
        ("envpol:CartPole-v1", "Did you mean 'envpool'"),
        ("pettingzoo:connect_for_v3", "Did you mean 'connect_four_v3'"),
        ("mpe2:simple_spred_v3", "Did you mean 'simple_spread_v3'"),
        ("lbforaging:Foraging-8x8-2p-2f-co-op-v3", "Did you mean 'Foraging-8x8-2p-2f-coop-v3'"),
        ("rware:rware-tiny-2agents-v2", "Did you mean 'rware-tiny-2ag-v2'"),
        ("petingzoo:connect_four_v3", "Did you mean 'pettingzoo'"),
        ("no_such_module:make", "no module 'no_such_module'"),
        (f"{GAMES}:countin", "Did you mean 'counting'"),
        (f"{GAMES.parent}/gamez.py:counting", "Did you mean 'games.py'"),
        (f"{GAMES}:not_a_function", "is a int, not a function"),
        (f"{GAMES}:nonsense", "returned a str"),
        (f"{GAMES}:always_two", "returned 2 envs, 1 were asked for"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(name, said):
    with pytest.raises(EnvError, match=said):
        envs.make(name, 1)


def test_arguments_that_the_maker_does_not_take_are_an_error():
    for name in (
        "CartPole-v1",
        "Acrobot-v1",
        "envpool:CartPole-v1",
        "mpe2:simple_spread_v3",
        "rware:rware-tiny-2ag-v2",
        f"{GAMES}:rounds",
    ):
        with pytest.raises(EnvError, match="no_such_setting"):
            envs.make(name, 1, no_such_setting=1)


def test_an_unknown_vectorization_is_refused_and_so_is_one_that_is_not_there():
    with pytest.raises(EnvError, match='"auto", "vector" or "loop"'):
        envs.make("CartPole-v1", 1, vectorization="fast")
    with pytest.raises(EnvError, match="no vector environment"):
        envs.make("Acrobot-v1", 1, vectorization="vector")


def test_no_envs_cannot_be_made():
    with pytest.raises(EnvError, match="at least 1"):
        envs.make("CartPole-v1", 0)


def test_modules_are_looked_for_in_the_current_folder_too(monkeypatch, tmp_path):
    (tmp_path / "game_of_this_folder.py").write_text(GAMES.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert envs.spec("game_of_this_folder:counting").obs.shape == (3,)


def test_spec_tells_without_keeping_anything():
    spec = envs.spec("CartPole-v1")
    assert spec.action == Discrete(2)
    assert spec.obs.shape == (4,)
    assert spec.agents == ("agent",)


@pytest.mark.parametrize(
    ("library", "name", "extra"),
    [
        ("gymnasium", "CartPole-v1", "train"),
        ("ale_py", "ALE/Pong-v5", "atari"),
        ("envpool", "envpool:CartPole-v1", "envpool"),
        ("pettingzoo", "pettingzoo:connect_four_v3", "pettingzoo"),
        ("mpe2", "mpe2:simple_spread_v3", "pettingzoo"),
        ("lbforaging", "lbforaging:Foraging-8x8-2p-2f-coop-v3", "marl"),
        ("rware", "rware:rware-tiny-2ag-v2", "marl"),
    ],
)
def test_a_library_that_is_missing_is_named_with_what_to_install(monkeypatch, library, name, extra):
    for module in [key for key in sys.modules if key.startswith("ludus.envs.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    registry = importlib.import_module("ludus.envs.registry")
    with pytest.raises(MissingExtra, match=rf"ludus\[{extra}\]"):
        registry.make(name, 1)


def test_importing_envs_imports_no_library():
    code = (
        "import sys, ludus.envs; "
        "print(sorted({'gymnasium', 'ale_py', 'envpool', 'pettingzoo', 'mpe2', 'lbforaging', 'rware', 'torch'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "[]"
