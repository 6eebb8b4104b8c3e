"""Secrets from files and from the environment."""

import pytest

from ludus import errors, secret


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("LUDUS_TOKEN", "LUDUS_TOKEN_FILE", "LUDUS_TRIAL_SECRET"):
        monkeypatch.delenv(name, raising=False)


def file(tmp_path, content=b"s3cret\n", mode=0o600):
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_secret_is_what_was_given_or_in_the_file_or_in_the_environment(tmp_path, monkeypatch):
    assert secret.find("token") is None
    monkeypatch.setenv("LUDUS_TOKEN_FILE", str(file(tmp_path)))
    assert secret.find("token") == "s3cret"
    monkeypatch.delenv("LUDUS_TOKEN_FILE")
    monkeypatch.setenv("LUDUS_TOKEN", "of the environment")
    assert secret.find("token") == "of the environment"
    assert secret.find("token", None, file(tmp_path, b"of the file\r\n")) == "of the file"
    assert secret.find("token", "given") == "given"
    monkeypatch.setenv("LUDUS_TRIAL_SECRET", "of the trial")
    assert secret.find("trial secret") == "of the trial"


def test_a_secret_that_is_given_twice_is_refused(tmp_path, monkeypatch):
    with pytest.raises(errors.ConfigError, match="given twice"):
        secret.find("token", "given", file(tmp_path))
    monkeypatch.setenv("LUDUS_TOKEN", "a")
    monkeypatch.setenv("LUDUS_TOKEN_FILE", "b")
    with pytest.raises(errors.ConfigError, match="LUDUS_TOKEN_FILE are set"):
        secret.find("token")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_can_read_or_change_is_warned_of(tmp_path, mode):
    warned = []
    assert secret.find("token", None, file(tmp_path, mode=mode), warn=warned.append) == "s3cret"
    (text,) = warned
    assert "other users" in text
    assert f"chmod 600 {tmp_path / 'token'}" in text
    assert "s3cret" not in text
    with pytest.warns(UserWarning, match="other users"):
        secret.find("token", None, file(tmp_path, mode=mode))


@pytest.mark.parametrize(
    ("content", "match"), [(b"", "first line"), (b"\n", "first line"), (b"a\nb\n", "nothing else"), (b"\xff", "UTF-8")]
)
def test_a_file_without_one_secret_is_refused(tmp_path, content, match):
    with pytest.raises(errors.ConfigError, match=match):
        secret.read(file(tmp_path, content), "token")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(errors.ConfigError, match="No such file"):
        secret.read(tmp_path / "none", "token")
