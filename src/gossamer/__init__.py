"""Gossamer: a crash-safe, polite web crawler for one machine and for many."""

__version__ = "0.1.0"
