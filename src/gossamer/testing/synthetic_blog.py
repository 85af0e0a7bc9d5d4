"""`blog`: posts, tags and an archive on a host without robots.txt, and old posts whose charset is in doubt."""

from __future__ import annotations

from gossamer.testing.synthetic_reply import HTML_TYPE, text_reply
from gossamer.testing.synthetic_site import Site, document, link_list, page, pick, prose, sequel, slug

HOST = "blog"
TAGS = ("spiders", "looms", "travel", "tools", "colour")
TITLES = (
    "The spider behind the radiator", "Three days at the wool market", "A loom in a suitcase", "Against perfect selvedges",
    "What the dyer told me", "Counting threads in the dark", "A web after rain", "Notes on a borrowed shuttle",
    "The museum of string", "Why I unpick my work", "Blue, and how it is lost", "Letters from an apprentice",
    "The longest warp", "Mending as a habit", "A short history of the needle", "Two kinds of patience",
    "The house with nine looms", "Listening to a floor loom", "On leaving gaps", "The last thread of the year",
)  # fmt: skip
#: Paths of the old posts: the content type they are served with, their codec, a line in that language.
CHARSETS = {
    "/old/mislabelled.html": (HTML_TYPE, "cp1252", "“Crème brûlée”… naïve café, 5 € à la carte"),
    "/old/japanese.html": ("text/html", "shift_jis", "蜘蛛の糸は細くて強い。機織りの歌が聞こえる。"),
    "/old/wide.html": ("text/html", "utf-16", "Zwölf Boxkämpfer jagen Viktor quer über den Deich"),
    "/old/undeclared.html": ("text/html", "cp1252", "Größe, Maß und Übermaß: fünf Fäden"),
}


def build_blog(site: Site) -> None:
    """Add the blog to the site."""
    site.serve(HOST, "/robots.txt", text_reply("no such file\n", status=404))
    posts = [f"/{2004 + place}/{slug(title)}" for place, title in enumerate(TITLES)]
    newest = link_list(list(zip(posts, TITLES, strict=True))[-10:])
    more = link_list([("/archive", "All posts"), *((path, path) for path in CHARSETS)])
    site.put(HOST, "/", page(HOST, "Notes from the field", newest + more), via="seed")
    site.put(HOST, "/archive", page(HOST, "Archive", link_list(zip(posts, TITLES, strict=True))))
    for place, title in enumerate(TITLES):
        head, near = sequel(posts, place, str)
        tag = pick(title, TAGS)
        body = f'{prose(title, 5)}<p>Filed under <a rel="tag" href="/tag/{tag}">{tag}</a></p>{near}'
        site.put(HOST, posts[place], page(HOST, title, body, head=head))
    for tag in sorted({pick(title, TAGS) for title in TITLES}):
        tagged = [
            (path, title) for path, title in zip(posts, TITLES, strict=True) if pick(title, TAGS) == tag
        ]
        site.put(HOST, f"/tag/{tag}", page(HOST, f"Filed under {tag}", link_list(tagged)))
    _old_posts(site)


def _old_posts(site: Site) -> None:
    for path, (content_type, codec, line) in CHARSETS.items():
        head = '<meta charset="shift_jis">\n' if codec == "shift_jis" else ""
        text = document(HOST, line, f"<p>{line}</p>", head=head).replace("·", "|")
        site.put(HOST, path, text_reply(text.encode(codec), content_type))
