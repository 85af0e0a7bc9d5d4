"""One crawl divided among several jobs: each host belongs to one of them, and together they have every page once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.policy.shard import Shard
from gossamer.testing.crawl_rig import Crawled, CrawlRig, hits_of, paths_of, serve
from gossamer.testing.synthetic_reply import Reply
from gossamer.testing.synthetic_web import SyntheticWeb

COUNT = 3


def shard_of(host: str) -> int:
    return Shard(1, COUNT).of(f"{host}.localhost").number


def hosts_in(number: int, word: str, wanted: int = 1) -> list[str]:
    """Return names of hosts that belong to a shard."""
    names = (f"{word}{n}" for n in range(1000))
    return [name for name in names if shard_of(name) == number][:wanted]


def host_in(number: int, word: str) -> str:
    return hosts_in(number, word)[0]


def crawl_shard(rig: CrawlRig, number: int, *given: str, mode: str = "crawl") -> Crawled:
    job, output = f"part{number}", f"part{number}.jsonl"
    ended = rig.run(
        *rig.arguments(mode, *given, "--shard", f"{number}/{COUNT}", job=job, output=output),
    )
    return rig.inspect(ended, job, output)


def redirect(target: str) -> Reply:
    return Reply(302, headers=(("Location", target),))


@pytest.fixture(scope="module")
def seeds(web: SyntheticWeb) -> list[str]:
    """Serve nine hosts, three in each shard, that link to their own pages and to each other."""
    hosts = [host for number in range(1, COUNT + 1) for host in hosts_in(number, "sharded", 3)]
    for host in hosts:
        others = [web.url(other) for other in hosts] + [web.url("sharded-stranger")]
        serve(web, host, {"/": ["/a", "/b", *others], "/a": ["/c"], "/b": others, "/c": ["/"]})
    return [web.url(host) for host in hosts]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_shards_of_a_crawl_have_together_what_one_job_has_each_page_once(
    web: SyntheticWeb, rig: CrawlRig, seeds: list[str], workers: str
) -> None:
    (rig.folder / "seeds.txt").write_text("\n".join(seeds[4:]))
    given = (*seeds[:4], "-i", str(rig.folder / "seeds.txt"), "--workers", workers)
    whole = rig.crawl(*given)
    web.reset()
    parts = [crawl_shard(rig, number, *given) for number in range(1, COUNT + 1)]
    assert sorted(url for part in parts for url in part.urls) == sorted(whole.urls)
    assert len(whole.urls) == 4 * len(seeds)
    assert all(len(part.urls) == 4 * 3 for part in parts)
    assert all(set(part.rows) == set(part.urls) for part in parts), "links to other shards are not stored"
    asked = [hit.host + hit.path for hit in web.hits]
    assert len(asked) == len(set(asked)) == 5 * len(seeds), (
        "no host is asked by two shards, robots.txt included"
    )


def test_a_scrape_is_divided_by_its_inputs_and_their_redirects_are_followed_anywhere(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    sources = [host_in(number, "input") for number in (1, 2, 3)]
    target = serve(web, host_in(1, "answer"), {"/": []})
    for source in sources:
        web.add(source, "/", redirect(target))
    inputs = [web.url(source) for source in sources]
    parts = [crawl_shard(rig, number, *inputs, mode="scrape") for number in (1, 2, 3)]
    assert [part.urls for part in parts] == [[url] for url in inputs]
    assert {record["final_url"] for part in parts for record in part.records} == {target}


def test_a_redirect_to_another_shard_is_refused_and_explained(web: SyntheticWeb, rig: CrawlRig) -> None:
    own, other = host_in(1, "from"), host_in(2, "to")
    seed = serve(web, own, {"/": ["/leaves", "/stays"], "/stays": []})
    web.add(own, "/leaves", redirect(web.url(other, "/page")))
    web.add(own, "/first", redirect(web.url(other, "/second")))
    serve(web, other, {"/page": [], "/second": []})
    crawled = crawl_shard(rig, 1, seed, web.url(own, "/first"))
    for path in ("/page", "/second"):
        url = web.url(other, path)
        assert crawled.state(url) == "refused shard"
        assert crawled.rows[url].detail == "it belongs to shard 2/3"
    assert hits_of(web, other) == []
    place = ("--jobs-dir", str(rig.jobs))
    unknown = rig.run("explain", "part1", web.url(other, "/never"), *place)
    assert "its host belongs to shard 2/3, and this job is shard 1/3" in unknown.out + unknown.err


def test_a_robots_file_is_followed_to_the_host_of_another_shard(web: SyntheticWeb, rig: CrawlRig) -> None:
    own, other = host_in(1, "rules"), host_in(2, "rulebook")
    seed = serve(web, own, {"/": ["/open", "/closed"], "/open": [], "/closed": []})
    web.add(own, "/robots.txt", redirect(web.url(other, "/robots.txt")))
    web.add(other, "/robots.txt", Reply(body=b"User-agent: *\nDisallow: /closed\n"))
    crawled = crawl_shard(rig, 1, seed)
    assert paths_of(web, own) == ["/", "/open"]
    assert crawled.state(web.url(own, "/closed")) == "refused robots"


def test_a_shard_is_a_job_of_its_own_by_name_and_by_identity(
    web: SyntheticWeb, rig: CrawlRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = [serve(web, host_in(number, "named"), {"/": []}) for number in (1, 2, 3)]
    fast = [word for word in rig.arguments("crawl", *seeds, output="") if word not in {"--job", "job"}]
    for number in (1, 2, 3):
        assert rig.run(*fast, "--shard", f"{number}/3").code == 0
    names = sorted(path.name for path in rig.jobs.iterdir() if path.is_dir())
    assert [name[-5:] for name in names] == ["-1of3", "-2of3", "-3of3"]
    assert len({name[:-5] for name in names}) == 1
    again = rig.run(*fast, "--job", names[0], "--shard", "2/3")
    assert (again.code, "shard was 1/3, now 2/3" in again.err) == (2, True)
    monkeypatch.setenv("GOSSAMER_SHARD", "2/3")
    assert "is finished: 1 pages" in rig.run(*fast).err


def test_a_shard_without_seeds_is_no_failure_and_says_so(web: SyntheticWeb, rig: CrawlRig) -> None:
    seed = serve(web, host_in(1, "lonely"), {"/": []})
    ended = crawl_shard(rig, 2, seed)
    assert (ended.code, ended.urls) == (0, [])
    assert "none of the given URLs belongs to shard 2/3" in ended.err
    assert crawl_shard(rig, 2, seed).code == 0, "nor when it is asked for again"


def test_what_is_no_shard_makes_no_job(rig: CrawlRig, tmp_path: Path) -> None:
    ended = rig.run(*rig.arguments("crawl", "http://127.0.0.1:9/", "--shard", "4/3"))
    assert ended.code == 2
    assert ended.err.strip().splitlines() == [
        "gossamer: --shard '4/3' is not a part of a whole: write I/N, from 1/3 to 3/3 for three jobs"
    ]
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("command", ["submit", "crawl", "scrape"])
def test_a_shared_job_has_no_shards(rig: CrawlRig, command: str) -> None:
    servers = ("--redis", "redis://127.0.0.1:1", "--postgres", "postgresql://127.0.0.1:1/none")
    ended = rig.run(command, "http://127.0.0.1:9/", "--shard", "1/3", *servers)
    assert ended.code == 2
    assert "--shard is for jobs in a folder" in ended.err
