"""Every error Gossamer raises on purpose. Each carries the exit code it causes and says what to do."""

from __future__ import annotations

from typing import ClassVar


class GossamerError(Exception):
    """Base of all expected failures: one clear line for the user, and the exit code."""

    exit_code: ClassVar[int] = 1


class UsageError(GossamerError):
    """The user asked for something that cannot be done; the message says what to change."""

    exit_code = 2


class ThresholdCrossed(GossamerError):
    """A `--fail-on` expression became true."""

    exit_code = 3


class NothingFetched(GossamerError):
    """The run ended without a single page; the message names the most common reason."""

    exit_code = 4


class OutputFailed(GossamerError):
    """An output or the job folder could not be written: no room, no permission, a vanished disk."""

    exit_code = 5


class OutputClosed(OutputFailed):
    """Whoever read the output went away (`| head`): the run ends, and nobody needs to be told."""

    exit_code = 0


class LedgerFailed(OutputFailed):
    """The ledger could not be read or written. What was committed before is intact."""


class BackendUnreachable(GossamerError):
    """A server the job depends on does not answer."""

    exit_code = 6


class BackendLost(BackendUnreachable):
    """A server stopped answering in the middle of a run. Nothing is lost: the same call may be made again."""


class LeaseLost(GossamerError):
    """A lease ran out before its request could begin: whoever has the URL now may be asking the host."""


class JobBusy(UsageError):
    """Another process works on this job."""


class InvalidUrl(GossamerError, ValueError):
    """The text is not an http or https URL by the WHATWG standard."""

    exit_code = 2


class WorkerLost(GossamerError):
    """Worker processes keep dying faster than they can be replaced."""
