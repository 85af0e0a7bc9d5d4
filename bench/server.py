"""nginx over a corpus: its own configuration and prefix, a free port, one worker, on a core of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: Not 127.0.0.1: documentation links to that address, and no contestant should take such a link for the site's own.
HOST = "127.0.0.2"
CRAWLER_CORE, SERVER_CORE = 0, 1
NGINX = "/usr/sbin/nginx"

CONF = """
daemon off;
worker_processes 1;
{user}
pid {prefix}/nginx.pid;
error_log {prefix}/error.log crit;
events {{ worker_connections 4096; }}
http {{
  include {mime};
  default_type text/plain;
  charset utf-8;
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 100000000;
  keepalive_timeout 300;
  open_file_cache max=50000 inactive=600s;
  open_file_cache_errors on;
  gzip {gzip};
  gzip_types text/plain text/css application/javascript;
  client_body_temp_path {prefix}/body; proxy_temp_path {prefix}/proxy; fastcgi_temp_path {prefix}/fastcgi;
  uwsgi_temp_path {prefix}/uwsgi; scgi_temp_path {prefix}/scgi;
  server {{ {listen} absolute_redirect off; root {root}; }}
}}
"""


@contextmanager
def serve(root: Path, *, gzip: bool = False, also: Sequence[str] = ()) -> Iterator[str]:
    """Serve `root` and yield the URL of its index page, which `also` these hosts have; the server is gone afterwards."""
    if not Path(NGINX).exists():
        raise SystemExit(f"the benchmark needs nginx as {NGINX}: install it")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-nginx-") as prefix:
        conf = Path(prefix) / "nginx.conf"
        conf.write_text(
            CONF.format(
                prefix=prefix,
                listen=" ".join(f"listen {host}:{port} backlog=4096;" for host in (HOST, *also)),
                root=root.resolve(),
                mime="/etc/nginx/mime.types",
                gzip="on" if gzip else "off",
                user="user root;" if os.geteuid() == 0 else "",
            )
        )
        argv = [NGINX, "-p", prefix, "-c", str(conf), "-e", f"{prefix}/error.log"]
        with running([*pinned(SERVER_CORE), *argv], port):
            yield f"http://{HOST}:{port}/index.html"


@contextmanager
def running(argv: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; entered once it accepts connections."""
    process = subprocess.Popen(argv)
    try:
        wait_until_it_listens(process, port)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit(f"{process.args!r} did not start to listen on port {port}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def pinned(core: int) -> list[str]:
    """Return the prefix of a command line that keeps it on one core, empty on a machine with a single one."""
    return ["taskset", "-c", str(core)] if (os.cpu_count() or 1) > 1 else []
