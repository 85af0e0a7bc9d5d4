from __future__ import annotations

import dataclasses
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config.job_file import JobSpec, read_job_file, spec_of, write_job_file
from gossamer.config.load import load_settings, parse_size
from gossamer.config.settings import FetchSettings, RecordSettings, Settings, every_setting
from gossamer.errors import UsageError

WORDS = [setting.word for setting in every_setting()]


def load(flags: dict[str, Any] | None = None, environment: dict[str, str] | None = None) -> Settings:
    return load_settings(flags or {}, environment or {}, None)[0]


def load_file(path: Path, text: str, **flags: Any) -> tuple[Settings, dict[str, str]]:
    path.write_text(text)
    return load_settings(flags, {}, path)


# -- the declarations ------------------------------------------------------------------------------------


def test_sections_are_equal_if_all_their_values_are() -> None:
    assert FetchSettings(timeout_seconds=3) == FetchSettings(timeout_seconds=3)
    assert FetchSettings(timeout_seconds=3) != FetchSettings(timeout_seconds=4)
    assert RecordSettings() != FetchSettings()
    assert len({FetchSettings(), FetchSettings(), FetchSettings(proxy=("http://p",))}) == 2
    assert "timeout_seconds=3" in repr(FetchSettings(timeout_seconds=3))


def test_every_setting_has_help_a_section_and_a_word_of_its_own() -> None:
    assert len(WORDS) == len(set(WORDS))
    for setting in every_setting():
        assert setting.option.help, setting.word
        assert not setting.option.help.endswith("."), setting.word
        assert not setting.option.help[:2].istitle(), setting.word


def test_every_short_flag_stands_for_one_setting() -> None:
    shorts = [setting.option.short for setting in every_setting() if setting.option.short]
    assert len(shorts) == len(set(shorts))
    assert not set(shorts) & {"-o", "-i", "-q", "-v", "-h"}


def test_every_bound_has_its_unit_in_its_name() -> None:
    """A number is a count of something named, or its field says seconds or bytes. The few short words are flags."""
    units = (
        "_seconds",
        "_days",
        "_bytes",
        "_urls",
        "_pages",
        "_hosts",
        "_count",
        "_connections",
        "_redirects",
        "_per_second",
    )
    others = "probes crashes per_page per_host per_path per_folder per_section per_domain per_halving segments repeats"
    others += " occurrences parameters labels depth elements prefixes error_rate factor ratio failures"
    counts = (*units, *(f"_{name}" for name in others.split()))
    short_words = {
        "depth",
        "delay",
        "per_host",
        "jitter",
        "retries",
        "concurrency",
        "workers",
        "time",
        "max_pages",
    }
    for setting in every_setting():
        if setting.type.startswith(("int", "float")) and setting.field not in short_words:
            assert setting.field.endswith(counts), setting.field


def test_the_defaults_pass_their_own_checks() -> None:
    given_words = JobSpec("crawl", ()).settings_words()
    assert load(given_words) == Settings()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().limits.depth = 3  # type: ignore[misc]


# -- where values come from ------------------------------------------------------------------------------


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "gossamer.toml"
    file.write_text("delay = 1.5\nper_host = 2\nretries = 3\n")
    environment = {"GOSSAMER_PER_HOST": "4", "GOSSAMER_RETRIES": "5"}
    settings, sources = load_settings({"retries": "6"}, environment, file)
    politeness = settings.politeness
    assert (politeness.delay, politeness.per_host, politeness.retries, politeness.robots) == (1.5, 4, 6, True)
    assert sources == {"delay": "file", "per_host": "environment", "retries": "flag"}


def test_variables_that_are_no_settings_are_left_alone() -> None:
    environment = {"GOSSAMER_JOBS_DIR": "x", "GOSSAMER_CONFIG": "y", "GOSSAMER_PROGRESS": "z", "HOME": "/"}
    assert load(environment=environment) == Settings()


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_an_unknown_word_is_an_error_that_names_its_source_and_the_nearest(
    source: str, tmp_path: Path
) -> None:
    file = tmp_path / "gossamer.toml"
    file.write_text("max_page = 3" if source == "file" else "")
    with pytest.raises(UsageError, match=f"'max_page' in the {source}; did you mean 'max_pages'"):
        load_settings(
            {"max_page": 3} if source == "flag" else {},
            {"GOSSAMER_MAX_PAGE": "3"} if source == "environment" else {},
            file,
        )


def test_a_section_in_a_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="top level"):
        load_file(tmp_path / "g.toml", "[limits]\nmax_pages = 3\n")


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the config file"):
        load_settings({}, {}, tmp_path / name)


# -- what values may be ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "value", "expected"),
    [
        ("delay", "0.5", 0.5),
        ("delay", "2", 2.0),
        ("max_pages", "12", 12),
        ("robots", "false", False),
        ("robots", "1", True),
        ("allow_private", "true", True),
        ("max_size", "10MB", 10_000_000),
        ("max_size", "5000", 5000),
        ("fields", "url, title,", ("url", "title")),
        ("include", ["*/a,b"], ("*/a,b",)),
        ("scope", "domain", "domain"),
        ("user_agent", "Bot/1", "Bot/1"),
    ],
)
def test_text_is_read_as_what_it_stands_for(word: str, value: object, expected: object) -> None:
    settings = load({word: value})
    (setting,) = [setting for setting in every_setting() if setting.word == word]
    assert getattr(getattr(settings, setting.section), setting.field) == expected


@pytest.mark.parametrize(
    ("word", "value", "message"),
    [
        ("delay", "fast", "'fast' is not a number"),
        ("delay", "", "'' is not a number"),
        ("delay", -0.1, "at least 0"),
        ("delay", math.nan, "number below"),
        ("delay", "inf", "number below"),
        ("max_pages", "1.5", "not a whole number"),
        ("max_pages", 1.5, "not a whole number"),
        ("max_pages", True, "not a whole number"),
        ("max_pages", 0, "at least 1"),
        ("max_pages", 2**63, "number below"),
        ("max_pages", "9" * 400, "max_pages"),
        ("depth", -1, "at least 0"),
        ("robots", "maybe", "true or false"),
        ("robots", 7, "true or false"),
        ("scope", "hots", "one of page, prefix, host, domain, any"),
        ("include", [1], "a list of texts"),
        ("include", 1, "a list of texts"),
        ("user_agent", 1, "a text"),
        ("max_size", "ten", "10MB"),
        ("max_size", "-5", "at least 1"),
        ("max_size", "10TB", "10MB"),
        ("concurrency", 0, "at least 1"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_says_what_does(
    word: str, value: object, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load({word: value})


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1500", 1500), ("1_500", 1500), ("2k", 2000), ("2kB", 2000), ("1.5MB", 1_500_000),
     ("512KiB", 524_288), ("1GiB", 2**30), (" 7 b ", 7)],
)  # fmt: skip
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert parse_size(text, "max_size") == size


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert isinstance(parse_size(text, "max_size"), int)


@given(
    st.sampled_from(WORDS),
    st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.text()), st.dictionaries(st.text(), st.text())),
)  # fmt: skip
def test_any_value_for_any_setting_loads_or_is_a_usage_error(word: str, value: object) -> None:
    with suppress(UsageError):
        assert isinstance(load({word: value}), Settings)


# -- job.toml --------------------------------------------------------------------------------------------

SPEC = JobSpec(
    "crawl",
    ('https://a.example/ä?b="c"',),
    "/tmp/urls.txt",
    ("/tmp/a.jsonl", "-"),
    load({"delay": "0.25", "max_pages": "7", "exclude": ["*.pdf", "/a\\b'\"*"], "user_agent": "Bot/1 \u20ac"}),
)  # fmt: skip


def test_a_job_file_gives_back_the_job_it_was_written_from(tmp_path: Path) -> None:
    write_job_file(tmp_path / "job.toml", SPEC)
    assert spec_of(tmp_path / "job.toml") == SPEC
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


def test_a_job_is_the_same_with_other_limits_rates_and_outputs(tmp_path: Path) -> None:
    write_job_file(tmp_path / "job.toml", SPEC)
    stored = read_job_file(tmp_path / "job.toml")
    changed = load({**SPEC.settings_words(), "max_pages": 9, "delay": 3, "workers": 4, "robots": False})
    assert dataclasses.replace(SPEC, outputs=(), settings=changed).differences(stored) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mode": "scrape"}, "mode was crawl, now scrape"),
        ({"seeds": ("https://b.example/",)}, "now https://b.example/"),
        ({"input": ""}, "input was /tmp/urls.txt, now empty"),
        ({"settings": load({"scope": "any"})}, "scope was host, now any"),
        ({"settings": load({"sort_query": False})}, "sort_query was True, now False"),
    ],
)
def test_a_job_with_another_identity_says_what_differs(change: dict[str, Any], named: str) -> None:
    differences = dataclasses.replace(SPEC, **change).differences(SPEC.to_toml())
    assert any(named in difference for difference in differences), differences


def test_a_long_difference_is_cut() -> None:
    many = dataclasses.replace(SPEC, seeds=tuple(f"https://{n}.example/" for n in range(1000)))
    assert max(map(len, many.differences(SPEC.to_toml()))) < 300


@pytest.mark.parametrize("data", [b"= =", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_damaged_job_file_is_an_error_that_names_the_way_out(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(data)
    with pytest.raises(UsageError, match="--fresh"):
        read_job_file(tmp_path / "job.toml")
