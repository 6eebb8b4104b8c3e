"""The contract of `ModelPool` as tests, for our pools and for yours.

class TestMyPool(ModelPoolConformance):
    @pytest.fixture
    def where(self, my_server):
        return my_server.url                    # what `open_pool` is given, here and in other processes

    def damage(self, pool, model, number):      # flip a byte of a version's arrays
        ...
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ludus import errors
from ludus.models.pools.pool import NEWEST, ModelPool, open_pool
from ludus.testing.pool_writer import PoolWriter, filled

__all__ = ["ModelPoolConformance"]

Opener = Callable[[], ModelPool]
Weights = dict[str, NDArray[Any]]


def _weights(value: float) -> Weights:
    return {"w": np.full((3, 2), value, np.float32), "b": np.array([value]), "scale": np.array(value, np.float16)}


def _is_whole(weights: Weights) -> bool:
    return len({*np.unique(weights["w"]), *np.unique(weights["b"])}) == 1


class ModelPoolConformance:
    """Subclass it, give the fixture `where`, and `damage`."""

    @pytest.fixture
    def where(self) -> str:
        raise NotImplementedError("a subclass of ModelPoolConformance gives the fixture `where`")

    def damage(self, pool: Any, model: str, number: int) -> None:
        """Change one byte of the arrays of a version."""
        raise NotImplementedError("a subclass of ModelPoolConformance says how a version is damaged")

    @pytest.fixture
    def prefix(self) -> str:
        return f"conformance-{uuid.uuid4().hex}"

    @pytest.fixture
    def open_one(self, where: str, prefix: str) -> Iterator[Opener]:
        """Opens one more pool at the same place at each call."""
        opened: list[ModelPool] = []

        def open_() -> ModelPool:
            opened.append(open_pool(where, prefix=prefix))
            return opened[-1]

        yield open_
        for pool in opened:
            pool.close()

    @pytest.fixture
    def pool(self, open_one: Opener) -> ModelPool:
        return open_one()

    # -- versions

    def test_what_was_put_is_got_by_others(self, pool: ModelPool, open_one: Opener) -> None:
        weights = {
            **_weights(1.5),
            "empty": np.zeros((0, 4)),
            "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        }
        put = pool.put("main", weights)
        version, found = open_one().get("main")
        assert version == put
        assert (version.model, version.number) == ("main", 0)
        assert version.nbytes == sum(array.nbytes for array in weights.values())
        assert list(found) == list(weights)
        for name, array in weights.items():
            np.testing.assert_array_equal(found[name], array, strict=True)
            assert not found[name].flags.writeable

    def test_numbers_go_on_or_are_given(self, pool: ModelPool) -> None:
        assert [pool.put("main", _weights(value)).number for value in range(2)] == [0, 1]
        assert pool.put("main", _weights(7), number=7).number == 7
        assert pool.put("main", _weights(8)).number == 8
        assert (pool.numbers("main"), pool.latest("main"), pool.num_published("main")) == ([0, 1, 7, 8], 8, 4)
        assert pool.get("main", 7)[1]["b"] == [7]
        pool.put("other", _weights(0))
        assert pool.models() == ["main", "other"]
        with pytest.raises(errors.DataError, match="begin at 0"):
            pool.put("main", _weights(0), number=-1)

    def test_the_newest_are_known_without_their_arrays(self, pool: ModelPool, open_one: Opener) -> None:
        put = [pool.put("main", _weights(value), number=value) for value in (3, 5, 9)]
        assert open_one().newest("main", 2) == [put[2], put[1]]
        assert open_one().newest("main", 10) == put[::-1]
        assert (pool.newest("main", 0), pool.newest("nobody", 2)) == ([], [])

    def test_a_version_never_changes(self, pool: ModelPool) -> None:
        first = pool.put("main", _weights(1), number=3)
        assert pool.put("main", _weights(1), number=3).digest == first.digest
        with pytest.raises(errors.DataError, match="never change"):
            pool.put("main", _weights(2), number=3)
        assert pool.get("main", 3)[1]["b"] == [1]
        assert pool.num_published("main") == 1

    def test_a_step_is_the_newest_version_at_or_before_it(self, pool: ModelPool) -> None:
        for number in (5, 9, 2):
            pool.put("main", _weights(number), number=number)
        steps = [pool.at_or_before("main", step) for step in (2, 4, 5, 8, 9, 100, NEWEST)]
        assert steps == [2, 2, 5, 5, 9, 9, 9]
        with pytest.raises(errors.DataError, match="no version at or before 1; there are: 2, 5, 9"):
            pool.at_or_before("main", 1)
        with pytest.raises(errors.DataError, match="is no step"):
            pool.at_or_before("main", -2)
        assert pool.put("main", _weights(0)).number == 10

    def test_what_is_not_there_is_said(self, pool: ModelPool) -> None:
        assert (pool.latest("nobody"), pool.numbers("nobody"), pool.models()) == (None, [], [])
        for ask in (pool.get, pool.at_or_before):
            with pytest.raises(errors.DataError, match="nobody"):
                ask("nobody")
        pool.put("main", _weights(0))
        with pytest.raises(errors.DataError, match="no version 4"):
            pool.get("main", 4)
        with pytest.raises(errors.DataError, match="cannot name a model"):
            pool.put("../up", _weights(0))
        with pytest.raises(errors.DataError, match="arrays by name"):
            pool.put("main", {"w": [1.0]})  # type: ignore[dict-item]
        assert pool.numbers("main") == [0]

    def test_who_reads_keeps_what_is_removed(self, pool: ModelPool, open_one: Opener) -> None:
        for value in range(3):
            pool.put("main", _weights(value))
        _version, found = open_one().get("main", 0)
        pool.remove("main", 0)
        pool.remove("main", 0)
        assert pool.numbers("main") == [1, 2]
        assert found["b"] == [0]
        with pytest.raises(errors.DataError, match="no version 0"):
            pool.get("main", 0)
        with pytest.raises(errors.DataError, match="the newest and was not removed"):
            pool.remove("main", 2)
        assert pool.at_or_before("main", 2) == 2

    def test_damage_is_noticed_and_the_version_before_is_the_newest(
        self, pool: ModelPool, open_one: Opener, caplog: pytest.LogCaptureFixture
    ) -> None:
        for value in range(3):
            pool.put("main", _weights(value))
        self.damage(pool, "main", 2)
        reader = open_one()
        assert reader.get("main")[0].number == 1
        assert any("damaged" in record.getMessage() for record in caplog.records)
        assert (pool.latest("main"), pool.num_rewinds("main")) == (1, 1)
        self.damage(pool, "main", 0)
        with pytest.raises(errors.DataError, match=r"version 0 of 'main'.* is damaged"):
            reader.get("main", 0)
        assert pool.numbers("main") == [1]
        assert pool.put("main", _weights(0), number=0).number == 0
        assert reader.get("main", 0)[1]["b"] == [0]

    # -- processes

    def test_processes_that_put_at_once_get_other_numbers(self, pool: ModelPool, where: str, prefix: str) -> None:
        with (
            PoolWriter(where, prefix, "main", num_bytes=1000, num_versions=30) as one,
            PoolWriter(where, prefix, "main", num_bytes=1000, num_versions=30) as other,
        ):
            numbers = one.numbers() + other.numbers()
        assert sorted(numbers) == pool.numbers("main") == list(range(60))
        assert pool.changes("main").num_published == 60

    def test_kill_9_of_a_writer_leaves_whole_versions_while_others_read(
        self, pool: ModelPool, where: str, prefix: str, open_one: Opener
    ) -> None:
        size = 3_000_000
        with PoolWriter(where, prefix, "main", num_bytes=size) as writer:
            writer.number()
            reader = open_one()
            for _ in range(5):
                assert _is_whole(reader.get("main")[1])
            last = writer.number()
            writer.kill()
        assert (pool.latest("main") or 0) >= last
        for number in pool.numbers("main"):
            assert _is_whole(pool.get("main", number)[1])
        version = pool.put("main", filled(9, size))
        assert version.number == pool.latest("main") == pool.numbers("main")[-1]

    def test_threads_may_share_a_pool(self, pool: ModelPool) -> None:
        failed: list[BaseException] = []

        def use(name: str) -> None:
            try:
                for value in range(10):
                    pool.put(name, _weights(value))
                    assert pool.get(name)[1]["b"] == [value]
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=use, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        assert not failed
        assert pool.models() == ["one", "two"]

    def test_a_large_model_comes_back_as_it_was(self, pool: ModelPool, open_one: Opener) -> None:
        weights = {
            "large": np.arange(20_000_000, dtype=np.float32),
            "small": np.arange(10.0),
            "last": np.full(5_000_000, 3.0, np.float32),
        }
        put = pool.put("main", weights)
        version, found = open_one().get("main")
        assert version == put
        assert version.nbytes > 100_000_000 - 1
        assert all(np.array_equal(found[name], array) for name, array in weights.items())
