"""Outputs: consumers of the record log, each with a cursor of its own, and exactly once wherever a file can be cut."""
