"""The image: small, without root, without tools to build with, and made in an order that can be cached."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gossamer import __version__

from .dockerfile import Stage, stages_of
from .reading import DEPLOY, Rule, tagged

TEXT = (DEPLOY / "Dockerfile").read_text("utf-8")
IGNORED = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8")
LABELS = ("title", "description", "licenses", "version", "revision")


def exec_form(text: str) -> list[str]:
    """Return the words of an instruction in exec form; none, if it needs a shell."""
    try:
        words = json.loads(text)
    except json.JSONDecodeError:
        return []
    return [str(word) for word in words]


def index_of(stage: Stage, word: str, part: str) -> int:
    """Return the place of the first such instruction; past the end, if there is none."""
    places = [i for i, each in enumerate(stage.instructions) if each.word == word and part in each.rest]
    return (*places, len(stage.instructions))[0]


# -- rules -----------------------------------------------------------------------------------------------


def two_stages(text: str) -> Iterator[str]:
    names = [stage.name for stage in stages_of(text)]
    if names != ["build", "runtime"]:
        yield f"stages: {names}"


def pinned_images(text: str) -> Iterator[str]:
    images = {stage.image for stage in stages_of(text)}
    yield from (f"{image} is not pinned" for image in images if not tagged(image))
    if len(images) != 1:
        yield "the environment is made by another Python than it runs with"
    yield from (f"{image} is not slim" for image in images if "-slim" not in image)


def without_root(text: str) -> Iterator[str]:
    runtime = stages_of(text)[-1]
    user = re.fullmatch(r"([1-9]\d*):([1-9]\d*)", runtime.last("USER"))
    if user is None:
        yield "USER must be a number other than 0: only a number can be checked by runAsNonRoot"
    elif f"--uid {user[1]}" not in " ".join(runtime.every("RUN")):
        yield "USER is nobody who was made"
    if index_of(runtime, "USER", "") < index_of(runtime, "COPY", "/opt/gossamer"):
        yield "the program belongs to the user who runs it, who could change it"


def nothing_to_build_with(text: str) -> Iterator[str]:
    build, runtime = stages_of(text)
    tools = re.findall(r"\b(?:apt-get|apt|apk|gcc|make|pip|git|curl)\b", " ".join(runtime.every("RUN")))
    yield from (f"{tool} in the final stage" for tool in tools)
    if any(not copied.startswith("--from=build ") for copied in runtime.every("COPY")):
        yield "the final stage takes files from elsewhere than the build"
    if runtime.every("ADD"):
        yield "ADD unpacks and downloads"
    if "venv --without-pip" not in " ".join(build.every("RUN")):
        yield "the environment carries pip"


def dependencies_before_sources(text: str) -> Iterator[str]:
    build = stages_of(text)[0]
    order = [
        index_of(build, "COPY", "pyproject.toml constraints.txt"),
        index_of(build, "RUN", "--constraint constraints.txt"),
        index_of(build, "COPY", "src"),
        index_of(build, "RUN", "pip wheel"),
        index_of(build, "RUN", "--no-index --no-deps /dist/"),
    ]
    if order != sorted(set(order)) or len(build.instructions) in order:
        yield f"out of order: {order}"


def both_backends(text: str) -> Iterator[str]:
    told = " ".join(stages_of(text)[0].every("RUN"))
    yield from (f"no {extra}" for extra in ("redis", "postgres") if f"*e['{extra}']" not in told)


def a_place_to_write(text: str) -> Iterator[str]:
    runtime = stages_of(text)[-1]
    volumes = exec_form(runtime.last("VOLUME"))
    if volumes != [runtime.environment.get("GOSSAMER_JOBS_DIR")] or runtime.last("WORKDIR") not in volumes:
        yield f"jobs are not in a volume: {volumes}"
    if not any("--owner=10001" in run and run.endswith("/jobs") for run in runtime.every("RUN")):
        yield "the volume belongs to root"
    if index_of(runtime, "VOLUME", "") < index_of(runtime, "RUN", "/jobs"):
        yield "what is done to a volume after VOLUME is lost"
    if runtime.environment.get("PYTHONDONTWRITEBYTECODE") != "1":
        yield "Python writes beside the sources"


def commands_without_a_shell(text: str) -> Iterator[str]:
    runtime = stages_of(text)[-1]
    if exec_form(runtime.last("ENTRYPOINT")) != ["gossamer"]:
        yield "a shell would keep SIGTERM for itself"
    if not exec_form(runtime.last("HEALTHCHECK").partition("CMD ")[2]):
        yield "no HEALTHCHECK in exec form"


def labelled(text: str) -> Iterator[str]:
    runtime = stages_of(text)[-1]
    labels = " ".join(runtime.every("LABEL"))
    yield from (f"no label {name}" for name in LABELS if f"org.opencontainers.image.{name}=" not in labels)
    if f"VERSION={__version__}" not in runtime.every("ARG"):
        yield f"the default of VERSION is not {__version__}"


BROKEN: list[tuple[Rule, str, str]] = [
    (two_stages, " AS build", ""),
    (pinned_images, "python:${PYTHON_VERSION}-slim-bookworm AS build", "python:latest AS build"),
    (pinned_images, "python:${PYTHON_VERSION}-slim-bookworm AS runtime", "python:3.12-slim AS runtime"),
    (pinned_images, "-slim-bookworm", "-bookworm"),
    (without_root, "USER 10001:10001", "USER gossamer"),
    (without_root, "USER 10001:10001", ""),
    (without_root, "USER 10001:10001", "USER 0:0"),
    (without_root, "useradd --uid 10001", "useradd --uid 10002"),
    (without_root, "COPY --from=build", "USER 10001:10001\nCOPY --from=build"),
    (nothing_to_build_with, "RUN groupadd", "RUN apt-get update && groupadd"),
    (nothing_to_build_with, "COPY --from=build", "COPY src /src\nCOPY --from=build"),
    (nothing_to_build_with, "USER 10001", "ADD https://example.org/x /x\nUSER 10001"),
    (nothing_to_build_with, " --without-pip", ""),
    (dependencies_before_sources, "COPY pyproject.toml constraints.txt ./", "COPY . ./"),
    (dependencies_before_sources, "COPY pyproject", "COPY src ./src\nCOPY pyproject"),
    (dependencies_before_sources, " --constraint constraints.txt", ""),
    (dependencies_before_sources, " --no-index --no-deps /dist/*.whl", " gossamer"),
    (both_backends, ", *e['postgres']", ""),
    (a_place_to_write, "GOSSAMER_JOBS_DIR=/jobs", "GOSSAMER_JOBS_DIR=/work"),
    (a_place_to_write, 'VOLUME ["/jobs"]', ""),
    (a_place_to_write, "--owner=10001 ", ""),
    (a_place_to_write, "RUN groupadd", 'VOLUME ["/jobs"]\nRUN groupadd'),
    (a_place_to_write, "PYTHONDONTWRITEBYTECODE=1", "PYTHONOPTIMIZE=1"),
    (commands_without_a_shell, 'ENTRYPOINT ["gossamer"]', "ENTRYPOINT gossamer"),
    (commands_without_a_shell, 'CMD ["python", "-c"', "CMD python -c"),
    (labelled, "org.opencontainers.image.licenses", "licenses"),
    (labelled, f"VERSION={__version__}", "VERSION=0.0.1"),
]
RULES = list(dict.fromkeys(rule for rule, _, _ in BROKEN))


@pytest.mark.parametrize("rule", RULES)
def test_the_image_keeps_every_rule(rule: Rule) -> None:
    assert list(rule(TEXT)) == []


@pytest.mark.parametrize(("rule", "old", "new"), BROKEN)
def test_an_image_that_breaks_a_rule_is_noticed(rule: Rule, old: str, new: str) -> None:
    assert old in TEXT
    assert list(rule(TEXT.replace(old, new))) != []


# -- what enters the build -------------------------------------------------------------------------------


def let_in(patterns: str) -> set[str]:
    """Return what a list that begins by leaving out everything lets in."""
    lines = [line for line in patterns.splitlines() if line and not line.startswith("#")]
    return {line[1:] for line in lines[1:] if line.startswith("!")} if lines[0] == "*" else {"everything"}


def copied() -> set[str]:
    """Return what the build takes from the repository."""
    return {name for copy in stages_of(TEXT)[0].every("COPY") for name in copy.split()[:-1]}


def test_what_is_copied_is_let_in_and_nothing_else_is() -> None:
    assert let_in(IGNORED) == copied()
    assert let_in(IGNORED.replace("*\n", "", 1)) != copied()


# -- the check of health ---------------------------------------------------------------------------------


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Serve one status at /healthz, 404 elsewhere, on a free port of loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def asked(port: int) -> int:
    """Run the check of the image against another port and return its exit code."""
    program = exec_form(stages_of(TEXT)[-1].last("HEALTHCHECK").partition("CMD ")[2])
    assert program[:2] == ["python", "-c"]
    assert "9464" in program[2]
    code = program[2].replace("9464", str(port))
    # A proxy for the crawl is none for this question.
    environment = {"http_proxy": "http://127.0.0.1:1"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=False, capture_output=True, timeout=60
    )
    return run.returncode


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_a_worker_is_healthy_when_it_says_so(status: int, code: int) -> None:
    with answering(status) as port:
        assert asked(port) == code


def test_a_worker_that_does_not_answer_is_not_healthy() -> None:
    with answering(200) as port:
        pass
    assert asked(port) == 1


def test_the_check_asks_the_port_that_the_image_shows() -> None:
    runtime = stages_of(TEXT)[-1]
    assert f"'127.0.0.1', {runtime.last('EXPOSE')}," in runtime.last("HEALTHCHECK")
