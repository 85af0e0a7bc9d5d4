"""What can go wrong with an output, as one line that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from gossamer.errors import OutputClosed, OutputFailed

_NO_ROOM = "no room to write {output} ({text}): make room, then run the same command to resume"
_FORBIDDEN = "{output} may not be written ({text}): check the permissions of the file and its folder"
_BAD_PATH = "{output} cannot be made ({text}): check the folders in its path"
_OTHER = "{output} could not be written ({text}): repair that, then run the same command to resume"
_MESSAGES = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: _NO_ROOM,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENOTDIR: _BAD_PATH,
    errno.EEXIST: _BAD_PATH,
    errno.ELOOP: _BAD_PATH,
    errno.ENAMETOOLONG: _BAD_PATH,
    errno.EISDIR: "{output} is a folder: give the name of a file in it",
    errno.ENXIO: "nobody reads {output}: start its reader first",
}


@contextmanager
def explained(output: str) -> Iterator[None]:
    """Turn errors of the system into `OutputFailed`."""
    try:
        yield
    except OSError as error:
        raise _translated(output, error) from error


def _translated(output: str, error: OSError) -> OutputFailed:
    if error.errno == errno.EPIPE:
        return OutputClosed(f"{output} was closed by its reader")
    message = _MESSAGES.get(error.errno or 0, _OTHER)
    return OutputFailed(message.format(output=output, text=error.strerror or str(error)))
