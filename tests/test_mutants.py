"""The list of `make mutants`: none is stale. And its runner: it tells what was noticed from what was not."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def load_runner():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "benchmarks" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


mutants = load_runner()
LISTED, EXPLAINED = mutants.read_list()


def test_there_are_enough_and_each_has_a_name_of_its_own():
    names = [mutant.what for mutant in LISTED]
    assert len(names) >= 120
    assert len(set(names)) == len(names)
    assert set(EXPLAINED) <= set(names)
    floors = {mutant.file.removeprefix("src/ludus/").partition("/")[0] for mutant in LISTED}
    assert floors >= {
        "learn", "data", "rpc", "workers", "discovery", "launch", "services", "models", "gateway", "experiment",
        "serving", "trial", "envs",
    }  # fmt: skip


def test_every_pattern_is_in_its_file_once_and_what_replaces_it_is_python():
    stale = [f"{mutant.what}: {fault}" for mutant in LISTED if (fault := mutant.fault(ROOT))]
    assert not stale, "adapt these in benchmarks/mutants.toml, or remove them:\n" + "\n".join(stale)
    for mutant in LISTED:
        source = (ROOT / mutant.file).read_text()
        changed = mutant.apply(source)
        assert changed != source, f"{mutant.what} changes nothing"
        ast.parse(changed)


def test_every_mutant_names_tests_that_are_there():
    for mutant in LISTED:
        words = shlex.split(mutant.tests)
        paths = [word for word in words if word.startswith("tests/")]
        assert paths, mutant.what
        for path in paths:
            assert (ROOT / path).exists(), f"{mutant.what}: there is no {path}"
        if "-k" in words:
            found = "".join(
                file.read_text()
                for path in paths
                for file in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("test_*.py"))
            )
            found += "".join(path.read_text() for path in (ROOT / "src/ludus/testing").glob("*.py"))
            chosen = re.findall(r"\w+", words[words.index("-k") + 1])
            for name in set(chosen) - {"and", "or", "not"}:
                assert name.lower() in found.lower(), f"{mutant.what}: no test is named {name}"


@pytest.fixture
def tree(tmp_path):
    """A tree with one function, one test of it, and four mutants."""
    package = tmp_path / "src" / "ludus"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "small.py").write_text("def add(a, b):\n    c = 0\n    return a + b\n\n\ndef wait():\n    return 0\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_small.py").write_text(
        "import time\n\nfrom ludus import small\n\n\ndef test_add():\n    assert small.add(2, 3) == 5\n"
        "    time.sleep(small.wait())\n"
    )
    (tmp_path / "mutants.toml").write_text(
        """
        [[part]]
        file = "src/ludus/small.py"
        tests = "tests/test_small.py"
        mutants = [
          ["the sum is a product", 'a + b', 'a * b'],
          ["what nobody reads", 'c = 0', 'c = 1'],
          ["it hangs", 'return 0', 'return 600'],
          ["what is not there", 'a - b', 'b - a'],
        ]

        [survivors]
        "what nobody reads" = "c is not used"
        """
    )
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def run(tree, *arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / "mutants.py"), "--root", str(tree)]
    command += ["--mutants", str(tree / "mutants.toml"), "--preload", "pytest", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.timeout(300)
def test_the_runner_tells_killed_survived_and_stale_apart_and_leaves_the_tree_alone(tree):
    before = (tree / "src/ludus/small.py").read_text()
    done = run(tree, "--only", "product|nobody|not there", "--timeout", "200", "--no-baseline")
    verdicts = re.findall(r"^(killed|survived|stale) +[\d.]+ s  small\.py: ([\w ]+?)  ", done.stdout, re.MULTILINE)
    assert verdicts == [
        ("killed", "the sum is a product"), ("survived", "what nobody reads"), ("stale", "what is not there"),
    ], done.stdout + done.stderr  # fmt: skip
    assert "3 mutants: 1 killed, 1 survived, 1 stale" in done.stdout
    assert "what nobody reads: c is not used" in done.stdout
    assert done.returncode == 1
    assert (tree / "src/ludus/small.py").read_text() == before


@pytest.mark.timeout(300)
def test_a_mutant_that_hangs_is_killed(tree):
    done = run(tree, "--only", "hangs", "--timeout", "1", "--no-baseline")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it hangs  timeout" in done.stdout


@pytest.mark.timeout(300)
def test_mutants_are_not_tried_with_tests_that_fail_without_them(tree):
    (tree / "tests/test_small.py").write_text("def test_add():\n    assert False\n")
    done = run(tree, "--only", "product")
    assert done.returncode == 2
    assert "these tests fail without any mutant" in done.stdout


@pytest.mark.parametrize(("num_survived", "is_well"), [(5, True), (6, False)])
def test_95_percent_must_be_killed_and_survivors_explained(num_survived, is_well):
    outcomes = [
        mutants.Outcome(
            mutant=mutants.Mutant(what=str(i), file="f", pattern="a", replacement="b", tests="t"),
            verdict="survived" if i < num_survived else "killed",
            detail="",
            seconds=0.0,
        )
        for i in range(100)
    ]
    assert mutants.verdict(outcomes, {str(i): "why" for i in range(10)})[0] is is_well
    assert mutants.verdict(outcomes, {})[0] is False
