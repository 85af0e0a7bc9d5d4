"""Crash tests: the real command, killed, interrupted and starved, must end with exactly the right result."""
