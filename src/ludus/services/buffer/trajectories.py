"""A store of trajectories: every step once, in a ring of columns, with tables of transitions and sequences over it.

    store = TrajectoryStore(TrajectorySpec(obs=..., action=...), num_entries=1_000_000)
    store.add_table("replay", TableSettings(sampler=Prioritised()), length=3)
    store.insert(segment, stream="simulator/0")
    batch, keys, probabilities = store.sample_transitions("replay", 256, rng, gamma=0.99)
    store.tables["replay"].update_priorities(keys, errors)

An item is a start in the ring and a length: its steps are found by walking from entry to entry. It is in its table once
all it needs is there, and goes before its first entry is overwritten.

With a `folder` the columns are mapped files. Data is written first and counted last, so `TrajectoryStore.open` finds
every insert that had returned, whenever the process was killed; other processes of the host read by `TrajectoryReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus import files
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.data.transitions import Transitions
from ludus.errors import ConfigError, DataError
from ludus.services.buffer import table_file
from ludus.services.buffer.columns import Columns
from ludus.services.buffer.table import Table, TableSettings, TableStats
from ludus.services.buffer.trajectory_reader import ENTRIES, STATES, TrajectoryReader
from ludus.services.buffer.trajectory_rows import Entries, StreamRows
from ludus.services.buffer.trajectory_spec import ACTIVE, TrajectorySpec

__all__ = ["ItemKind", "SampledSequences", "SampledTransitions", "TrajectoryStore"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_TABLES = "tables"
_HEADER = "header"
_NUM_ENTRIES, _NUM_STATES = 0, 1
_MIN_STREAMS = 64
KINDS = ("transition", "sequence")


class SampledTransitions(NamedTuple):
    batch: Transitions
    keys: Ints
    probabilities: Floats


class SampledSequences(NamedTuple):
    batch: Segment  # [length, B]; obs, first, active and mask have one entry more
    keys: Ints
    probabilities: Floats


@dataclass(frozen=True, kw_only=True)
class ItemKind:
    """What the items of a table are. `num_steps`: entries that must follow the first one, if the episode goes on."""

    kind: str = "transition"
    length: int = 1  # steps of rewards of a transition; steps of a sequence that are learnt from
    period: int = 1  # an item starts at every so-manieth action of a row
    burn_in: int = 0  # steps of a sequence before those, which bring its recurrent state up to date

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"kind={self.kind!r}: the items of a table are one of {', '.join(KINDS)}")
        if self.length < 1 or self.period < 1 or self.burn_in < 0:
            raise ConfigError(
                f"length={self.length}, period={self.period}, burn_in={self.burn_in}: "
                f"length and period are at least 1, burn_in 0"
            )

    @property
    def num_steps(self) -> int:
        return self.length + (self.burn_in if self.kind == "sequence" else 0)


class TrajectoryStore:
    """Not safe to use from several threads at once: its owner has the lock.

    `num_states`: recurrent states that are kept, one for each row of a segment; by default an eighth of the entries.
    `num_buffers`: see `TrajectoryReader`.
    """

    def __init__(
        self,
        spec: TrajectorySpec,
        *,
        num_entries: int,
        folder: Path | str | None = None,
        num_states: int = 0,
        num_buffers: int = 2,
    ) -> None:
        if num_entries < 2:
            raise ConfigError(f"num_entries={num_entries}: a store holds at least 2")
        folder = None if folder is None else Path(folder)
        entries = Columns(
            spec.columns(), num_entries, folder=folder and folder / ENTRIES, extra={"spec": spec.to_json()}
        )
        entries.arrays["key"].fill(-1)
        states = None
        if spec.state is not None:
            num_states = num_states or max(64, num_entries // 8)
            states = Columns(spec.state_columns(), num_states, folder=folder and folder / STATES)
            states.arrays["owner"].fill(-1)
        header = Columns({"header": ArraySpec((8,), np.int64)}, 1, folder=folder and folder / _HEADER)
        self._begin(spec, folder, entries, states, header, num_buffers)

    def _begin(
        self,
        spec: TrajectorySpec,
        folder: Path | None,
        entries: Columns,
        states: Columns | None,
        header: Columns,
        num_buffers: int,
    ) -> None:
        self.spec = spec
        self.num_entries = entries.num_slots
        self.tables: dict[str, Table] = {}
        self.kinds: dict[str, ItemKind] = {}
        self._folder = folder
        self._entries, self._states = entries, states
        self._header: Ints = header.arrays["header"][0]
        self._streams: dict[str, StreamRows] = {}
        self._max_streams = _MIN_STREAMS  # as many are kept before it is asked which are of no use
        self._obs = [(name, leaf.shape, spec.is_stack(leaf)) for name, leaf in spec.obs_columns.items()]
        self._reader = TrajectoryReader(spec, entries, states, num_buffers=num_buffers)

    @classmethod
    def open(cls, folder: Path | str, *, num_buffers: int = 2) -> TrajectoryStore:
        """The store of a process that is gone, with its tables. Streams begin again: links between segments are lost.

        Raises `DataError` if there is none, or if it is damaged.
        """
        folder = Path(folder)
        store = cls.__new__(cls)
        entries = Columns.open(folder / ENTRIES)
        spec = TrajectorySpec.from_json(entries.extra.get("spec", {}))
        states = Columns.open(folder / STATES) if spec.state is not None else None
        store._begin(spec, folder, entries, states, Columns.open(folder / _HEADER), num_buffers)
        store._repair()
        for path in sorted((folder / _TABLES).glob("*/table.json")):
            name, settings, kind = table_file.read(path)
            store._make_table(name, settings, ItemKind(**kind), path.parent)
        store._drop_items_without_entries()
        return store

    # -- tables

    def add_table(
        self,
        name: str,
        settings: TableSettings | None = None,
        *,
        length: int = 1,
        kind: str = "transition",
        period: int = 1,
        burn_in: int = 0,
    ) -> Table:
        """A table of items that start in segments from now on. Add tables before the first segment."""
        if name in self.tables:
            raise ConfigError(f"there is a table {name!r} already; nothing was added. Give another name")
        if self._streams:
            raise ConfigError(f"the table {name!r} comes after the first segment; add it before any is inserted")
        settings, item = settings or TableSettings(), ItemKind(length=length, kind=kind, period=period, burn_in=burn_in)
        if item.num_steps >= self.num_entries:
            raise ConfigError(f"items of {item.num_steps} steps do not fit a ring of {self.num_entries} entries")
        folder = None
        if self._folder is not None:
            folder = self._folder / _TABLES / f"{len(self.tables):03d}"
            files.make_folder(folder)
        table = self._make_table(name, settings, item, folder)
        if folder is not None:
            table_file.write(folder / "table.json", name, settings, item.__dict__)
        return table

    def _make_table(self, name: str, settings: TableSettings, kind: ItemKind, folder: Path | None) -> Table:
        storage = None if folder is None else _mapped(folder)
        self.tables[name] = table = settings.make(self.num_entries, storage=storage)
        self.kinds[name] = kind
        return table

    def can_insert(self, num_items: int) -> bool:
        """Whether the limiters of all tables allow it."""
        return all(table.can_insert(num_items) for table in self.tables.values())

    def statistics(self) -> dict[str, TableStats]:
        return {name: table.statistics() for name, table in self.tables.items()}

    @property
    def num_inserted(self) -> int:
        """Entries, ever: the key of the next."""
        return int(self._header[_NUM_ENTRIES])

    # -- inserting

    def insert(self, segment: Segment, stream: str) -> dict[str, Ints]:
        """Store a segment that follows the last one of its stream. Returns the items that are complete now, by table.

        Arrays of the segment are copied. Raises `DataError`, and stores nothing, if it does not fit the spec.
        """
        self._check(segment)
        rows = self._streams.get(stream)
        if rows is None or rows.num_rows != segment.num_rows:
            self._forget_streams()
            rows = self._streams[stream] = StreamRows(segment.num_rows, len(self.tables))
        start, num_slots = self.num_inserted, self.num_entries
        stack = self.spec.frame_stack
        # As many as there can be: it is known only afterwards which entries have ghosts.
        most = (segment.num_steps + 1) * segment.num_rows * stack
        entries = rows.plan(segment, oldest=start + most - num_slots, has_ghosts=stack > 1)
        num = len(entries.step)
        if entries.has_ghosts is None:
            keys = np.arange(start, start + num)
            end = start + num
        else:
            keys = start - 1 + np.cumsum(1 + entries.has_ghosts * (stack - 1))
            end = int(keys[-1]) + 1 if num else start
        self._clear(start, end)
        self._write(segment, entries, keys, start)
        if len(entries.folded_keys):
            slots = entries.folded_keys % num_slots
            self._entries.arrays["reward"][slots] += entries.folded_rewards
            self._entries.arrays["flags"][slots] |= entries.folded_flags
        starts = self._starts(rows, entries)
        if self._states is not None and segment.state is not None:
            self._write_states(segment, entries, keys, rows)
        lengths = [kind.num_steps for kind in self.kinds.values()]
        links = rows.link(entries, keys, lengths, starts)
        self._entries.arrays["next"][links.before % num_slots] = links.after
        if stack > 1:
            self._link_back(entries, keys, links.before, links.after)
        self._write_keys(start, end)
        self._header[_NUM_ENTRIES] = end
        for table, complete in zip(self.tables.values(), links.complete, strict=True):
            table.insert(complete)
        return dict(zip(self.tables, links.complete, strict=True))

    def end_stream(self, stream: str) -> None:
        """No segment follows its last one. Not needed, but it frees what is kept of it. Unknown streams are ignored."""
        self._streams.pop(stream, None)

    def _forget_streams(self) -> None:
        """Producers come and go: of those whose entries are all overwritten nothing can be linked to any more."""
        if len(self._streams) < self._max_streams:
            return
        oldest = self.num_inserted - self.num_entries
        self._streams = {name: rows for name, rows in self._streams.items() if rows.newest >= oldest}
        self._max_streams = max(_MIN_STREAMS, 2 * len(self._streams))

    def _check(self, segment: Segment) -> None:
        columns, spec = self._entries.spec, self.spec
        done = np.shape(segment.reward)
        if len(done) != 2 or 0 in done:
            raise DataError(
                f"the segment's reward has the shape {done}, not one step and one row at least; nothing was inserted"
            )
        num_steps, num_rows = done
        seen = (num_steps + 1, num_rows)
        bool_ = np.dtype(np.bool_)
        self._check_array("reward", segment.reward, columns["reward"].dtype, done)
        self._check_array("action", segment.action, columns["action"].dtype, (*done, *columns["action"].shape))
        for name, shape in (("first", seen), ("active", seen), ("terminated", done), ("truncated", done)):
            self._check_array(name, getattr(segment, name), bool_, shape)
        self._check_nest("obs", segment.obs, spec.obs_columns, seen)
        if spec.has_logp:
            self._check_array("logp", segment.logp, columns["logp"].dtype, done)
        if spec.has_version:
            self._check_array("version", segment.version, columns["version"].dtype, (num_steps,))
        if spec.mask_size:
            if segment.mask is None:
                raise DataError("the store keeps masks, and the segment has none; nothing was inserted")
            self._check_array("mask", segment.mask, bool_, (*seen, spec.mask_size))
        if self._states is not None:
            if segment.state is None:
                raise DataError("the store keeps recurrent states, and the segment has none; nothing was inserted")
            state = {name: leaf for name, leaf in self._states.spec.items() if name != "owner"}
            self._check_nest("state", segment.state, state, (num_rows,))
            if num_rows > self._states.num_slots:
                raise DataError(
                    f"{num_rows} rows for {self._states.num_slots} recurrent states; nothing was inserted. "
                    f"Make num_states larger"
                )
        most = (num_steps + 1) * num_rows * spec.frame_stack
        if most > self.num_entries:
            raise DataError(
                f"a segment of {num_steps} steps of {num_rows} rows may need {most} entries, and the "
                f"store has {self.num_entries}; nothing was inserted. Make the store larger or segments shorter"
            )

    def _check_nest(self, prefix: str, nest: Nest, columns: Mapping[str, ArraySpec], leading: tuple[int, ...]) -> None:
        found = {
            f"{prefix}/{path}": leaf
            for path, leaf in zip(nests.paths(nest), nests.leaves(nest), strict=True)
            if leaf is not None
        }
        if list(found) != list(columns):  # in this order they are written
            raise DataError(f"the segment has {list(found)}, not {list(columns)}; nothing was inserted")
        for name, leaf in columns.items():
            self._check_array(name, found[name], leaf.dtype, (*leading, *leaf.shape))

    @staticmethod
    def _check_array(name: str, array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        found = np.asarray(array)
        if found.shape != shape or (found.dtype != dtype and not np.can_cast(found.dtype, dtype, "same_kind")):
            raise DataError(
                f"the segment's {name} is {found.dtype} {found.shape}, not {dtype} {shape}; nothing was inserted"
            )

    def _leaves(self, obs: Nest) -> list[Any]:
        return [leaf for leaf in nests.leaves(obs) if leaf is not None]

    def _clear(self, start: int, end: int) -> None:
        """Make room in the ring: items go first, then their entries."""
        oldest = max(0, start - self.num_entries)
        overwritten = np.arange(oldest, max(oldest, end - self.num_entries))
        if len(overwritten):
            for table in self.tables.values():
                table.evict(overwritten)
            self._entries.write(start, {"key": np.full(end - start, -1)})

    def _write_keys(self, start: int, end: int) -> None:
        self._entries.write(start, {"key": np.arange(start, end)})

    def _write(self, segment: Segment, entries: Entries, keys: Ints, start: int) -> None:
        spec, num_steps = self.spec, segment.num_steps
        acted = entries.step if entries.is_whole else np.minimum(entries.step, num_steps - 1)

        def rows(array: NDArray[Any], steps: Ints) -> NDArray[Any]:
            """Of `[T or T + 1, R, ...]`, those of the entries."""
            if entries.is_whole:
                return array[:num_steps].reshape(-1, *array.shape[2:])
            return array[steps, entries.row]

        made: dict[str, NDArray[Any]] = {
            "next": np.full(len(keys), -1),
            "flags": entries.flags,
            "reward": entries.reward,
            "action": rows(np.asarray(segment.action), acted),
        }
        if spec.mask_size:
            made["mask"] = rows(np.asarray(segment.mask), entries.step)
        if spec.has_logp:
            made["logp"] = rows(np.asarray(segment.logp), acted)
        if spec.has_version:
            made["version"] = np.asarray(segment.version)[acted]
        if spec.state is not None:
            made["state"] = np.full(len(keys), -1)
        stacked: dict[str, NDArray[Any]] = {}
        for (name, _, is_stack), leaf in zip(self._obs, self._leaves(segment.obs), strict=True):
            array = np.asarray(leaf)
            if is_stack:
                stacked[name] = array
                array = array[:, :, -1]
            made[name] = rows(array, entries.step)
        if entries.has_ghosts is None or not entries.has_ghosts.any():
            self._entries.write(start, made)
            return
        slots = keys % self.num_entries
        for name, array in made.items():
            self._entries.arrays[name][slots] = array
        at = np.flatnonzero(entries.has_ghosts)
        ghosts = (keys[at, None] - np.arange(spec.frame_stack - 1, 0, -1)) % self.num_entries
        self._entries.arrays["flags"][ghosts] = 0
        self._entries.arrays["next"][ghosts] = -1
        self._entries.arrays["reward"][ghosts] = 0
        for name, array in stacked.items():
            self._entries.arrays[name][ghosts] = array[entries.step[at], entries.row[at], :-1]

    def _link_back(self, entries: Entries, keys: Ints, before: Ints, after: Ints) -> None:
        """From each entry to the row's entry before it, or to its own older frames."""
        prev, num_slots = self._entries.arrays["prev"], self.num_entries
        prev[keys % num_slots] = -1
        prev[after % num_slots] = before
        assert entries.has_ghosts is not None
        own = keys[entries.has_ghosts]
        for number in range(self.spec.frame_stack - 1):
            prev[(own - number) % num_slots] = own - number - 1

    def _starts(self, rows: StreamRows, entries: Entries) -> Bools:
        """Where items of each table may start: bool [tables, entries]."""
        starts = np.empty((len(self.kinds), len(entries.step)), np.bool_)
        acts = (entries.flags & ACTIVE) > 0
        num_acts = rows.count_acts(entries) if any(kind.period > 1 for kind in self.kinds.values()) else None
        for number, kind in enumerate(self.kinds.values()):
            if kind.kind == "sequence" and self.spec.state is not None:
                starts[number] = rows.first_of_rows(entries)
            elif kind.period > 1:
                assert num_acts is not None
                starts[number] = acts & (num_acts % kind.period == 0)
            else:
                starts[number] = acts
        return starts

    def _write_states(self, segment: Segment, entries: Entries, keys: Ints, rows: StreamRows) -> None:
        assert self._states is not None
        at = np.flatnonzero(rows.first_of_rows(entries))
        number = int(self._header[_NUM_STATES])
        slots = np.arange(number, number + len(at)) % self._states.num_slots
        owners = self._states.arrays["owner"]
        lost = owners.take(slots)  # -1, which is no item, where a slot is empty
        for name, table in self.tables.items():
            if self.kinds[name].kind == "sequence":
                table.evict(lost)
        owners[slots] = -1
        named = [name for name in self._states.spec if name != "owner"]
        for name, leaf in zip(named, self._leaves(segment.state), strict=True):
            self._states.arrays[name][slots] = np.asarray(leaf)[entries.row[at]]
        owners[slots] = keys[at]
        self._entries.arrays["state"][keys[at] % self.num_entries] = np.arange(number, number + len(at))
        self._header[_NUM_STATES] = number + len(at)

    # -- sampling

    def sample_transitions(self, table: str, n: int, rng: np.random.Generator, *, gamma: float) -> SampledTransitions:
        """`n` items of a table of transitions. Ask the table's `can_sample` first."""
        keys, probabilities = self._draw(table, "transition", n, rng)
        batch, _ = self._reader.transitions(keys, length=self.kinds[table].length, gamma=gamma, is_own=True)
        return SampledTransitions(batch, keys, probabilities)

    def sample_sequences(self, table: str, n: int, rng: np.random.Generator) -> SampledSequences:
        """`n` items of a table of sequences, each a row of the segment."""
        keys, probabilities = self._draw(table, "sequence", n, rng)
        batch, _ = self._reader.sequences(keys, length=self.kinds[table].num_steps, is_own=True)
        return SampledSequences(batch, keys, probabilities)

    def _draw(self, name: str, kind: str, n: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        if name not in self.tables:
            raise DataError(f"there is no table {name!r}; there are: {', '.join(self.tables) or 'none'}")
        if self.kinds[name].kind != kind:
            raise DataError(f"the items of {name!r} are {self.kinds[name].kind}s, not {kind}s")
        table = self.tables[name]
        keys, probabilities = table.sample(n, rng)
        while self.spec.frame_stack > 1:
            is_whole = self._reader.has_frames(keys)
            if is_whole.all():
                break
            table.evict(np.unique(keys[~is_whole]))
            more = table.sample(n - int(is_whole.sum()), rng)
            keys = np.concatenate((keys[is_whole], more.keys))
            probabilities = np.concatenate((probabilities[is_whole], more.probabilities))
        return keys, probabilities

    # -- checkpoints

    def save(self) -> Nest:
        """For the codec; nothing is shared. Without the columns if they are in a folder: they are saved already."""
        filled = min(self.num_inserted, self.num_entries)
        saved: dict[str, Any] = {
            "header": self._header.copy(),
            "tables": {name: table.save() for name, table in self.tables.items()},
            "kinds": {name: asdict(kind) for name, kind in self.kinds.items()},
            "streams": {name: rows.save() for name, rows in self._streams.items()},
            "entries": None,
            "states": None,
        }
        if self._folder is None:
            saved["entries"] = {name: array[:filled].copy() for name, array in self._entries.arrays.items()}
            if self._states is not None:
                num = min(int(self._header[_NUM_STATES]), self._states.num_slots)
                saved["states"] = {name: array[:num].copy() for name, array in self._states.arrays.items()}
        return saved

    def restore(self, saved: Nest) -> None:
        """Go on where `save` was called, in a store of the same spec, size and tables: the next samples are the same.

        In a folder, items whose entries were overwritten after `save` are gone.
        """
        if saved["tables"].keys() != self.tables.keys():
            raise DataError(
                f"the saved tables are {list(saved['tables'])}, not {list(self.tables)}; nothing was restored"
            )
        if (saved["entries"] is None) != (self._folder is not None):
            raise DataError("a store in memory and one in a folder do not restore each other; nothing was restored")
        if saved["entries"] is not None:
            self._entries.expect_own(saved["entries"])
            if self._states is not None:
                self._states.expect_own(saved["states"])
            filled = min(int(saved["header"][_NUM_ENTRIES]), self.num_entries)
            if len(saved["entries"]["key"]) != filled:
                raise DataError(
                    f"{len(saved['entries']['key'])} saved entries are not those of a ring of {self.num_entries}; "
                    f"nothing was restored. Use the size that it was saved with"
                )
        kinds = {name: asdict(kind) for name, kind in self.kinds.items()}
        if saved.get("kinds", kinds) != kinds:  # checkpoints of earlier versions do not say
            raise DataError(
                f"the saved items are {saved['kinds']}, not {kinds}; nothing was restored. Use the same lengths"
            )
        for name, table in self.tables.items():
            table.expect_own(saved["tables"][name])
        if saved["entries"] is not None:
            self._entries.arrays["key"].fill(-1)
            self._entries.write(0, saved["entries"])
            if self._states is not None:
                self._states.arrays["owner"].fill(-1)
                self._states.write(0, saved["states"])
        self._header[:] = saved["header"]
        self._streams = {name: StreamRows.restore(rows) for name, rows in saved["streams"].items()}
        for name, table in self.tables.items():
            table.restore(saved["tables"][name])
        if self._folder is not None:
            self._repair()
            self._drop_items_without_entries()

    def _repair(self) -> None:
        """Forget entries that were written and not counted."""
        key, following = self._entries.arrays["key"], self._entries.arrays["next"]
        key[key >= self.num_inserted] = -1
        following[following >= self.num_inserted] = -1
        if self._states is not None:
            owner = self._states.arrays["owner"]
            owner[owner >= self.num_inserted] = -1

    def _drop_items_without_entries(self) -> None:
        own = self._entries.arrays["key"]
        for name, table in self.tables.items():
            keys = table.keys()
            is_there = own.take(keys % self.num_entries) == keys
            if self._states is not None and self.kinds[name].kind == "sequence":
                number = self._entries.arrays["state"].take(keys % self.num_entries)
                is_there &= self._states.arrays["owner"].take(number % self._states.num_slots) == keys
            table.evict(keys[~is_there])


def _mapped(folder: Path) -> Callable[[str, Any, tuple[int, ...]], NDArray[Any]]:
    """Arrays of a table in mapped files: those that are there, or new ones."""

    def storage(name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        path = folder / name
        if path.exists():
            return Columns.open(path).arrays[name]
        return Columns({name: ArraySpec(shape[1:], dtype)}, shape[0], folder=path).arrays[name]

    return storage
