"""Where seeds come from: arguments, files, standard input; and what becomes of lines that are no URLs."""

from __future__ import annotations

from pathlib import Path

from gossamer.testing.crawl_rig import CrawlRig, hits_of, html, paths_of, serve
from gossamer.testing.synthetic_web import SyntheticWeb


def leaves(web: SyntheticWeb, host: str, count: int) -> list[str]:
    """Serve pages without links."""
    for number in range(count):
        web.add(host, f"/{number}", html())
    return [web.url(host, f"/{number}") for number in range(count)]


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_several_arguments_are_several_seeds(web: SyntheticWeb, rig: CrawlRig) -> None:
    urls = leaves(web, "arguments", 3)
    assert sorted(rig.crawl(*urls).urls) == urls


def test_the_same_seed_twice_is_one_page(web: SyntheticWeb, rig: CrawlRig) -> None:
    (url,) = leaves(web, "twice", 1)
    assert rig.crawl(url, f"{url}#part", url.upper().replace("/0", "/0")).urls == [url]
    assert paths_of(web, "twice") == ["/0"]


def test_a_file_gives_one_seed_a_line(web: SyntheticWeb, rig: CrawlRig) -> None:
    urls = leaves(web, "file", 4)
    given = write(rig.folder / "urls.txt", "\n".join(urls).encode())
    assert sorted(rig.crawl("-i", given).urls) == urls


def test_arguments_and_a_file_are_taken_together(web: SyntheticWeb, rig: CrawlRig) -> None:
    urls = leaves(web, "both", 2)
    given = write(rig.folder / "urls.txt", urls[1].encode())
    assert sorted(rig.crawl(urls[0], "-i", given).urls) == urls


def test_comments_blank_lines_spaces_a_bom_and_crlf_are_read_as_meant(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    urls = leaves(web, "windows", 3)
    text = f"\ufeff{urls[0]}\r\n\r\n# a comment\r\n  {urls[1]}\t\r\n   \r\n{urls[2]}"
    crawled = rig.crawl("-i", write(rig.folder / "urls.txt", text.encode()))
    assert sorted(crawled.urls) == urls
    assert "not URLs" not in crawled.err


def test_bad_lines_are_passed_over_counted_and_the_first_is_shown(web: SyntheticWeb, rig: CrawlRig) -> None:
    (url,) = leaves(web, "bad", 1)
    lines = ["no-scheme.example", url, "ftp://files.example/", "http://[", "http://" + "x" * 5000]
    crawled = rig.crawl("-i", write(rig.folder / "urls.txt", "\n".join(lines).encode()))
    assert (crawled.code, crawled.urls) == (0, [url])
    assert "4 lines of the input are not URLs" in crawled.err
    assert "line 1: " in crawled.err
    assert "no-scheme.example" in crawled.err


def test_one_bad_line_is_one_line(web: SyntheticWeb, rig: CrawlRig) -> None:
    (url,) = leaves(web, "one-bad", 1)
    crawled = rig.crawl("-i", write(rig.folder / "urls.txt", f"{url}\nnonsense\n".encode()))
    assert "1 line of the input is not a URL" in crawled.err


def test_bytes_that_are_no_utf_8_are_a_bad_line_and_not_a_crash(web: SyntheticWeb, rig: CrawlRig) -> None:
    (url,) = leaves(web, "latin", 1)
    crawled = rig.crawl("-i", write(rig.folder / "urls.txt", b"\xff\xfe\x00\x80\n" + url.encode()))
    assert (crawled.code, crawled.urls) == (0, [url])
    assert "1 line of the input" in crawled.err


def test_a_line_longer_than_memory_should_hold_is_passed_over(web: SyntheticWeb, rig: CrawlRig) -> None:
    (url,) = leaves(web, "long", 1)
    data = b"http://long.example/" + b"a" * 3_000_000 + b"\n" + url.encode() + b"\n"
    crawled = rig.crawl("-i", write(rig.folder / "urls.txt", data))
    assert (crawled.code, crawled.urls) == (0, [url])


def test_a_dash_and_dash_i_dash_both_read_standard_input(web: SyntheticWeb, rig: CrawlRig) -> None:
    urls = leaves(web, "stdin", 3)
    for place, given in enumerate((["-"], ["-i", "-"])):
        arguments = rig.arguments("crawl", *given, job=f"job-{place}", output=f"{place}.jsonl")
        ended = rig.spawn(*arguments, stdin="\n".join(urls).encode())
        assert sorted(rig.inspect(ended, f"job-{place}", f"{place}.jsonl").urls) == urls


def test_a_finished_job_takes_new_urls_from_standard_input(web: SyntheticWeb, rig: CrawlRig) -> None:
    urls = leaves(web, "more", 3)
    arguments = rig.arguments("crawl", "-")
    rig.spawn(*arguments, stdin="\n".join(urls[:2]).encode())
    ended = rig.spawn(*arguments, stdin="\n".join(urls).encode())
    assert sorted(rig.inspect(ended).urls) == urls
    assert sorted(paths_of(web, "more")) == ["/0", "/1", "/2"]


def test_more_seeds_than_fit_one_batch_are_all_crawled_once(web: SyntheticWeb, rig: CrawlRig) -> None:
    urls = leaves(web, "many", 50)
    given = write(rig.folder / "urls.txt", "\n".join(urls * 2).encode())
    crawled = rig.crawl("-i", given, "--seed-batch-urls", "7", "--per-host", "8")
    assert sorted(crawled.urls) == sorted(urls)
    assert len(hits_of(web, "many")) == 50


def test_a_seed_that_the_users_own_globs_exclude_is_refused_and_not_fetched(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    urls = leaves(web, "excluded", 2)
    crawled = rig.crawl(*urls, "--exclude", "*/1")
    assert crawled.state(urls[1]) == "refused excluded"
    assert paths_of(web, "excluded") == ["/0"]


def test_a_job_goes_on_with_the_seeds_it_had_not_read_when_a_limit_ended_it(
    web: SyntheticWeb, rig: CrawlRig
) -> None:
    urls = leaves(web, "resumed", 30)
    given = write(rig.folder / "urls.txt", "\n".join(urls).encode())
    first = rig.crawl("-i", given, "--seed-batch-urls", "5", "-n", "3")
    assert len(first.records) == 3
    assert sorted(rig.crawl("-i", given, "--seed-batch-urls", "5").urls) == sorted(urls)
    assert len(hits_of(web, "resumed")) == 30


def test_scrape_fetches_the_inputs_and_follows_nothing(web: SyntheticWeb, rig: CrawlRig) -> None:
    url = serve(web, "scraped", {"/": ["/a", "/b"], "/a": []})
    crawled = rig.scrape(url)
    assert crawled.urls == [url]
    assert crawled.records[0]["links"] == [web.url("scraped", "/a"), web.url("scraped", "/b")]
    assert paths_of(web, "scraped") == ["/"]
