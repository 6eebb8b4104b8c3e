import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.data.lookup import load_attribute, user_files
from ludus.errors import ConfigError


def test_a_file_that_raises_once_is_loaded_again_when_it_is_fixed(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("raise RuntimeError('broken')\n")
    for _try in range(2):
        with pytest.raises(ConfigError, match="RuntimeError: broken"):
            load_attribute(f"{path}:build", what="model")
    path.write_text("def build():\n    return 7\n")
    assert load_attribute(f"{path}:build", what="model")() == 7


def test_a_file_imports_what_lies_beside_it_when_it_is_loaded_and_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "neighbour_of_mine.py").write_text("SEVEN = 7\n")
    (tmp_path / "later_neighbour_of_mine.py").write_text("EIGHT = 8\n")
    path = tmp_path / "mine.py"
    path.write_text(
        "from neighbour_of_mine import SEVEN\n"
        "def build():\n    import later_neighbour_of_mine\n    return SEVEN, later_neighbour_of_mine.EIGHT\n"
    )
    assert load_attribute(f"{path}:build", what="model")() == (7, 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no_such_module:x", "no module 'no_such_module'"),
        ("ludus.clock:Clok", "Did you mean 'Clock'"),
        ("no/such/file.py:x", "no file"),
    ],
)
def test_what_is_missing_is_reported(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_attribute(text, what="model")


def test_what_a_users_file_defines_is_unpickled_in_a_process_that_knows_where_the_file_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    seven = 7\n")
    content = pickle.dumps(load_attribute(f"{path}:Mine", what="algorithm"))
    code = (
        "import pickle, sys; from ludus.data import lookup\n"
        "lookup.add_user_files(eval(sys.argv[1])); print(pickle.loads(eval(sys.argv[2])).seven)\n"
    )
    for known, said in ((user_files(), "7"), ({}, "")):
        process = subprocess.run(
            [sys.executable, "-c", code, repr(known), repr(content)], capture_output=True, text=True, check=False
        )
        assert process.stdout.strip() == said, process.stderr
