"""The rules of the code base that a reader relies on, each held by a check of the sources."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gossamer import errors
from gossamer.cli.main import cli
from gossamer.cli.options import GroupedCommand, SettingOption
from gossamer.config.servers import every_server_setting
from gossamer.config.settings import every_setting

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gossamer"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAX_LINES = 400
#: Modules that are longer, and why.
LONGER = {
    "testing/ledger_contract.py": "one contract suite",
    "testing/scheduler_contract.py": "one contract suite",
}
MAX_FUNCTION_LINES = 60
#: Where printing is the purpose.
PRINTS = ("cli/", "testing/synthetic_web.py")
#: What pure packages may not import: time, chance, the world outside, and ways to wait.
IMPURE = frozenset(
    (
        "asyncio",
        "concurrent",
        "datetime",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "select",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uvloop",
        "uuid",
    )
)
PURE = ("policy", "model")
#: `datetime` as a type and a format is pure, its clock is not; of `urllib` only `parse` is.
PURE_EXCEPTIONS = {
    ("model/record.py", "datetime"),
    ("policy/http_date.py", "datetime"),
    ("model/url.py", "urllib"),
    ("policy/proxies.py", "urllib"),
}
VAGUE = frozenset({"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"})


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function's body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


# -- layers ----------------------------------------------------------------------------------------------


def test_a_package_imports_only_what_stands_below_it() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_package_and_module_of_the_first_level_has_its_layer_or_stands_outside_by_choice() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (contract,) = [c for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    layered = {
        name.strip().partition(".")[2] for layer in contract["layers"] for name in re.split(r"[|:]", layer)
    }
    level = {
        path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert level - layered == {"__init__", "__main__", "testing", "version"}
    assert layered <= level


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_know_neither_time_nor_chance_nor_the_world(package: str) -> None:
    for path in (SOURCE / package).rglob("*.py"):
        used = {module.partition(".")[0] for module in imports_of(ast.parse(path.read_text("utf-8")))}
        allowed = {module for name, module in PURE_EXCEPTIONS if name == name_of(path)}
        assert not (used & IMPURE) - allowed, name_of(path)


def test_pure_packages_never_ask_what_time_it_is() -> None:
    for package in PURE:
        for path in (SOURCE / package).rglob("*.py"):
            assert not re.search(r"\b(now|utcnow|today|time)\(\)", path.read_text("utf-8")), name_of(path)


# -- size and names --------------------------------------------------------------------------------------


def test_modules_are_short_but_for_the_named_ones() -> None:
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    long = {name: length for name, length in lengths.items() if length > MAX_LINES}
    assert set(long) - set(LONGER) == set(), long
    assert set(LONGER) - set(long) == set(), "an exception nobody needs any more"


def test_functions_are_short() -> None:
    long = {
        f"{name_of(path)}:{function.name}": lines_of(function)
        for path in MODULES
        for function in functions_of(ast.parse(path.read_text("utf-8")))
        if lines_of(function) > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_most_functions_are_under_30_lines() -> None:
    lengths = [
        lines_of(function)
        for path in MODULES
        for function in functions_of(ast.parse(path.read_text("utf-8")))
    ]
    assert sum(length <= 30 for length in lengths) / len(lengths) > 0.95


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {part for path in MODULES for part in path.relative_to(SOURCE).with_suffix("").parts}
    assert names & VAGUE == set()


def test_every_module_and_public_name_says_what_it_is_for() -> None:
    silent = []
    for path in MODULES:
        tree = ast.parse(path.read_text("utf-8"))
        if ast.get_docstring(tree) is None:
            silent.append(name_of(path))
        silent += [
            f"{name_of(path)}:{node.name}"
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
            and ast.get_docstring(node) is None
        ]
    assert silent == []


def test_the_names_of_tests_are_sentences() -> None:
    short = [
        f"{path.name}:{function.name}"
        for path in TESTS
        for function in functions_of(ast.parse(path.read_text("utf-8")))
        if function.name.startswith("test_") and function.name.count("_") < 3
    ]
    assert short == []


# -- habits ----------------------------------------------------------------------------------------------


def calls_of(path: Path, *names: str) -> list[int]:
    tree = ast.parse(path.read_text("utf-8"))
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def test_the_library_prints_nothing() -> None:
    loud = {name_of(path) for path in MODULES if calls_of(path, "print")}
    assert {name for name in loud if not name.startswith(PRINTS)} == set()


def test_nothing_from_outside_is_executed_or_unpickled() -> None:
    for path in MODULES:
        assert calls_of(path, "eval", "exec", "compile", "__import__") == [], name_of(path)
        used = {module.partition(".")[0] for module in imports_of(ast.parse(path.read_text("utf-8")))}
        assert not used & {"pickle", "marshal", "shelve", "dill"}, name_of(path)


def test_every_exception_that_is_caught_blindly_says_why() -> None:
    for path in MODULES:
        for line in path.read_text("utf-8").splitlines():
            if re.search(r"except (Base)?Exception\b", line) and "raise" not in line:
                assert "# noqa: BLE001 - " in line or "BaseException:" in line or " as error" in line, (
                    f"{name_of(path)}: {line.strip()}"
                )


def test_no_check_is_switched_off_without_naming_it() -> None:
    for path in (*MODULES, *TESTS):
        for line in path.read_text("utf-8").splitlines():
            assert not re.search(r"#\s*noqa(?!:)\b|#\s*type:\s*ignore(?!\[)", line), f"{path.name}: {line}"


def test_tasks_have_names() -> None:
    """An unnamed task in a stack dump tells nobody what it was doing."""
    unnamed = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if not name_of(path).startswith("testing/")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "create_task"
        and not any(word.arg == "name" for word in node.keywords)
    ]
    assert unnamed == []


def test_every_error_has_an_exit_code_and_says_what_happened() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert {kind.exit_code for kind in kinds if issubclass(kind, errors.GossamerError)} == set(range(7))
    for kind in kinds:
        assert issubclass(kind, errors.GossamerError)
        assert kind.__doc__


# -- the command line ------------------------------------------------------------------------------------


def grouped() -> list[tuple[str, GroupedCommand]]:
    return [(name, command) for name, command in cli.commands.items() if isinstance(command, GroupedCommand)]


@pytest.mark.parametrize("name", ["crawl", "scrape"])
def test_every_setting_is_a_flag_with_help(name: str) -> None:
    flags = {p.setting.word: p for p in cli.commands[name].params if isinstance(p, SettingOption)}
    assert set(flags) == {setting.word for setting in (*every_setting(), *every_server_setting())}
    for word, flag in flags.items():
        assert flag.help_text(), word
        assert flag.help_flags().startswith(("--", "-")), word


@pytest.mark.parametrize(("name", "command"), grouped())
def test_no_two_flags_of_a_command_are_the_same_word(name: str, command: GroupedCommand) -> None:
    words = [word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)]
    assert len(words) == len(set(words)), name


@pytest.mark.parametrize("command", cli.commands.values(), ids=str)
def test_every_option_of_every_command_has_help(command: click.Command) -> None:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not isinstance(parameter, SettingOption):
            assert parameter.help, f"{command.name} {parameter.name}"
