"""What does TLS add to a page? Fetches one page over and over, plain and encrypted, connections kept and made anew."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvloop

from bench import report
from bench.server import HOST, NGINX, SERVER_CORE, free_port, pinned, running
from gossamer.config.settings import FetchSettings
from gossamer.model.response import Response
from gossamer.parts import build_fetcher

PAGE = report.DOCS / "scaling.md"
#: As large as the mean page of the comparison in docs/bench.md.
BODY_BYTES = 29_000
AT_ONCE = 16
KEYS = {"RSA 2048": ["rsa:2048"], "ECDSA P-256": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]}

CONF = """
daemon off;
worker_processes 1;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen {host}:{plain} backlog=4096;
    listen {host}:{tls} ssl backlog=4096;
    ssl_certificate {folder}/cert.pem;
    ssl_certificate_key {folder}/key.pem;
    root {folder}/site;
    default_type text/html;
  }}
}}
"""


@contextmanager
def served(key: str) -> Iterator[tuple[int, int, Path]]:
    """Serve a page with and without TLS; yields both ports and the certificate."""
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as name:
        folder = Path(name)
        (folder / "site").mkdir()
        (folder / "site" / "page.html").write_bytes(os.urandom(BODY_BYTES))
        subject = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=IP:{HOST}"]
        new = ["openssl", "req", "-x509", "-newkey", *KEYS[key], "-nodes", "-days", "2", *subject]
        files = ["-keyout", "key.pem", "-out", "cert.pem"]
        subprocess.run([*new, *files], cwd=folder, check=True, capture_output=True)
        plain, tls = free_port(), free_port()
        user = "user root;" if os.geteuid() == 0 else ""
        conf = folder / "nginx.conf"
        conf.write_text(CONF.format(folder=folder, user=user, host=HOST, plain=plain, tls=tls))
        argv = [*pinned(SERVER_CORE), NGINX, "-p", str(folder), "-c", str(conf)]
        with running([*argv, "-e", f"{folder}/error.log"], plain):
            yield plain, tls, folder / "cert.pem"


async def fetch_many(url: str, pages: int, *, keep: bool) -> float:
    """Fetch a page so often and return the CPU milliseconds of one, the server's not counted."""
    settings = replace(FetchSettings(), allow_private=True)
    fetcher = build_fetcher(settings if keep else replace(settings, max_idle_connections=0), time.time)

    async def some(count: int) -> None:
        for _ in range(count):
            answer = await fetcher.fetch(url)
            if not isinstance(answer, Response) or len(answer.body) != BODY_BYTES:
                raise SystemExit(f"{url}: {answer}")

    await asyncio.gather(*(some(4) for _ in range(AT_ONCE)))
    begun = time.process_time()
    await asyncio.gather(*(some(pages // AT_ONCE) for _ in range(AT_ONCE)))
    spent = time.process_time() - begun
    await fetcher.close()
    return 1000 * spent / (pages // AT_ONCE * AT_ONCE)


def measure(pages: int, rounds: int) -> dict[tuple[str, bool], report.Spread]:
    """Return CPU ms a page, by what is on the wire and whether connections are kept."""
    seen: dict[tuple[str, bool], list[float]] = {}
    for key in KEYS:
        with served(key) as (plain, tls, certificate):
            os.environ["SSL_CERT_FILE"] = str(certificate)
            for _ in range(rounds):
                for keep in (True, False):
                    for name, url in (("http", f"http://{HOST}:{plain}"), (key, f"https://{HOST}:{tls}")):
                        spent = uvloop.run(fetch_many(f"{url}/page.html", pages, keep=keep))
                        seen.setdefault((name, keep), []).append(spent)
    return {case: report.Spread.of(values) for case, values in seen.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1600, help="pages of each kind and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/scaling.md")
    given = parser.parse_args()
    figures = measure(given.pages, given.rounds)
    names = ["http", *KEYS]
    rows = [
        [
            name if name == "http" else f"https, {name}",
            *(figures[name, keep].show(3) for keep in (True, False)),
        ]
        for name in names
    ]
    text = report.table(["", "connection kept, CPU ms", "a new one each time, CPU ms"], rows)
    last = (
        f"{BODY_BYTES:,} bytes a page from nginx on loopback, {AT_ONCE} at a time; the fetcher's CPU alone, without"
        f" extraction and ledger. Median of {given.rounds} rounds (lowest to highest). {report.machine()}."
    )
    print(f"{text}\n\n{last}")
    if given.write_docs:
        report.write_section("tls", f"{text}\n\n{last}", PAGE)


if __name__ == "__main__":
    main()
