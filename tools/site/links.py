"""Every link of a site that was built: those within it lead to a file and an anchor that are there,
and those to other hosts are printed. Looks at the HTML, so it also sees what is no Markdown.

    links.py SITE      exit code 1, and a line for each broken link
"""

import collections
import html.parser
import os
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """One page's anchors and links."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    broken, elsewhere = [], collections.defaultdict(set)
    for path, page in pages.items():
        name = path.relative_to(site)
        if name.name == "404.html":
            continue  # its links are absolute: it is shown for any address
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                elsewhere[link].add(str(name))
                continue
            target = path
            if parts.path:
                there = path.parent / urllib.parse.unquote(parts.path)
                target = pathlib.Path(os.path.normpath(there))
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.is_file():
                broken.append(f"{name}: {link}: no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f"{name}: {link}: no such anchor")
    for link, names in sorted(elsewhere.items()):
        print(f"elsewhere: {link} ({len(names)} pages, {min(names)})")
    for line in broken:
        print(line, file=sys.stderr)
    print(f"site: {len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, "
          f"{len(broken)} broken")
    sys.exit(1 if broken or not pages else 0)


if __name__ == "__main__":
    main()
