"""One word, one thing: names and words that the glossary has retired do not come back, in code, docs or messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READ = ("src", "tests", "docs", "examples", "benchmarks", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
ENDINGS = {".py", ".md", ".toml", ".cpp", ".h"}

# What is retired, as it stands within a name or a sentence, and what to say instead.
RETIRED = {
    r"worlds?": "env, EnvSpec, vector env",
    r"told": "what it is: result, stats, body; or reported, notified, asked",
    r"whoever": "who it is: the caller, the reader, the consumer",
    r"begun": "started",
    r"anew": "again, restarted",
    r"meanwhile": "when: while it waits, since then, in between",
    r"mends?|mended": "fix",
    r"so be it": "what follows: left alone, ignored",
    r"odd": "invalid, or what is wrong with it",
    r"soundness|unsound|sound": "validation; invalid; valid, intact",
    r"is due|are due": "must be",
    r"givers?|takers?": "producer, consumer",
    r"deviations?": "std",
    r"figures?": "metric; stats; number",
    r"statistics?": "metric; stats; aggregate",
    r"replays": "items of a buffer, segments, episodes",
    r"memory_spec|initial_memory|recurrent memory|policy's memory|network's memory": "state, of a policy",
}

# What may stay: the word, and what is found around it in "path: line".
ALLOWED = [
    (r"worlds?", r"world_size"),  # of ranks, as torch has it
    (r"begun", r'^tests/gateway/test_recording\.py: .*b"begun"'),  # an answer in a recording
    (r"odd", r"odd[_ ]number"),
    (r"is due|are due", r"is due (at|after|before|by)\b"),  # of a time
    (r"figures?", r"^src/ludus/experiment/plot\.py: "),  # matplotlib's
    (r"figures?", r"figure \d+ of https://"),
    (r"statistics?", r"[.`\"]statistics\b|\bstatistics[(.]|\b(import|from) statistics\b"),  # a public name; a module
    (r"statistics?", r"test_statistics_count|_share_statistics"),
    (r"statistics?", r"running[_ ]statistics"),  # of BatchNorm
]


def _pattern(word: str) -> re.Pattern[str]:
    """The word in a sentence, and as a part of a `snake_case`, `UPPER_CASE` or `CamelCase` name."""
    return re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{word})(?![a-z])")


PATTERNS = {word: _pattern(word) for word in RETIRED}
# Looked for first, because that is fast.
STEMS = {word: [each.removesuffix("s?") for each in word.split("|")] for word in RETIRED}
EXCEPTIONS = {word: [re.compile(pattern) for of, pattern in ALLOWED if of == word] for word in RETIRED}


def retired_words(path: str, text: str) -> list[str]:
    """Each retired word in the text, as `path:line: word; say ...`."""
    found = []
    lowered = text.lower()
    for word, pattern in PATTERNS.items():
        if not any(stem in lowered for stem in STEMS[word]):
            continue
        for match in pattern.finditer(text):
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            line = text[start : end if end >= 0 else len(text)]
            at = match.start() - start + len(path) + 2
            if not any(
                allowed.start() <= at < allowed.end() or allowed.start() == 0
                for exception in EXCEPTIONS[word]
                for allowed in exception.finditer(f"{path}: {line}")
            ):
                number = text.count("\n", 0, match.start()) + 1
                found.append(f"{path}:{number}: {match.group()!r} is retired; say {RETIRED[word]}")
    return found


def _files() -> list[Path]:
    roots = [ROOT / name for name in READ]
    files = [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*")))]
    return [path for path in files if path.suffix in ENDINGS and path != Path(__file__).resolve()]


def test_no_retired_word_comes_back() -> None:
    found = [
        fault
        for path in _files()
        for fault in retired_words(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    assert not found, f"{len(found)} words that the glossary has retired:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "num_worlds = 3",
        "class WorldSpec:",
        '"""What the policy was told."""',
        "def test_what_is_missing_is_told():",
        "    self._told = []",
        "raise Error('a JSON object is due')",
        "MOST_WORLDS = 64",
        "class LoopWorlds:",
        "the figures of each worker",
        "policy.initial_memory(3)",
    ],
)
def test_a_planted_word_is_found_with_its_place_and_what_to_say(line: str) -> None:
    (fault, *_) = retired_words("src/ludus/planted.py", f"import os\n{line}\n")
    assert fault.startswith("src/ludus/planted.py:2: ")
    assert "; say " in fault


@pytest.mark.parametrize(
    "line",
    [
        "arrays in shared memory",
        "size = ludus.world_size()",
        "threshold = 1",
        "an odd number of episodes",
        "buffer.statistics()",
        "def statistics(self) -> BufferStats:",
        "a checkpoint is due at step 3",
        "reconfigure",
    ],
)
def test_what_is_allowed_is_not_found(line: str) -> None:
    assert retired_words("src/ludus/planted.py", line) == []
