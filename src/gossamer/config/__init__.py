"""Settings: one frozen section per package, and where each value came from."""
