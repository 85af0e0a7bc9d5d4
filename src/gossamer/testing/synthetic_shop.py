"""`shop`: listings, products with structured data, and the same product under many addresses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qs

from gossamer.testing.synthetic_reply import Hit, Reply, text_reply
from gossamer.testing.synthetic_site import Site, link_list, number_for, page, pick, prose, sequel, slug

HOST = "shop"
MATERIALS = ("Silk", "Linen", "Merino", "Alpaca", "Cotton", "Hemp", "Nettle", "Mohair", "Cashmere", "Jute")
THINGS = ("Scarf", "Yarn", "Blanket", "Cord", "Shuttle Bag", "Table Runner")
COLOURS = ("indigo", "madder red", "weld yellow", "undyed", "walnut", "moss")
PER_PAGE = 10
ROBOTS = """User-agent: *
Disallow: /private/
Allow: /private/catalogue.html
Disallow: /cart
Disallow: /*?*session=
"""


@dataclass(frozen=True, slots=True)
class Product:
    """Something to buy."""

    name: str
    colour: str
    cents: int

    @property
    def path(self) -> str:
        """Where its one true page is."""
        return f"/product/{slug(self.name)}"

    @property
    def price(self) -> str:
        """The price with a point, as structured data wants it."""
        return f"{self.cents // 100}.{self.cents % 100:02}"


PRODUCTS = tuple(
    Product(f"{material} {thing}", pick(material + thing, COLOURS), 500 + number_for(material + thing, 9000))
    for thing in THINGS
    for material in MATERIALS
)
#: The one with many addresses.
FAMOUS = PRODUCTS[6]


def build_shop(site: Site) -> None:
    """Add the shop to the site."""
    site.serve(HOST, "/robots.txt", text_reply(ROBOTS))
    pages = [str(number + 1) for number in range(len(PRODUCTS) // PER_PAGE)]
    listings = link_list((f"/catalogue?page={number}", f"Catalogue, page {number}") for number in pages)
    more = link_list(
        (href, href)
        for href in ("/spellings.html", "/private/catalogue.html", "/private/costs.html", "/cart")
    )
    site.put(
        HOST, "/", page(HOST, "Things made of thread", f"{prose('Shopping', 1)}{listings}{more}"), via="seed"
    )
    for place in range(len(pages)):
        _listing(site, pages, place)
    for product in PRODUCTS:
        site.put(HOST, product.path, product_page(site, product))
    _many_addresses(site)
    site.put(HOST, "/private/catalogue.html", page(HOST, "Trade catalogue", prose("Trade", 1)))
    for path in ("/private/costs.html", "/cart", "/catalogue?page=1&session=abc"):
        site.serve(HOST, path, page(HOST, "Not for crawlers", "<p>You should not be here.</p>"))
        site.expect(HOST, path, 0, "refused")


def _listing(site: Site, pages: list[str], place: int) -> None:
    head, near = sequel(pages, place, lambda number: f"?page={number}")
    cards = "\n".join(
        f'<div class="card"><a href="{item.path}">{item.name}</a> <span class="price">€ {item.price}</span></div>'
        for item in PRODUCTS[place * PER_PAGE : (place + 1) * PER_PAGE]
    )
    site.put(
        HOST,
        f"/catalogue?page={pages[place]}",
        page(HOST, f"Catalogue, page {pages[place]}", cards + near, head=head),
    )


def product_page(site: Site, product: Product) -> Reply:
    """Write a product's page; it names its one true address, wherever it is served."""
    offer = {
        "@type": "Offer",
        "price": product.price,
        "priceCurrency": "EUR",
        "availability": "https://schema.org/InStock",
    }
    data = {
        "@context": "https://schema.org",
        "@type": "Product",
        "name": product.name,
        "color": product.colour,
        "offers": offer,
    }
    head = (
        f'<link rel="canonical" href="{site.url(HOST, product.path)}">\n'
        f'<script type="application/ld+json">{json.dumps(data)}</script>\n'
    )
    form = '<form action="/cart" method="post"><button>Add to cart</button></form>'
    facts = f'<p class="price">€ {product.price}</p><p>Colour: {product.colour}</p>'
    return page(HOST, product.name, f"{facts}{prose(product.name, 2)}{form}", head=head)


def _many_addresses(site: Site) -> None:
    """Link one product and one comparison in spellings that mean the same, and in some that only look so."""
    whole, path = site.url(HOST, FAMOUS.path), FAMOUS.path
    origin, _, port = site.url(HOST, "").rpartition(":")
    same = (
        path,
        whole,
        f"{path}#reviews",
        f"/./product/../{path.removeprefix('/')}",
        f"{origin.upper()}:{port}{path}",
        f"{origin}:0{port}{path}",
        "/compare?a=1&amp;b=2",
        "/compare?b=2&amp;a=1",
    )
    # Equal bytes under another path or with a tracking parameter: whether they count as one is a setting.
    twins = (f"/gifts/{slug(FAMOUS.name)}", f"{path}?utm_source=letter&amp;utm_medium=mail")
    refused = "/catalogue?page=1&amp;session=abc"
    links = link_list((href, href) for href in (*same, *twins, refused))
    site.put(HOST, "/spellings.html", page(HOST, "One product, many addresses", links))
    site.serve(HOST, "/compare", _compare)
    site.expect(HOST, "/compare?a=1&b=2", 200, "fetched")
    site.put(HOST, twins[0], product_page(site, FAMOUS), state="depends")
    site.expected[whole] = site.expected[site.url(HOST, twins[0])]


def _compare(hit: Hit) -> Reply:
    """Show a comparison that does not care for the order of its parameters."""
    query = sorted(parse_qs(hit.path.partition("?")[2]).items())
    rows = "".join(f"<li>{escape(key)}: {escape(values[0])}</li>" for key, values in query)
    return page(HOST, "Comparison", f"<ul>{rows}</ul>")
