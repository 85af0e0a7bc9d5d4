"""Benchmarks: what a page costs, against peers that do the same work. Run as `python -m bench.run`."""
