"""The rules of the house, asserted: exported names, doors, files that name one noun, a light import."""

import ast
import functools
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import ludus

SRC = Path(ludus.__file__).parent
DOORS = {
    "zmq": {"rpc/zmq.py"},
    "grpc": {"grpc/"},
    "grpc_health": {"grpc/"},
    "grpc_reflection": {"grpc/"},
    "grpc_tools": {"grpc/"},
    "google": {"grpc/"},
    "redis": {"redis_server.py"},
    "xxhash": {"models/pools/redis_pool.py"},
    "ray": {"launch/ray_engine.py"},
    "torch": {
        "data/batch.py",
        "learn/",
        "services/simulator/service.py",
        "models/",
        "services/trainer/ranks.py",
        "experiment/wiring.py",
        "trial/named/clone.py",
        "trial/named/model.py",
        "training/policy_trainer.py",
        "trial/named/trainer.py",
        "training/api.py",
    },
    "gymnasium": {"envs/gymnasium.py", "envs/ale.py", "envs/spaces.py", "envs/tuple_spaces.py"},
    "ale_py": {"envs/ale.py"},
    "envpool": {"envs/envpool.py"},
    "pettingzoo": set(),  # its modules are found by the env's name: `envs/pettingzoo.py`
    "mpe2": set(),
    "lbforaging": set(),  # by its id: `envs/tuple_spaces.py`
    "rware": set(),
    "matplotlib": {"experiment/plot.py"},
    "tensorboard": set(),
    "h5py": {"experiment/datasets/minari.py"},
    "cloudpickle": {"launch/spec.py", "models/definition.py"},
    "httptools": {"gateway/http/connection.py"},
    "uvloop": {"gateway/loop.py"},
    "openskill": {"league/rating.py"},
    "numba": {"learn/search/loops.py"},
    "scipy": {"league/solvers.py"},
    "open_spiel": {"league/solvers.py", "testing/spiel_referee.py"},
    "pyspiel": {"envs/openspiel/library.py"},
    "starlette": {"page/"},
    "uvicorn": {"page/"},
    "htpy": {"page/"},
    "onnx": {"models/backends/onnx.py"},
    "onnxruntime": {"models/backends/onnx.py"},
}


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return done.stdout


@functools.cache
def _imports() -> dict[str, set[str]]:
    """The modules that each file imports, anywhere in it."""
    found = {}
    for path in SRC.rglob("*.py"):
        modules = found[str(path.relative_to(SRC))] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module)
    return found


def _users_of(library: str) -> set[str]:
    return {user for user, modules in _imports().items() if any(module.split(".")[0] == library for module in modules)}


def test_the_exported_names_are_these():
    assert set(ludus.__all__) == {
        "Actor",
        "BatchBuffer",
        "Games",
        "Handle",
        "PrefetchBuffer",
        "Program",
        "RemoteActor",
        "RemoteBuffer",
        "RemoteModel",
        "RemoteTrainer",
        "RpcClient",
        "RpcServer",
        "Session",
        "Solver",
        "TorchTensorBuffer",
        "TrainingRun",
        "Worker",
        "WorkerControlPanel",
        "WorkerServer",
        "__version__",
        "all_reduce",
        "evaluate",
        "fake",
        "get_torch_model_weights",
        "init",
        "launch",
        "league",
        "merge",
        "name_resolve",
        "rank",
        "register",
        "resume",
        "run_until_asked_to_stop",
        "set_torch_model_weights",
        "should_stop",
        "subscribe",
        "topic",
        "train",
        "world_size",
    }
    for name in ludus.__all__:
        assert getattr(ludus, name) is not None
    with pytest.raises(AttributeError):
        _ = ludus.nothing_of_that_name


def test_every_module_says_what_it_exports_and_has_it():
    for module in pkgutil.walk_packages([str(SRC)], "ludus."):
        path = SRC.joinpath(*module.name.split(".")[1:])
        source = (path / "__init__.py" if module.ispkg else path.with_suffix(".py")).read_text()
        if module.ispkg and not source.strip():
            continue
        tree = ast.parse(source)
        assert ast.get_docstring(tree), f"{module.name} does not say what it is"
        if module.name.endswith("__main__") or "__all__" not in source:
            continue
        loaded = importlib.import_module(module.name)
        missing = [name for name in loaded.__all__ if not hasattr(loaded, name)]
        assert not missing, f"{module.name} exports {missing}"


@pytest.mark.parametrize("library", sorted(DOORS))
def test_a_library_has_one_door(library):
    users, doors = _users_of(library), DOORS[library]
    folders = tuple(door for door in doors if door.endswith("/"))
    assert {user for user in users if not user.startswith(folders)} == {door for door in doors if door not in folders}
    assert all(any(user.startswith(folder) for user in users) for folder in folders)


def test_one_module_knows_the_classes_of_services():
    """The composition roots, of trials and of leagues; all others call workers by their names.

    A gateway worker for games is itself a service.
    """
    known = {
        user: services
        for user, modules in _imports().items()
        if (services := {module for module in modules if module.endswith((".service", ".game_worker"))})
    }
    assert known == {
        "trial/services.py": {
            "ludus.experiment.game_worker",
            "ludus.gateway.service",
            "ludus.models.service",
            "ludus.models.versions.service",
            "ludus.services.buffer.service",
            "ludus.services.simulator.service",
            "ludus.services.trainer.service",
        },
        "experiment/game_worker.py": {"ludus.gateway.service"},
        "league/running.py": {"ludus.league.service"},  # its program has nodes of a floor above the first root
    }


def test_opening_a_trial_for_a_run_of_this_process_loads_neither_engines_nor_names():
    code = (
        "import sys; import ludus.trial.current, ludus.trial.find; "
        "print(sorted(m for m in sys.modules if m.startswith(('ludus.rpc', 'ludus.launch', 'ludus.discovery.reg'))))"
    )
    assert _python(code).strip() == "[]"


def test_importing_ludus_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys, time, json; began = time.process_time(); import ludus; took = time.process_time() - began; "
        "heavy = sorted({'torch', 'ray', 'zmq', 'numpy'} & set(sys.modules)); print(json.dumps([took, heavy]))"
    )
    runs = [json.loads(_python(code)) for _ in range(3)]
    assert min(took for took, _ in runs) < 0.3
    assert runs[0][1] == []


def test_using_workers_and_programs_does_not_import_torch_or_ray():
    code = (
        "import sys, ludus; ludus.Worker, ludus.Program, ludus.Solver, ludus.launch; "
        "print(sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    assert _python(code).strip() == "[]"


def test_no_file_is_named_for_nothing():
    vague = {"utils", "util", "misc", "common", "helpers", "manager", "base"}
    assert not [path for path in SRC.rglob("*.py") if path.stem in vague]


def test_nothing_unpickles_what_came_over_a_socket():
    assert _users_of("pickle") | _users_of("cloudpickle") <= DOORS["cloudpickle"]
