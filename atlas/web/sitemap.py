"""sitemap.xml and robots.txt, written from the catalogue."""

from __future__ import annotations

from xml.sax.saxutils import escape

from atlas.catalog import Catalog
from atlas.web.readable import readable

PAGES = ("/", "/how-to-read", "/walk", "/glossary", "/compare", "/docs")


def sitemap_text(catalog: Catalog, origin: str) -> str:
    """Every page of every model, once, in its usual view."""
    paths = [*PAGES]
    for model in readable(catalog):
        paths.append(f"/models/{model.id}")
        paths += [f"/models/{model.id}/{path}" for path in model.graph.nodes]
    places = "".join(f"<url><loc>{escape(origin + path)}</loc></url>\n" for path in paths)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    return f"{head}{places}</urlset>\n"


def robots_text(origin: str) -> str:
    """Pages may be read by all; the API's runs and the search are not to be crawled."""
    return f"User-agent: *\nDisallow: /api/\nDisallow: /search\nSitemap: {origin}/sitemap.xml\n"
