#!/usr/bin/env python3
"""tools/site: the site builds, and anything broken in its sources fails the build.

Its tools come from PyPI. If they cannot be had, the tests that need them are skipped.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "site"))

import comments  # noqa: E402  (after the path to it)

NO_TOOLS = 3

HEADER = """\
// Shelf: what it is.
//
//   Shelf shelf(3);
//
// What it guarantees:
// * Never a < b
//   in two lines.
// * Never two.
//
// Threads: one.
#pragma once

#include <memory>

namespace kvkeep {

class Elsewhere;

// Holds *things*.
class Shelf {
 public:
  int size() const;  // of it

 private:
  int secret_;
};

// ---------------------------------------------------------------- calls

// Makes one.
Shelf MakeShelf(int size,
                int more);
// Ends it.
void EndShelf(Shelf shelf);

}  // namespace kvkeep
"""


def build(root, out):
    return subprocess.run([ROOT / "tools" / "site" / "build"], capture_output=True, text=True,
                          env=os.environ | {"KVKEEP_SITE_ROOT": str(root),
                                            "KVKEEP_SITE_OUT": str(out)}, check=False)


def copy_or_link(source, target):
    (shutil.copy if source.endswith(".md") else os.symlink)(source, target)


def words(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


class Comments(unittest.TestCase):
    def test_a_header_becomes_prose_and_declarations_without_what_is_private(self):
        page = comments.header_page("client/shelf.h", HEADER, "cpp")
        self.assertTrue(page.startswith("## shelf.h\n"), page)
        self.assertIn("```cpp\nShelf shelf(3);\n```", page)
        self.assertIn("\n- Never a &lt; b\n  in two lines.\n\n- Never two.\n", page)
        self.assertIn(r"Holds \*things\*.", page)
        self.assertIn("int size() const;  // of it\n};", page)
        for hidden in ("secret_", "#pragma", "#include", "namespace", "Elsewhere", "private"):
            self.assertNotIn(hidden, page)
        self.assertEqual(re.findall(r"^### (\w+)$", page, re.MULTILINE),
                         ["Shelf", "MakeShelf", "EndShelf"])
        self.assertIn("**Calls**", page)

    def test_names_of_arguments_become_a_list_and_a_single_colon_does_not(self):
        self.assertIn("- path: where\n", comments.as_markdown("Opens.\npath: where\nname: what\n"))
        self.assertNotIn("- ", comments.as_markdown("Results.\ncode: zero is good\n"))


class Links(unittest.TestCase):
    def test_a_link_that_leads_nowhere_is_found_in_a_site(self):
        with tempfile.TemporaryDirectory() as name:
            site = pathlib.Path(name)
            (site / "a.html").write_text('<a href="b.html#there">1</a><a href="b.html#gone">2</a>'
                                         '<img src="gone.svg"><a href="https://example.org/">3</a>')
            (site / "b.html").write_text('<p id="there">')
            done = subprocess.run(
                [sys.executable, "-B", ROOT / "tools" / "site" / "links.py", site],
                capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "a.html: b.html#gone: no such anchor\n"
                                      "a.html: gone.svg: no such file\n")
        self.assertIn("elsewhere: https://example.org/", done.stdout)


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.out = cls.folder / "site"
        cls.built = build(ROOT, cls.out)
        if cls.built.returncode == NO_TOOLS:
            raise unittest.SkipTest(cls.built.stderr.strip().splitlines()[-1])

    def test_the_site_builds_and_has_each_kind_of_page(self):
        self.assertEqual(self.built.returncode, 0, self.built.stdout + self.built.stderr)
        for page, text in (("index.html", "kvkeep is a per-node daemon"),
                           ("concepts.html", "How the bytes flow"),
                           ("deploy/RUNBOOK.html", "Runbook"),
                           ("api/cpp.html", "class Client"),
                           ("api/c.html", "kvkeep_connect"),
                           ("api/grpc.html", "service KvCache"),
                           ("api/python.html", "Namespace.lookup"),
                           ("source/client/example.cc.html", "int main")):
            self.assertIn(text, words(self.out / page), page)
        self.assertIn("index.html#what-it-promises", (self.out / "comparison.html").read_text())

    def test_the_first_page_is_the_top_readme_with_its_pictures(self):
        self.assertEqual(self.built.returncode, 0, self.built.stdout + self.built.stderr)
        home = (self.out / "index.html").read_text(encoding="utf-8")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for heading in re.findall(r"^## (.*)$", readme, re.MULTILINE):
            self.assertRegex(home, rf">{re.escape(heading)}<a class=.headerlink")
        self.assertIn('class="mermaid"', home)
        for picture in re.findall(r"^!\[.*\]\((.*)\)$", readme, re.MULTILINE):
            self.assertIn(f'src="{picture}"', home)
            self.assertTrue((self.out / picture).is_file(), picture)

    def test_broken_links_and_anchors_unseen_lists_and_a_readme_out_of_reach_fail_the_build(self):
        tree = self.folder / "tree"
        shutil.copytree(ROOT, tree, copy_function=copy_or_link,
                        ignore=shutil.ignore_patterns(".git", "build", "dist", ".cache"))
        (tree / "tiers" / "planted").mkdir()
        (tree / "tiers" / "planted" / "README.md").write_text("# planted\n")
        with open(tree / "tests" / "soak" / "README.md", "a", encoding="utf-8") as page:
            page.write("\nA list:\n- that only GitHub sees\n\n[a](gone.md) [b](../README.md#gone) "
                       "[c](../../README.md#gone) [d](../../README.md#what-it-promises)\n")
        done = build(tree, self.folder / "planted")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        said = re.split(r"^(?=INFO|WARNING)", done.stdout + done.stderr, flags=re.MULTILINE)
        warned = "".join(one for one in said if one.startswith("WARNING"))
        for what in ("tiers/planted/README.md", "'gone.md'", "'../README.md#gone'",
                     "'../../README.md#gone'", "- that only GitHub sees"):
            self.assertIn(what, warned)
        self.assertNotIn("what-it-promises", warned)


if __name__ == "__main__":
    unittest.main(verbosity=2)
