"""The documentation is true: its examples run, its tables are complete, and what it names exists."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gossamer import __version__, errors
from gossamer.cli.main import cli
from gossamer.cli.options import SettingOption
from gossamer.config.reference import settings_page
from gossamer.model.outcome import REASONS, State
from gossamer.model.record import FIELDS
from gossamer.testing.synthetic_web import SyntheticWeb

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
DECISIONS = sorted((DOCS / "adr").glob("0*.md"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

#: What examples call the site and the folder they run in.
SITE = "https://weaver.example"
HOME = "/home/you"
ANYTHING = "…"


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def first_cells(text: str) -> Iterator[str]:
    """Yield what stands in code marks in the first column of every table."""
    for row in re.findall(r"^\| (.+?) \|", text, re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", row)


def named(page_path: Path) -> str:
    return str(page_path.relative_to(ROOT))


# -- complete ------------------------------------------------------------------------------------------


def test_the_page_of_settings_is_what_the_settings_say() -> None:
    assert page("settings.md") == settings_page(), (
        "run `python -m gossamer.config.reference > docs/settings.md`"
    )


def test_every_state_and_every_reason_is_explained_and_no_other() -> None:
    known = {state.label for state in State} | {reason or "-" for reason in REASONS}
    assert set(first_cells(page("states.md"))) == known


def test_every_command_is_documented_and_no_other() -> None:
    table = page("command-line.md").split("| command | does |")[1].split("\n\n")[0]
    assert set(first_cells(table)) == set(cli.commands)


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_flag_that_is_no_setting_is_documented(name: str) -> None:
    text = page("command-line.md")
    flags = {
        flag
        for parameter in cli.commands[name].params
        if isinstance(parameter, click.Option) and not isinstance(parameter, SettingOption)
        for flag in parameter.opts
    }
    assert {flag for flag in flags if f"`{flag}" not in text} == set()


def test_every_field_of_a_record_and_every_exit_code_is_documented() -> None:
    text = page("command-line.md")
    record, exits = text.split("## A page record")[1].split("## Exit codes")
    assert set(first_cells(record)) == set(FIELDS)
    codes = {kind.exit_code for kind in vars(errors).values() if hasattr(kind, "exit_code")}
    documented = {
        int(code) for row in re.findall(r"^\| ([\d, ]+) \|", exits, re.MULTILINE) for code in row.split(", ")
    }
    assert documented == codes | {130, 143}


def test_every_dependency_is_accounted_for_and_no_other() -> None:
    project = PROJECT["project"]
    wanted = [
        *project["dependencies"],
        *[each for extra in project["optional-dependencies"].values() for each in extra],
    ]
    names = {re.split(r"[<>=\[ ]", requirement)[0] for requirement in wanted}
    assert set(first_cells(page("dependencies.md"))) == names


def test_the_extra_all_is_all_extras_that_users_have() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert sorted(extras["all"]) == sorted([*extras["redis"], *extras["postgres"]])
    assert set(extras) == {"all", "redis", "postgres", "dev", "bench"}


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


# -- true ----------------------------------------------------------------------------------------------


def test_the_examples_of_the_command_line_do_what_they_show(tmp_path: Path) -> None:
    with SyntheticWeb.in_thread() as web:
        for block in blocks(page("command-line.md"), "console"):
            for command, expected in examples(block):
                shown = run(command, web, tmp_path)
                assert matches(expected, shown), f"$ {command}\n{shown}"


def examples(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block with the output shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def run(command: str, web: SyntheticWeb, folder: Path) -> str:
    """Run a command on the built-in site and return what a terminal shows, in the words of the page."""
    site = web.url("docs").rstrip("/")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GOSSAMER_ALLOW_PRIVATE": "true",
        "GOSSAMER_DELAY": "0",
        "GOSSAMER_SWEEP_SECONDS": "0.2",
        "GOSSAMER_PROGRESS": "none",
    }
    ended = subprocess.run(
        ["/bin/sh", "-c", command.replace(SITE, site)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=60,
    )
    shown = ended.stdout.decode()
    assert ended.returncode == 0, f"$ {command}\n{shown}"
    shown = shown.replace(site, SITE).replace("docs.localhost", SITE.removeprefix("https://"))
    return shown.replace(str(folder), HOME)


def matches(expected: str, shown: str) -> bool:
    """Compare without regard to the amount of white space; an ellipsis stands for anything."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split(ANYTHING))
    return re.fullmatch(re.sub(r"(\\ )*\.\*(\\ )*", ".*", pattern), " ".join(shown.split())) is not None


def test_the_examples_of_the_library_page_give_what_they_show() -> None:
    source = "\n".join(blocks(page("library.md"), "python"))
    test = doctest.DocTestParser().get_doctest(source, {}, "library.md", None, 0)
    assert len(test.examples) > 15
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert "".join(said) == ""


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    text = path.read_text("utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)]+)\)", text)
    for target in targets:
        name, _, anchor = target.partition("#")
        leads_to = path.parent / name if name else path
        assert leads_to.exists(), target
        assert not anchor or anchor in anchors(leads_to.read_text("utf-8")), target


def anchors(text: str) -> set[str]:
    """Return the anchors that headings get."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_every_test_that_is_named_exists(path: Path) -> None:
    sources = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("src/gossamer/testing/*.py")]
    names = {source.name for source in sources}
    for source in sources:
        names.update(re.findall(r"def (test_\w+)", source.read_text("utf-8")))
    assert set(re.findall(r"`(test_\w+(?:\.py)?)`", path.read_text("utf-8"))) - names == set()


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_every_module_that_is_named_exists(path: Path) -> None:
    for module in re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", path.read_text("utf-8")):
        places = [ROOT / module, ROOT / "src/gossamer" / module, *ROOT.glob(f"tests/*/{module}")]
        assert any(place.exists() for place in places), module


# -- in shape ------------------------------------------------------------------------------------------


def test_the_layers_shown_are_the_layers_enforced() -> None:
    (contract,) = PROJECT["tool"]["importlinter"]["contracts"]
    enforced = [layer.replace("gossamer.", "") for layer in contract["layers"]]
    shown = page("ARCHITECTURE.md").split("## Layers")[1].split("```")[1].split("\n")
    assert [line for line in shown if line] == enforced


def test_the_architecture_fits_on_two_pages() -> None:
    assert len(page("ARCHITECTURE.md").split()) <= 1000


def test_decisions_are_numbered_without_a_gap_and_listed() -> None:
    listed = re.findall(r"^\d+\. \[.+\]\((.+)\)$", page("adr/README.md"), re.MULTILINE)
    assert listed == [decision.name for decision in DECISIONS]
    assert [int(decision.name[:4]) for decision in DECISIONS] == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("path", DECISIONS, ids=named)
def test_a_decision_has_its_number_context_decision_and_consequences(path: Path) -> None:
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    assert headings[0].startswith(f"{int(path.name[:4])}. ")
    assert headings[1:] == ["Context", "Decision", "Consequences"]
