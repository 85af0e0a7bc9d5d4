"""A folder of HTML to crawl: documentation from installed Debian packages, else generated pages of the same shape.

Every page is reachable from `index.html`. A package is taken whole or not at all, so that a smaller corpus has
no more dead links than a large one.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

OUT = Path(__file__).parent / "out"
#: Hidden, so that type checkers and the like leave the examples in the documentation alone.
CORPORA = OUT / ".corpus"


@dataclass(frozen=True, slots=True)
class Package:
    """Documentation that a Debian package installs, and the page its own navigation starts from."""

    name: str
    root: Path
    entry: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """A finished corpus. `pages` counts HTML files; a crawl also meets what they link to."""

    root: Path
    source: str
    pages: int
    mean_bytes: int


DOCS = Path("/usr/share/doc")
PACKAGES = (
    Package("python3-doc", DOCS / "python3.11/html", "contents.html"),
    Package("python-django-doc", DOCS / "python-django-doc/html", "contents.html"),
    Package("postgresql-doc-15", DOCS / "postgresql-doc-15/html", "index.html"),
    Package("sqlite3-doc", DOCS / "sqlite3", "sitemap.html"),
    Package("python-sqlalchemy-doc", DOCS / "python-sqlalchemy-doc/html", "contents.html"),
    Package("git-doc", DOCS / "git-doc", "git.html"),
    Package("libboost1.74-doc", DOCS / "libboost1.74-doc/doc/html", "index.html"),
)
HTML = {".html", ".htm"}


def build(
    pages: int | None = None, *, generated: bool = False, root: Path | None = None, only: str = ""
) -> Corpus:
    """Return the corpus of at most `pages` pages in `bench/out`, building it if it is not there yet; of `only` one package."""
    chosen = () if generated else choose(pages, only)
    key = "+".join(package.name for package in chosen) or f"generated-{pages or 5000}"
    root = root or CORPORA / key
    receipt = root.parent / f"{root.name}.json"
    if not receipt.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        if chosen:
            link(chosen, root)
        else:
            generate(pages or 5000, root)
        folders = [package.root for package in chosen] or [root]
        receipt.write_text(json.dumps(measure(folders, key)))
    return Corpus(root=root, **json.loads(receipt.read_text()))


def choose(pages: int | None, only: str = "") -> tuple[Package, ...]:
    """Take installed packages in order, each that still fits in `pages`; empty when none is installed or fits."""
    left = pages if pages is not None else 1 << 30
    chosen = []
    for package in [each for each in PACKAGES if only in {"", each.name}]:
        size = len(html_files(package.root)) if (package.root / package.entry).is_file() else 0
        if 0 < size <= left:
            chosen.append(package)
            left -= size
    return tuple(chosen)


def html_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix in HTML and path.is_file())


def link(packages: tuple[Package, ...], root: Path) -> None:
    """Put packages below `root` and write the index that links to each package's entry page."""
    for package in packages:
        (root / package.name).symlink_to(package.root, target_is_directory=True)
    items = "".join(f'<li><a href="{p.name}/{p.entry}">{p.name}</a></li>\n' for p in packages)
    (root / "index.html").write_text(f"<!doctype html><title>Corpus</title>\n<ul>\n{items}</ul>\n")


WORDS = (
    "frontier",
    "ledger",
    "page",
    "crawler",
    "state",
    "the",
    "a",
    "holds",
    "keeps",
    "every",
    "found",
    "and",
    "not",
)


def generate(pages: int, root: Path) -> None:
    """Write `pages` pages of about 30 KB and 67 links each, the same for every run."""
    (root / "index.html").write_text('<!doctype html><title>Corpus</title><a href="d0/p0.html">start</a>')
    for number in range(pages):
        path = root / page_path(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(number, pages))


def page_path(number: int) -> str:
    return f"d{number // 100}/p{number}.html"


def page(number: int, pages: int) -> str:
    """Page `number` links to its two children in a binary tree, which reaches all, and to 65 others."""
    rng = random.Random(number)
    targets = [child for child in (2 * number + 1, 2 * number + 2) if child < pages]
    targets += [rng.randrange(pages) for _ in range(67 - len(targets))]
    parts: list[str] = []
    for target in targets:
        text = " ".join(rng.choices(WORDS, k=62))
        fragment = f"#s{rng.randrange(9)}" if rng.random() < 0.3 else ""
        link = f'<a class="reference internal" href="../{page_path(target)}{fragment}">page {target}</a>'
        parts.append(f'<div class="section" id="s{len(parts)}"><p>{text} {link}</p></div>\n')
    body = "".join(parts)
    return f"<!doctype html><html lang=en><head><title>Page {number}</title></head><body>\n{body}</body></html>\n"


def measure(folders: list[Path], source: str) -> dict[str, str | int]:
    sizes = [path.stat().st_size for folder in folders for path in html_files(folder)]
    return {"source": source, "pages": len(sizes), "mean_bytes": sum(sizes) // len(sizes)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, help="at most this many pages")
    parser.add_argument(
        "--generated", action="store_true", help="generate, even where packages are installed"
    )
    given = parser.parse_args()
    print(json.dumps(asdict(build(given.pages, generated=given.generated)), default=str))


if __name__ == "__main__":
    main()
