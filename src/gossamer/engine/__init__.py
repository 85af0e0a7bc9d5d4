"""The crawl itself: leases in, visits out, commits in between. Start reading in `worker.py`."""
