import sys
from pathlib import Path

import pytest

from ludus.data.lookup import load_attribute
from ludus.errors import ConfigError


def test_a_file_that_raises_once_is_loaded_anew_when_it_is_mended(tmp_path: Path) -> None:
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
def test_what_is_missing_is_told(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_attribute(text, what="model")
