from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gossamer.testing.synthetic_web import SyntheticWeb


def test_urls_are_fetched_as_they_come_and_the_end_does_not_wait_for_more(tmp_path: Path) -> None:
    output = tmp_path / "pages.jsonl"
    flags = [
        "--allow-private",
        "--delay",
        "0",
        "-q",
        "-n",
        "2",
        "--jobs-dir",
        str(tmp_path),
        "-o",
        str(output),
    ]
    with SyntheticWeb.in_thread() as web:
        scrape = subprocess.Popen(
            [sys.executable, "-m", "gossamer", "scrape", "-", *flags], stdin=subprocess.PIPE
        )
        assert scrape.stdin is not None
        try:
            for path in ("/", "/guide/silk/"):
                scrape.stdin.write(web.url("docs", path).encode() + b"\n")
                scrape.stdin.flush()
            # Standard input stays open: the page limit ends the run all the same.
            assert scrape.wait(timeout=60) == 0
        finally:
            scrape.kill()
            scrape.stdin.close()
            scrape.wait()
    assert len(output.read_text().splitlines()) == 2
