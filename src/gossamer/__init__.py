"""Gossamer: a crash-safe, polite web crawler for one machine and for many."""

from importlib import import_module
from typing import TYPE_CHECKING

from gossamer.version import VERSION

if TYPE_CHECKING:
    from gossamer.api import Page, acrawl, ascrape, crawl, scrape
    from gossamer.errors import GossamerError, InvalidUrl, JobBusy, OutputFailed, UsageError

__version__ = VERSION
__all__ = [
    "GossamerError",
    "InvalidUrl",
    "JobBusy",
    "OutputFailed",
    "Page",
    "UsageError",
    "__version__",
    "acrawl",
    "ascrape",
    "crawl",
    "scrape",
]

if not TYPE_CHECKING:
    # Loaded when it is first used: every module of the package imports this one, and most need nothing of it.

    def __getattr__(name: str) -> object:
        """Return a public name."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        errors = import_module("gossamer.errors")
        return getattr(errors if hasattr(errors, name) else import_module("gossamer.api"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
