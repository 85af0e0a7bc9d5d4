"""The image's steps, done one by one in a folder: needs a package index, so it is a long test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer import __version__

from .dockerfile import Stage, stages_of
from .reading import DEPLOY, ROOT

STAGES = stages_of((DEPLOY / "Dockerfile").read_text("utf-8"))
#: Imports every module but those for tests, so that nothing that is needed to run is missing.
IMPORT_ALL = """
import importlib, pkgutil, gossamer
for module in pkgutil.walk_packages(gossamer.__path__, "gossamer."):
    if not module.name.startswith(("gossamer.testing", "gossamer.frontier.migrations", "gossamer.__main__")):
        importlib.import_module(module.name)
import psycopg, redis
"""


class Folder:
    """A folder that stands for the root of the image."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = root / "tools"
        subprocess.run([sys.executable, "-m", "venv", self.tools], check=True, timeout=120)

    def inside(self, text: str) -> str:
        """Move the absolute paths of an instruction into the folder."""
        for name in ("/src", "/opt/gossamer", "/dist"):
            text = text.replace(f" {name}", f" {self.root}{name}")
        return text

    def make(self, stage: Stage) -> None:
        """Do what the stage says: copy and run, in its working folder."""
        work = self.root / "src"
        work.mkdir()
        environment = os.environ | stage.environment | {"PATH": f"{self.tools}/bin:{os.environ['PATH']}"}
        environment.pop("VIRTUAL_ENV", None)
        for step in stage.instructions:
            if step.word == "COPY":
                *names, target = step.rest.split()
                self._copy(names, work / target)
            elif step.word == "RUN":
                command = ["/bin/sh", "-c", self.inside(step.rest)]
                done = subprocess.run(
                    command,
                    cwd=work,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=600,
                )
                assert done.returncode == 0, f"{step.rest}\n{done.stderr}"

    @staticmethod
    def _copy(names: list[str], target: Path) -> None:
        for name in names:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy(source, target / name)


def in_the_image(folder: Folder, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program as the image would: no home, nothing of our environment, a folder nobody can write to."""
    environment = STAGES[-1].environment | {"PATH": f"{folder.root}/opt/gossamer/bin"}
    program = folder.root / "opt/gossamer/bin" / command[0]
    return subprocess.run(
        [program, *command[1:]],
        cwd="/proc",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.soak
def test_the_steps_of_the_image_give_a_program_that_runs_without_home_in_a_read_only_folder(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    folder.make(STAGES[0])
    said = in_the_image(folder, "gossamer", "--version")
    assert (said.returncode, said.stdout.strip()) == (0, f"gossamer, version {__version__}"), said.stderr
    imported = in_the_image(folder, "python", "-c", IMPORT_ALL)
    assert imported.returncode == 0, imported.stderr
    assert in_the_image(folder, "python", "-m", "pip", "--version").returncode != 0
    check_every_file_is_there(folder)


def check_every_file_is_there(folder: Folder) -> None:
    """Scripts and type markers are part of the package as much as its modules."""
    (installed,) = (folder.root / "opt/gossamer/lib").glob("python3.*/site-packages/gossamer")
    source = ROOT / "src" / "gossamer"
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert {
        path for path in wanted if "__pycache__" not in path.parts and not (installed / path).exists()
    } == set()


def test_the_command_runs_without_home_in_a_read_only_folder() -> None:
    program = Path(sys.executable).parent / "gossamer"
    said = subprocess.run(
        [program, "--version"], cwd="/proc", env={}, capture_output=True, text=True, check=False, timeout=60
    )
    assert (said.returncode, said.stdout.strip()) == (0, f"gossamer, version {__version__}"), said.stderr
