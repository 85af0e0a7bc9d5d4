"""The settings of a process that shares jobs: where they come from, what they may be, and that no job has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gossamer.config.dotenv import parse_dotenv
from gossamer.config.job_file import JobSpec
from gossamer.config.load import load_servers, load_settings
from gossamer.config.postgres import PostgresLimits
from gossamer.config.redis import MAX_PARTITIONS, RedisSettings
from gossamer.config.servers import every_server_setting
from gossamer.config.settings import every_setting
from gossamer.errors import UsageError
from gossamer.frontier.redis_codec import PARTITIONS

WORDS = [setting.word for setting in every_server_setting()]


def written(folder: Path, text: str) -> Path:
    path = folder / "gossamer.toml"
    path.write_text(text, "utf-8")
    return path


def test_without_anything_given_they_are_the_defaults() -> None:
    assert load_servers({}, {}, None) == (RedisSettings(), PostgresLimits())


def test_their_words_are_their_own_and_begin_with_the_server() -> None:
    assert len(set(WORDS)) == len(WORDS)
    assert not set(WORDS) & {setting.word for setting in every_setting()}
    for setting in every_server_setting():
        assert setting.word.startswith(f"{setting.section}_")
        assert setting.option.help
        assert not setting.option.identity


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = written(
        tmp_path, 'redis_prefix = "file"\nredis_timeout = 2\npostgres_connections = 7\nredis_partitions = 3\n'
    )
    environment = {"GOSSAMER_REDIS_PREFIX": "environment", "GOSSAMER_REDIS_TIMEOUT": "3.5"}
    redis, limits = load_servers({"redis_prefix": "flag"}, environment, file)
    assert redis == RedisSettings(prefix="flag", timeout_seconds=3.5, partitions=3)
    assert limits == PostgresLimits(connections=7)


def test_one_file_serves_those_who_submit_and_those_who_work(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'delay = 3\nredis_prefix = "team"\npostgres_statement_seconds = 60\n'
        '[hosts."https://a.test"]\nusername = "me"\n',
    )
    settings, _ = load_settings({}, {}, file)
    redis, limits = load_servers({}, {}, file)
    assert (settings.politeness.delay, redis.prefix, limits.statement_seconds) == (3, "team", 60)


def test_no_job_keeps_them(tmp_path: Path) -> None:
    file = written(tmp_path, 'redis_prefix = "team"\npostgres_connections = 9\n')
    settings, sources = load_settings({}, {"GOSSAMER_REDIS_TIMEOUT": "9"}, file)
    assert not {*JobSpec("crawl", (), settings=settings).to_toml(), *sources} & {*WORDS}


@pytest.mark.parametrize(
    ("word", "value", "problem"),
    [
        ("redis_timeout", "soon", "redis_timeout (flag): 'soon' is not a number"),
        ("redis_timeout", "0", "redis_timeout (flag) must be at least 0.1, not 0"),
        ("redis_partitions", "1024", "redis_partitions must be at most 1023, not 1024"),
        ("redis_partitions", "-1", "redis_partitions (flag) must be at least 0, not -1"),
        ("postgres_connections", "0", "postgres_connections (flag) must be at least 1, not 0"),
        ("postgres_statement_seconds", "nan", "postgres_statement_seconds (flag) must be a number"),
        ("postgres_lock_seconds", "0", "postgres_lock_seconds (flag) must be at least 0.1"),
        ("redis_prefix", "", "redis_prefix: '' cannot begin a key"),
        ("redis_prefix", "a{b}", "redis_prefix: 'a{b}' cannot begin a key"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_one_line(word: str, value: Any, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        load_servers({word: value}, {}, None)
    assert str(error.value).startswith(problem)
    assert "\n" not in str(error.value)


def test_the_most_partitions_that_may_be_asked_for_are_the_most_there_can_be() -> None:
    assert MAX_PARTITIONS == PARTITIONS - 1


def test_a_word_of_the_file_that_does_not_exist_suggests_the_nearest(tmp_path: Path) -> None:
    file = written(tmp_path, "redis_timeot = 3\n")
    for load in (load_servers, load_settings):
        with pytest.raises(
            UsageError, match="unknown setting 'redis_timeot' in the file; did you mean 'redis_timeout'"
        ):
            load({}, {}, file)


def test_variables_that_an_orchestrator_sets_do_not_stop_a_worker() -> None:
    redis, _ = load_servers({}, {"GOSSAMER_REDIS_PORT": "tcp://10.0.0.1:6379"}, None)
    assert redis == RedisSettings()


def test_the_python_interface_does_not_take_them_for_settings_of_a_job() -> None:
    with pytest.raises(UsageError, match="unknown setting 'redis_prefix'"):
        load_settings({"redis_prefix": "team"}, {}, None)


def test_a_dotenv_file_may_hold_them() -> None:
    assert parse_dotenv("GOSSAMER_REDIS_PREFIX=team\n", ".env") == {"GOSSAMER_REDIS_PREFIX": "team"}
