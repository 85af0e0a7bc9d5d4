"""`docs`: a handbook with chapters, and every way HTML has to point from one page to another."""

from __future__ import annotations

from gossamer.testing.synthetic_reply import Reply, text_reply
from gossamer.testing.synthetic_site import Site, document, link_list, page, prose, sequel, slug

HOST = "docs"
CHAPTERS = {
    "Silk": ("Where silk comes from", "Reeling", "Degumming", "Twist", "Weight and count", "Storing silk"),
    "Fibres": ("Wool", "Linen", "Cotton", "Hemp", "Nettle", "Blends"),
    "Knots": ("The reef knot", "The sheet bend", "The weaver's knot", "Hitches", "Splices", "Undoing knots"),
    "Looms": ("Parts of a loom", "Backstrap looms", "Floor looms", "Warping", "Heddles and reeds", "Repairs"),
    "Patterns": ("Plain weave", "Twill", "Satin", "Reading a draft", "Borders", "Colour and weave"),
    "Dyes": ("Madder", "Woad", "Weld", "Mordants", "Dye baths", "Fastness"),
    "Webs": ("Orb webs", "Sheet webs", "Funnel webs", "Cobwebs", "How a web is begun", "How a web is mended"),
    "Workshop": ("Light", "Tools", "A ledger of pieces", "Safety", "Apprentices", "Closing time"),
}
ROBOTS = """# Two groups: a crawler obeys the one that names it and no other.
User-agent: *
Disallow: /private/
Disallow: /drafts/

User-agent: Gossamer
Disallow: /private/
Allow: /private/press/
Disallow: /internal
Crawl-delay: 0.05
"""
#: Links on /links.html as written, and the paths they mean.
SPELLINGS = {
    "./links/dot.html": "/links/dot.html",
    "links/a/../dot-dot.html": "/links/dot-dot.html",
    "?page=2": "/links.html?page=2",
    "  /links/spaces-around.html\n": "/links/spaces-around.html",
    "/links/a space.html": "/links/a%20space.html",
    "\\links\\backslash.html": "/links/backslash.html",
    "/links/entity.html?a=1&amp;b=2": "/links/entity.html?a=1&b=2",
    "/links/café.html": "/links/caf%C3%A9.html",
    "/li\nnks/new\tline.html": "/links/newline.html",
    "links/fragment.html#part-2": "/links/fragment.html",
}
NOT_LINKS = (
    "#top",
    "",
    "mailto:weaver@docs.localhost",
    "javascript:void(0)",
    "tel:+4930000000",
    "data:text/plain,x",
    "http://[bad",
)


def build_docs(site: Site) -> None:
    """Add the handbook to the site."""
    site.serve(HOST, "/robots.txt", text_reply(ROBOTS))
    site.put(HOST, "/", _index(site), via="seed")
    for chapter in CHAPTERS:
        _chapter(site, chapter)
    _languages(site)
    _ways_to_link(site)
    _spelled_links(site)
    _guarded(site)


def _index(site: Site) -> Reply:
    chapters = link_list((f"guide/{slug(chapter)}/", chapter) for chapter in CHAPTERS)
    special = link_list(
        (href, href)
        for href in (
            "map.html",
            "frames.html",
            "embed.html",
            "base.html",
            "moved.html",
            "links.html",
            "drafts/",
        )
    )
    guarded = link_list(
        (href, href) for href in ("/private/plan.html", "/private/press/kit.html", "/internal/")
    )
    elsewhere = link_list((site.url(host), host) for host in ("shop", "blog", "lab"))
    head = "".join(f'<link rel="alternate" hreflang="{lang}" href="/{lang}/">\n' for lang in ("de", "fr"))
    body = f"{prose('Weaving', 2)}<h2>Chapters</h2>{chapters}<h2>Curious pages</h2>{special}"
    return page(
        HOST,
        "Weaving from the beginning",
        f"{body}<h2>Guarded</h2>{guarded}<h2>Elsewhere</h2>{elsewhere}",
        head=head,
    )


def _chapter(site: Site, chapter: str) -> None:
    folder = f"/guide/{slug(chapter)}/"
    sections = list(CHAPTERS[chapter])
    head, near = sequel(list(CHAPTERS), list(CHAPTERS).index(chapter), lambda other: f"../{slug(other)}/")
    crumbs = '<p class="crumbs"><a href="/">Handbook</a> &rsaquo; '
    contents = link_list((f"{slug(section)}.html", section) for section in sections)
    site.put(
        HOST, folder, page(HOST, chapter, f"{crumbs}{chapter}</p>{prose(chapter)}{contents}{near}", head=head)
    )
    for place, section in enumerate(sections):
        head, near = sequel(sections, place, lambda other: f"{slug(other)}.html")
        trail = f'{crumbs}<a href="./">{chapter}</a></p>'
        body = f'{trail}{prose(section, 4)}<h2>Further</h2>{near}<p><a href="../../#top">Contents</a></p>'
        site.put(HOST, f"{folder}{slug(section)}.html", page(HOST, section, body, head=head))


def _languages(site: Site) -> None:
    words = {
        "de": ("Weben von Anfang an", "Willkommen in der Webstube."),
        "fr": ("Tisser dès le début", "Bienvenue à l'atelier."),
    }
    for lang, (title, greeting) in words.items():
        alternate = '<link rel="alternate" hreflang="en" href="/">\n'
        site.put(
            HOST, f"/{lang}/", page(HOST, title, f"<p>{greeting}</p>", head=alternate, lang=lang), via="link"
        )


def _ways_to_link(site: Site) -> None:
    """Pages whose targets can be found only by their one way to link."""
    areas = "".join(
        f'<area shape="rect" coords="0,{y},90,{y + 30}" href="map/{y}.html" alt="{y}">' for y in (0, 30)
    )
    site.put(
        HOST,
        "/map.html",
        page(HOST, "Map of the workshop", f'<img alt="" usemap="#m"><map name="m">{areas}</map>'),
    )
    frames = (
        '<frameset cols="30%,70%"><frame src="frames/left.html"><frame src="frames/right.html"></frameset>'
    )
    site.put(
        HOST, "/frames.html", Reply(body=f"<html><head><title>Frames</title></head>{frames}</html>".encode())
    )
    site.put(HOST, "/embed.html", page(HOST, "A page in a page", '<iframe src="embed/inner.html"></iframe>'))
    base = '<base href="/based/here/">\n'
    site.put(HOST, "/base.html", page(HOST, "Based elsewhere", '<a href="leaf.html">leaf</a>', head=base))
    refresh = '<meta http-equiv="refresh" content="0; url=moved/new.html">\n'
    site.put(HOST, "/moved.html", page(HOST, "This page has moved", "<p>One moment.</p>", head=refresh))
    leaves = {
        "/map/0.html": "area",
        "/map/30.html": "area",
        "/frames/left.html": "frame",
        "/frames/right.html": "frame",
        "/embed/inner.html": "iframe",
        "/based/here/leaf.html": "a",
        "/moved/new.html": "refresh",
    }
    for path, via in leaves.items():
        site.put(HOST, path, page(HOST, f"Found at {path}", prose(path, 1)), via=via)


def _spelled_links(site: Site) -> None:
    absolute = site.url(HOST, "/links/shouting.html")
    spellings = SPELLINGS | {
        absolute.replace("http://docs.localhost", "HTTP://DOCS.LOCALHOST"): "/links/shouting.html",
        site.url(HOST, "/links/scheme-relative.html").removeprefix("http:"): "/links/scheme-relative.html",
    }
    listed = link_list(
        [(href, path) for href, path in spellings.items()] + [(href, "not a page") for href in NOT_LINKS]
    )
    site.put(HOST, "/links.html", page(HOST, "Ways to write a link", listed))
    for path in spellings.values():
        site.put(HOST, path, page(HOST, f"Reached {path}", prose(path, 1)))


def _guarded(site: Site) -> None:
    """Pages that robots.txt speaks of; the refused ones exist, so that a visit would be noticed."""
    for path in ("/drafts/", "/private/press/kit.html"):
        site.put(HOST, path, page(HOST, f"Open to Gossamer: {path}", prose(path, 1)))
    for path in ("/private/plan.html", "/internal/"):
        site.serve(
            HOST,
            path,
            Reply(body=document(HOST, "Not for crawlers", "<p>You should not be here.</p>").encode()),
        )
        site.expect(HOST, path, 0, "refused")
