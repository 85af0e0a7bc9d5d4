from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from gossamer.config.settings import ScopeName, ScopeSettings
from gossamer.engine.seeds import Seeds
from gossamer.errors import UsageError
from gossamer.model.outcome import Found
from gossamer.model.request import Source
from gossamer.model.schedule import Added
from gossamer.model.url import UrlPolicy
from gossamer.policy.scope import Scope


class Sink:
    """Takes batches as a ledger would, and remembers them."""

    def __init__(self, fail_after: int = 1_000_000) -> None:
        self.batches: list[tuple[list[str], set[str], str]] = []
        self._left = fail_after

    async def add(self, found: list[Found], roots: set[str], progress: str) -> Added:
        if self._left == 0:
            raise RuntimeError("killed")
        self._left -= 1
        self.batches.append(([item.request.url for item in found], roots, progress))
        return Added(new=len(found), live=[])

    @property
    def urls(self) -> list[str]:
        return [url for urls, _, _ in self.batches for url in urls]

    @property
    def progress(self) -> str:
        return self.batches[-1][2] if self.batches else ""


def seeds(
    *urls: str,
    path: Path | str = "",
    batch: int = 3,
    scope: ScopeName = "host",
    exclude: str = "",
    shard: str = "",
) -> Seeds:
    settings = ScopeSettings(scope=scope, exclude=(exclude,) if exclude else (), shard=shard)
    return Seeds(urls, str(path), UrlPolicy(), Scope(settings), batch)


def add_all(made: Seeds, sink: Sink, progress: str = "") -> None:
    asyncio.run(made.add_all(sink.add, progress))


def numbered(count: int) -> list[str]:
    return [f"https://h{number}.example/" for number in range(count)]


def test_arguments_are_one_batch_with_the_roots_they_add() -> None:
    sink = Sink()
    add_all(seeds("https://a.example/x", "https://b.example/"), sink)
    assert sink.batches == [(["https://a.example/x", "https://b.example/"], {"a.example", "b.example"}, "")]


def test_a_seed_is_at_depth_0_and_comes_from_nowhere() -> None:
    found = seeds().found("HTTPS://A.example")
    assert (found.request.url, found.request.depth, found.request.parent) == ("https://a.example/", 0, "")
    assert found.request.source is Source.SEED


def test_an_excluded_seed_is_refused_and_adds_no_root() -> None:
    sink = Sink()
    add_all(seeds("https://a.example/x", exclude="*/x"), sink)
    assert sink.batches == [(["https://a.example/x"], set(), "")]


@pytest.mark.parametrize("scope", ["page", "any"])
def test_scopes_without_roots_add_none(scope: ScopeName) -> None:
    sink = Sink()
    add_all(seeds("https://a.example/", scope=scope), sink)
    assert sink.batches[0][1] == set()


def test_a_file_is_read_in_batches_each_with_the_place_behind_it(tmp_path: Path) -> None:
    urls = numbered(7)
    path = tmp_path / "urls.txt"
    path.write_text("\n".join(urls) + "\n")
    sink = Sink()
    add_all(seeds(path=path), sink)
    assert [len(batch) for batch, _, _ in sink.batches] == [3, 3, 1]
    assert sink.urls == urls
    assert sink.progress == f"offset:{path.stat().st_size}"


@pytest.mark.parametrize("killed_after", range(5))
def test_a_killed_run_goes_on_behind_the_last_batch_that_was_added(tmp_path: Path, killed_after: int) -> None:
    urls = numbered(11)
    path = tmp_path / "urls.txt"
    path.write_text("\r\n".join(urls))
    first = Sink(fail_after=killed_after)
    try:
        add_all(seeds(path=path), first)
    except RuntimeError:
        second = Sink()
        add_all(seeds(path=path), second, first.progress)
        assert first.urls + second.urls == urls
    else:
        assert first.urls == urls


def test_bad_lines_are_counted_with_the_first_of_them(tmp_path: Path) -> None:
    path = tmp_path / "urls.txt"
    path.write_text("https://a.example/\nnonsense\n\n# fine\nftp://b.example/\n")
    made, sink = seeds(path=path), Sink()
    add_all(made, sink)
    assert (sink.urls, made.bad_lines.count) == (["https://a.example/"], 2)
    assert made.bad_lines.first.startswith("line 2: ")
    assert "nonsense" in made.bad_lines.first


def test_a_file_of_nothing_but_bad_lines_adds_nothing_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "urls.txt"
    path.write_text("x\n" * 1000)
    made, sink = seeds(path=path), Sink()
    add_all(made, sink)
    assert (sink.urls, made.bad_lines.count) == ([], 1000)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfhttps://a.example/\n",
        b"https://a.example/\r\n",
        b"\t https://a.example/  \n",
        b"https://a.example/",
        b"\n\n#x\nhttps://a.example/\n\n",
    ],
    ids=["BOM", "CRLF", "spaces", "no newline at the end", "blank lines and comments"],
)
def test_lines_are_read_as_they_are_meant(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "urls.txt"
    path.write_bytes(data)
    made, sink = seeds(path=path), Sink()
    add_all(made, sink)
    assert (sink.urls, made.bad_lines.count) == (["https://a.example/"], 0)


def test_an_endless_line_is_one_bad_line_and_the_next_is_read(tmp_path: Path) -> None:
    path = tmp_path / "urls.txt"
    path.write_bytes(b"https://a.example/" + b"x" * 1_000_000 + b"\nhttps://b.example/\n")
    made, sink = seeds(path=path), Sink()
    add_all(made, sink)
    assert (sink.urls, made.bad_lines.count) == (["https://b.example/"], 1)
    assert len(made.bad_lines.first) < 500


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.txt"):
        add_all(seeds(path=tmp_path / "gone.txt"), Sink())


def test_standard_input_is_read_from_its_start_and_remembers_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = io.BytesIO("\n".join(numbered(5)).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    sink = Sink()
    add_all(seeds(path="-"), sink)
    assert sink.urls == numbered(5)
    assert {progress for _, _, progress in sink.batches} == {""}


def test_every_seed_is_added_by_one_shard_and_progress_counts_those_of_others(tmp_path: Path) -> None:
    path = tmp_path / "seeds.txt"
    path.write_text("\n".join(numbered(20)) + "\n")
    sinks = [Sink() for _ in range(3)]
    for number, sink in enumerate(sinks, 1):
        add_all(seeds(path=path, shard=f"{number}/3"), sink)
    assert sorted(url for sink in sinks for url in sink.urls) == sorted(numbered(20))
    assert all(sink.urls for sink in sinks)
    assert {sink.progress for sink in sinks} == {f"offset:{path.stat().st_size}"}
    assert sinks[0].batches[0][1] == {url.split("/")[2] for url in sinks[0].batches[0][0]}
