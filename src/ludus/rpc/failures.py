"""Exceptions ↔ `Failure` messages: what a handler raised is raised again at the caller, typed."""

from __future__ import annotations

import builtins
import functools
import traceback

from ludus import errors
from ludus.rpc import messages

__all__ = ["describe", "revive"]

_CLASSES = [each for name in errors.__all__ if isinstance(each := getattr(errors, name), type)]
_LUDUS = {cls.__name__: cls for cls in _CLASSES if issubclass(cls, errors.LudusError) and cls is not errors.RemoteError}
_MAX_TEXT = 16_000


def describe(error: BaseException, *, seq: int, load: int) -> messages.Failure:
    """The message that tells a caller of `error`."""
    if isinstance(error, errors.RemoteError):  # a call made by the handler failed: pass on where it began
        return messages.Failure(seq, load, error.remote_type, str(error.args[0]), error.remote_traceback)
    text = "".join(traceback.format_exception(error))
    return messages.Failure(seq, load, type(error).__name__, str(error)[:_MAX_TEXT], text[-_MAX_TEXT:])


def revive(failure: messages.Failure) -> errors.LudusError:
    """The error to raise at the caller: Ludus's own class, or a `RemoteError` that built-in types also catch."""
    own = _LUDUS.get(failure.kind)
    if own is not None:
        error: errors.LudusError = own.__new__(own)
        Exception.__init__(error, failure.message)
        if failure.traceback:
            error.add_note(f"Remote traceback:\n{failure.traceback.rstrip()}")
        if isinstance(error, errors.SpecError | errors.CodecError):
            error.path = ""
        return error
    return _remote_class(failure.kind)(failure.message, remote_type=failure.kind, remote_traceback=failure.traceback)


@functools.lru_cache(maxsize=256)
def _remote_class(kind: str) -> type[errors.RemoteError]:
    builtin = getattr(builtins, kind, None)
    if not isinstance(builtin, type) or not issubclass(builtin, Exception):
        return errors.RemoteError
    if builtin in (Exception, ImportError, OSError) or issubclass(builtin, UnicodeError):
        return errors.RemoteError
    try:
        return type(f"Remote{kind}", (errors.RemoteError, builtin), {"__module__": __name__})
    except TypeError:  # the layouts of some built-in exceptions do not mix
        return errors.RemoteError
