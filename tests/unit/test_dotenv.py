"""A `.env` file: our variables alone, the environment before it, and one clear line for what is wrong with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.config.dotenv import MAX_BYTES, parse_dotenv, use_dotenv
from gossamer.errors import UsageError


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("GOSSAMER_DELAY=2", "2"),
        ("  export GOSSAMER_DELAY = 2  ", "2"),
        ("GOSSAMER_DELAY=2 # slowly", "2"),
        ("GOSSAMER_DELAY=# slowly", ""),
        ("GOSSAMER_DELAY=a#b", "a#b"),
        ("GOSSAMER_DELAY='a # b' # c", "a # b"),
        (r"GOSSAMER_DELAY='a\nb'", r"a\nb"),
        (r'GOSSAMER_DELAY="a\n\"b\" \\ $HOME"', 'a\n"b" \\ $HOME'),
        ('GOSSAMER_DELAY=""', ""),
        ("GOSSAMER_DELAY=postgresql://u:p=w@h/d?a=b", "postgresql://u:p=w@h/d?a=b"),
        ("GOSSAMER_DELAY=1\nGOSSAMER_DELAY=2", "2"),
        ("\ufeffGOSSAMER_DELAY=2\r\n", "2"),
    ],
)
def test_a_line_is_a_name_and_a_value_with_quotes_comments_and_export(line: str, value: str) -> None:
    assert parse_dotenv(line, ".env") == {"GOSSAMER_DELAY": value}


def test_what_belongs_to_other_programs_is_passed_over_also_over_several_lines() -> None:
    text = "# theirs\n\nKEY='-----BEGIN\nno assignment at all\n-----END'\nPOSTGRES_PASSWORD=x\nGOSSAMER_DELAY=2\n"
    assert parse_dotenv(text, ".env") == {"GOSSAMER_DELAY": "2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nGOSSAMER_DELAI=2", r"'GOSSAMER_DELAI' in \.env, line 2; did you mean 'GOSSAMER_DELAY'"),
        ("GOSSAMER_REDISS=x", "did you mean 'GOSSAMER_REDIS'"),
        ("hello world", r"\.env, line 1 is not KEY=VALUE"),
        ("=x", "line 1 is not KEY=VALUE"),
        ("GOSSAMER_DELAY='2", "no closing '"),
        ('GOSSAMER_DELAY="2\\"', 'no closing "'),
        ("GOSSAMER_DELAY='2' 3", "behind the closing"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_dotenv(text, ".env")


def test_the_environment_wins(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("GOSSAMER_DELAY=2\nGOSSAMER_DEPTH=3\nHOME=/nowhere\n")
    environment = {"GOSSAMER_DELAY": "9", "HOME": "/home/you"}
    use_dotenv(path, environment)
    assert environment == {"GOSSAMER_DELAY": "9", "GOSSAMER_DEPTH": "3", "HOME": "/home/you"}


def test_no_file_and_a_virtual_environment_of_that_name_mean_nothing(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    use_dotenv(tmp_path / ".env", environment)
    (tmp_path / ".env").mkdir()
    use_dotenv(tmp_path / ".env", environment)
    assert environment == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#" * (MAX_BYTES + 1), "longer than 65,536 bytes"),
        (b"GOSSAMER_DELAY=\xff", "not UTF-8"),
        (b"GOSSAMER_DELAY=\x00", "not text"),
    ],
)
def test_a_file_that_is_no_text_of_settings_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        use_dotenv(tmp_path / ".env", {})


def test_a_pipe_of_that_name_does_not_hold_anything_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".env")
    with pytest.raises(UsageError, match="not a regular file"):
        use_dotenv(tmp_path / ".env", {})


def gossamer(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *words],
        cwd=folder,
        env=kept | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_every_command_hears_of_the_file_in_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("GOSSAMER_JOBS_DIR=elsewhere\n")
    assert "no jobs in elsewhere" in gossamer(tmp_path, "jobs").stderr
    assert "no jobs in here" in gossamer(tmp_path, "jobs", GOSSAMER_JOBS_DIR="here").stderr


def test_a_mistake_in_the_file_ends_a_command_with_2_but_not_its_help(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("GOSSAMER_DELAI=2\n")
    ended = gossamer(tmp_path, "jobs")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "did you mean 'GOSSAMER_DELAY'" in ended.stderr
    assert gossamer(tmp_path, "--version").returncode == 0
