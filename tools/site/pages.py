"""The site's pages, as a hook of MkDocs: every *.md of the repository at its own path, some
sections of them as pages too, the API from comments, and each source file that a page links to.
Links keep working: each is turned to the page that has what it names."""

import logging
import os
import pathlib
import re

from mkdocs.structure.files import File

import comments
import python_api

ROOT = pathlib.Path(os.environ.get("KVKEEP_SITE_ROOT") or
                    pathlib.Path(__file__).resolve().parents[2])
_SKIPPED = {".git", "build", "dist", ".cache", "node_modules"}

# Page -> its title and the sections it shows, which their own pages have as well.
SECTIONS = {
    "concepts.md": ("Concepts", [("README.md", "How the bytes flow"), ("CONTRIBUTING.md", "Words"),
                                 ("README.md", "What it promises")]),
    "engines.md": ("Engines", [("README.md", "Engines")]),
    "comparison.md": ("How it compares", [("README.md", "How it compares")]),
}
# Page -> its title, the language and the files it is made of.
HEADERS = {
    "api/cpp.md": ("C++", "cpp", [
        "client/client.h", "client/values/types.h", "client/values/calls.h",
        "client/values/lease.h", "client/values/options.h", "client/values/security.h",
        "client/values/shared_memory.h", "client/watch.h", "client/admin.h", "client/gpu_path.h",
        "client/gpu/gpu_region.h", "client/gpu/gpu_run.h", "client/gpu/gpu_use.h",
        "client/gpu/gpu_values.h",
        "client/gpu/kv_layout.h", "client/gpu/kv_planner.h", "client/gpu/pinned_arena.h",
        "client/payload_malloc.h"]),
    "api/c.md": ("C", "c", ["client/c/kvkeep.h", "client/c/kvkeep_gpu.h", "client/c/kvkeep_kv.h",
                            "client/c/kvkeep_pin.h", "client/c/kvkeep_watch.h"]),
    "api/grpc.md": ("gRPC", "protobuf", ["proto/kvkeep/v1/kvkeep.proto"]),
}
# Modules of the Python package, besides its exports.
PYTHON_MODULES = ["aio", "completions", "transformers"]
PYTHON_ADAPTERS = ["vllm", "vllm_tier", "vllm_direct", "vllm_connector", "lmcache",
                   "lmcache_native", "sglang", "sglang_storage", "sglang_direct", "sglang_linker"]
_COPIED = (".svg", ".png", ".json", ".yaml")  # shown by the browser as they are
_LANGUAGES = {".h": "cpp", ".cc": "cpp", ".c": "c", ".py": "python", ".proto": "protobuf"}

_log = logging.getLogger("mkdocs.hooks.pages")  # a warning fails the build
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_HEADING = re.compile(r"^(#+) +(.*?)\s*$")


def _outside_code(text):
    """(line, whether it is prose) of each line."""
    fence = None
    for line in text.splitlines():
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark.group(1)
            yield line, False
        elif fence is not None:
            if line.strip() == fence:
                fence = None
            yield line, False
        else:
            yield line, not line.startswith("    ")


def divide(text):
    """{title of a section of the second level, "" for what is above the first: its lines}."""
    parts, title = {"": []}, ""
    for line, prose in _outside_code(text):
        heading = _HEADING.match(line) if prose else None
        if heading and len(heading.group(1)) == 2:
            title = heading.group(2)
            parts[title] = []
        parts[title].append(line)
    return parts


def warn_of_lists(file, text):
    """GitHub sees a list right below a paragraph, and one indented by two; Python-Markdown does
    not."""
    above = ""
    for line, prose in _outside_code(text):
        item = re.match(r"( *)([-*]|\d+\.) ", line) if prose else None
        if item and ((above and len(item.group(1)) == 0 and not re.match(r"[-*] |\d+\. |  ", above))
                     or len(item.group(1)) in (1, 2, 3)):
            _log.warning("'%s': wants a blank line above it, or four blanks before it: %s",
                         file, line)
        above = line.strip() and line if prose else ""


class Site:
    """Which page has what of the repository, and each page's text."""

    def __init__(self, root):
        self.root = root
        self.texts = {}  # page -> Markdown, links turned
        self.copies = set()  # files that are copied as they are
        self.sources = set()  # files that are linked to, each of which gets a page
        self.headers = {file: page for page, (_, _, files) in HEADERS.items() for file in files}
        self.markdown = {}
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(set(folders) - _SKIPPED)
            for name in names:
                path = (pathlib.Path(folder) / name).relative_to(root).as_posix()
                if name.endswith(".md"):
                    self.markdown[path] = (root / path).read_text(encoding="utf-8")

    def make(self):
        for file, text in self.markdown.items():
            warn_of_lists(file, text)
            self.texts[file] = self.turned(text, file, file)
        divided = {file: divide(text) for file, text in self.markdown.items()}
        for page, (title, sections) in SECTIONS.items():
            # A section with the page's own title needs no second heading.
            self.texts[page] = f"# {title}\n\n" + "\n\n".join(
                self.turned("\n".join(divided[file][section][section == title:]), file, page)
                for file, section in sections)
        for page, (title, language, files) in HEADERS.items():
            self.texts[page] = f"# {title}\n\n" + "\n\n".join(
                comments.header_page(file, self.read(file), language) for file in files)
        self.texts["api/python.md"] = python_api.page(
            self.root / "client" / "python", "kvkeep", PYTHON_MODULES, PYTHON_ADAPTERS)
        for file in sorted(self.sources):
            fence, language = "`" * 8, _LANGUAGES.get(pathlib.Path(file).suffix, "")
            self.texts[f"source/{file}.md"] = (
                f"# {file.rpartition('/')[2]}\n\n`{file}`\n\n{fence}{language}\n{self.read(file)}\n"
                f"{fence}\n")

    def read(self, file):
        return (self.root / file).read_text(encoding="utf-8")

    def turned(self, text, file, page):
        """The text, of this file, with its links as they have to be on this page."""
        def turn(found):
            return found.group(1) + self.link(found.group(2), file, page) + found.group(3)
        return "\n".join(_LINK.sub(turn, line) if prose else line
                         for line, prose in _outside_code(text))

    def link(self, link, file, page):
        if re.match(r"[a-z]+:", link):
            return link
        name, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(file), name)) if name else file
        at = self.page_of(target)
        if at is None:
            return link  # MkDocs says that there is no such file
        if at == page and anchor:
            return f"#{anchor}"
        return os.path.relpath(at, os.path.dirname(page) or ".") + ("#" + anchor if anchor else "")

    def page_of(self, target):
        if target in self.markdown:
            return target
        if target in self.headers:
            return self.headers[target]
        if not (self.root / target).is_file():
            return None
        if target.endswith(_COPIED):
            self.copies.add(target)
            return target
        self.sources.add(target)
        return f"source/{target}.md"


def on_files(files, config):
    site = Site(ROOT)
    site.make()
    for page, text in site.texts.items():
        files.append(File.generated(config, page, content=text))
    for copy in sorted(site.copies):
        files.append(File.generated(config, copy, abs_src_path=str(ROOT / copy)))
    return files
