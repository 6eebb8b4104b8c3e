"""Which functions and classes a pickle names: what opening it imports, and may call. Nothing is run to find them.

They are read from its opcodes. That is a description, not a check: a pickle can compute a name while it is opened, and
a function that it names can open other bytes. Whether it is opened is decided by its seal alone (`definition.py`).
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterator

__all__ = ["describe"]

_MAX_NAMES = 8
_MAX_CHARS = 80  # of one name
_MARK = pickletools.markobject
_READABLE = re.compile(r"[\w.<>]+", re.ASCII)
# What the module of any user has in it; named last, so that the user's own come within the first few.
_USUAL = re.compile(
    r"collections\.OrderedDict|torch\._utils\._rebuild_\w+|torch\.nn\.modules\.\w+\.[A-Z]\w*"
    r"|cloudpickle\.cloudpickle\._(builtin_type|(class|function)_setstate|make_(cell|empty_cell|skeleton_class))"
    r"|numpy\.(dtype|ndarray)|numpy\._?core\.(multiarray|numeric)\.(_reconstruct|_frombuffer|scalar)",
    re.ASCII,
)


def describe(body: bytes) -> str:
    """`it names my_net.Net, posix.mkdir and 3 more`, whatever the bytes are."""
    names, is_whole = _find_names(body)
    ordered = [_readable(name) for name in sorted(names, key=lambda name: (bool(_USUAL.fullmatch(name)), name))]
    said = ", ".join(ordered[:_MAX_NAMES]) or "nothing"
    if len(ordered) > _MAX_NAMES:
        said += f" and {len(ordered) - _MAX_NAMES} more"
    return f"it names {said}" if is_whole else f"it names {said}, up to where it cannot be read as a pickle"


def _readable(name: str) -> str:
    """The author of the pickle chose the name: it must not be able to write to a terminal, or another line of a log."""
    shown = name if _READABLE.fullmatch(name) else ascii(name)
    return shown if len(shown) <= _MAX_CHARS else f"{shown[:_MAX_CHARS]}…"


def _find_names(body: bytes) -> tuple[set[str], bool]:
    """The names, and whether all of the pickle could be read."""
    found: set[str] = set()
    try:
        for name in _walk(body):
            found.add(name)
    except Exception:  # whatever its author made of it
        return found, False
    return found, True


def _walk(body: bytes) -> Iterator[str]:
    """Follow the stack as `pickletools.dis` does. It has the strings, and `None` for all that is not one."""
    stack: list[object] = []
    memo: dict[int, object] = {}
    for opcode, argument, _ in pickletools.genops(body):
        before, after = opcode.stack_before, opcode.stack_after
        pushed: list[object] = [_MARK if each is _MARK else None for each in after]
        num_popped = len(before)
        match opcode.name:
            case "GLOBAL" | "INST":
                yield str(argument).replace(" ", ".", 1)
            case "STACK_GLOBAL":
                yield ".".join(part if isinstance(part, str) else "<computed>" for part in (stack[-2], stack[-1]))
            case "EXT1" | "EXT2" | "EXT4":
                yield f"copyreg.<extension.{argument}>"
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
                pushed = [stack[-1]]
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[int(str(argument))] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                pushed = [memo[int(str(argument))]]
            case "DUP":
                pushed = [stack[-1], stack[-1]]
            case name if name.endswith(("UNICODE", "UNICODE8", "STRING")):
                pushed = [argument]
        if _MARK in before or (opcode.name == "POP" and stack[-1] is _MARK):
            while stack.pop() is not _MARK:
                pass
            num_popped = before.index(_MARK) if _MARK in before else 0
        if num_popped > len(stack):
            raise ValueError("it takes more from the stack than there is")
        del stack[len(stack) - num_popped :]
        stack.extend(pushed)
