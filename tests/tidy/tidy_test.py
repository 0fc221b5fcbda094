#!/usr/bin/env python3
"""Tests of the checker: every rule fires on a small bad tree, and none on a good one.

A rule that cannot fail is a defect, so the last test case compares the rules that fired here with
the rules that exist.
"""

import pathlib
import re
import sys
import unittest

import cpp_source
import tidy

HEADER = "// What it is.\n#pragma once\n"

# A tree in which every rule has something to look at and nothing to report.
GOOD = {
    "README.md": "# kvkeep\n\n```\n# a comment in an example\n```\n",
    "tiers/base/README.md": "# base\n",
    "tiers/base/key.h": HEADER + "#include <cstdint>\nstruct Key {};\n",
    "tiers/base/key.cc": '#include "tiers/base/key.h"\n',
    "tiers/base/mutex.h": HEADER + "std::mutex mu_;\n",
    "tiers/base/CMakeLists.txt": "kvkeep_library(kvkeep_base SRCS key.cc DEPS absl::status)\n",
    "tiers/policy/README.md": "# policy\n",
    "tiers/policy/trace_reader.cc": "#include <nlohmann/json.hpp>\n",
    "tiers/policy/CMakeLists.txt": "kvkeep_library(kvkeep_policy SRCS trace_reader.cc)\n",
    "server/README.md": "# server\n",
    "server/main.cc": '#include <grpcpp/server.h>\n#include "tiers/base/key.h"\n'
                      "// A log line says \"assert(x)\" and a URL http://h/home/x, no harm done.\n"
                      'const char* kText = "TO" "DO: std::mutex, rand()";\n'
                      "static_assert(sizeof(int) == 4);\n",
    "server/CMakeLists.txt": "kvkeep_binary(kvkeepd SRCS main.cc DEPS kvkeep_base)\n",
    "tests/README.md": "# tests\n",
    "tests/server/main_test.cc": '#include "tiers/base/key.h"\n'
                                 "// Waits for the other process.\nusleep(10);\n",
    "tests/server/CMakeLists.txt": "kvkeep_test(server_test\n"
                                   "  SRCS main_test.cc DEPS kvkeep_base)\n",
}

fired = set()  # rules that found something here


def function(lines, signature="void F()"):
    return f"{signature} {{\n" + "  ++x;\n" * (lines - 2) + "}\n"


class Rules(unittest.TestCase):
    def expect(self, rule, changes, count=1):
        """Checks that the good tree with these files added or changed breaks the rule `count`
        times."""
        found = [p for p in tidy.check({**GOOD, **changes}) if p.rule == rule]
        self.assertEqual(len(found), count, f"{rule}: {found}")
        if found:
            fired.add(rule)
        return found

    def test_a_good_tree_has_no_problem(self):
        self.assertEqual(tidy.check(GOOD), [])

    # Folders with a header each: base <- policy <- store <- server, base <- client, fakes <- tests.
    LAYERED = {
        "tiers/policy/lru.h": HEADER,
        "tiers/store/README.md": "# store\n",
        "tiers/store/store.h": HEADER,
        "tiers/store/CMakeLists.txt": "kvkeep_library(kvkeep_store  # DEPS kvkeep_client\n"
                                      "  DEPS ${below})\nset(below kvkeep_policy absl::status)\n",
        "tiers/policy/CMakeLists.txt": "kvkeep_library(kvkeep_policy SRCS trace_reader.cc\n"
                                       "  DEPS $<TARGET_NAME:x> kvkeep_base)\n",
        "server/server.h": HEADER,
        "server/CMakeLists.txt": "kvkeep_binary(kvkeepd SRCS main.cc)\n"
                                 "target_link_libraries(kvkeepd PRIVATE kvkeep_store)\n",
        "client/README.md": "# client\n",
        "client/client.h": HEADER,
        "client/CMakeLists.txt": "kvkeep_library(kvkeep_client DEPS kvkeep_base)\n",
        "tests/fakes/fake.h": HEADER,
        "tests/fakes/CMakeLists.txt": "kvkeep_library(kvkeep_fakes DEPS kvkeep_base)\n",
        "tests/tiers/CMakeLists.txt": "kvkeep_test(a_test SRCS store/a_test.cc\n"
                                      "  DEPS kvkeep_fakes kvkeep_store TIMEOUT 7 CASES x)\n",
        "tests/tiers/store/a_test.cc": "",
    }

    def expect_include(self, path, target, count):
        text = f'{HEADER}#include "{target}"\n'
        return self.expect("include-arrow", {**self.LAYERED, path: text}, count)

    def test_includes_follow_what_targets_depend_on(self):
        for path, target in [
            ("tiers/base/key.h", "tiers/policy/lru.h"),
            ("tiers/policy/lru.h", "tiers/store/store.h"),
            ("tiers/store/store.h", "server/server.h"),
            ("server/server.h", "client/client.h"),
            ("client/client.h", "server/server.h"),
            ("client/client.h", "tiers/store/store.h"),
            ("server/server.h", "tests/fakes/fake.h"),
            ("tests/tiers/store/a_test.cc", "server/server.h"),
            ("tests/fakes/fake.h", "tiers/store/store.h"),
        ]:
            with self.subTest(path=path, target=target):
                self.expect_include(path, target, 1)

    def test_includes_of_what_targets_depend_on_are_fine(self):
        for path, target in [
            ("tiers/store/store.h", "tiers/policy/lru.h"),
            ("tiers/store/store.h", "tiers/base/key.h"),
            ("server/server.h", "tiers/base/key.h"),
            ("client/client.h", "tiers/base/key.h"),
            ("tests/tiers/store/a_test.cc", "tiers/policy/lru.h"),
            ("tests/tiers/store/a_test.cc", "tests/fakes/fake.h"),
        ]:
            with self.subTest(path=path, target=target):
                self.expect_include(path, target, 0)

    def test_no_two_folders_depend_on_each_other(self):
        self.expect("circle", self.LAYERED, count=0)
        back = {"tiers/base/CMakeLists.txt":
                "kvkeep_library(kvkeep_base SRCS key.cc DEPS kvkeep_store)\n"}
        # base -> store -> policy -> base: each of the three arrows.
        found = self.expect("circle", {**self.LAYERED, **back}, count=3)
        self.assertIn(("tiers/base/CMakeLists.txt", 1), [(p.path, p.line) for p in found])

    def test_what_is_internal_stays_behind_its_wall(self):
        target = "client/internal/mappings.h"
        for path, count in [("client/client.h", 0), ("tests/client/a_test.cc", 0),
                            ("tools/kvkeep/a.cc", 1), ("server/main.cc", 1)]:
            with self.subTest(path=path):
                self.expect("wall", {path: f'{HEADER}#include "{target}"\n'}, count)

    def test_a_commented_include_is_none(self):
        self.expect("include-arrow",
                    {"tiers/base/key.cc": '// #include "server/server.h"\n'
                                          '/*\n#include "server/server.h"\n*/\n'}, count=0)

    def test_includes_are_rooted_at_the_repository(self):
        self.expect("include-rooted", {"tiers/base/key.cc": '#include "key.h"\n'})
        self.expect("include-rooted", {"tiers/base/key.cc": '#include "../base/key.h"\n'})
        self.expect("include-rooted", {"tiers/base/key.cc": "#include <tiers/base/key.h>\n"})

    def test_outside_libraries_stay_in_their_place(self):
        for path, target in [
            ("tiers/base/key.cc", "grpcpp/grpcpp.h"),
            ("tiers/base/key.cc", "google/protobuf/message.h"),
            ("tiers/base/key.cc", "kvkeep/v1/kvkeep.pb.h"),
            ("tiers/base/key.cc", "yaml-cpp/yaml.h"),
            ("tiers/base/key.cc", "prometheus/counter.h"),
            ("tiers/base/key.cc", "nlohmann/json.hpp"),
            ("tiers/base/key.cc", "cuda.h"),
            ("server/main.cc", "rocksdb/db.h"),
            ("server/main.cc", "liburing.h"),
            ("tests/tiers/base/key_test.cc", "yaml-cpp/yaml.h"),
        ]:
            with self.subTest(path=path, target=target):
                self.expect("outside-header", {path: f"#include <{target}>\n"})

    def test_files_headers_and_lines_have_limits(self):
        self.expect("file-length", {"server/main.cc": "// line\n" * 601})
        self.expect("file-length", {"server/main.cc": "// line\n" * 600}, count=0)
        self.expect("file-length", {"tools/script": "#!/bin/sh\n" + "true\n" * 600})
        self.expect("header-length", {"server/a.h": HEADER + "// line\n" * 199})
        self.expect("header-length", {"server/a.h": HEADER + "// line\n" * 198}, count=0)
        self.expect("line-length", {"server/main.cc": "// " + "x" * 98 + "\n"})
        self.expect("line-length", {"server/main.cc": "// " + "x" * 97 + "\n"}, count=0)
        self.expect("line-length", {"server/main.cc": "// https://" + "x" * 98 + "\n"}, count=0)

    def test_functions_have_at_most_70_lines(self):
        for text in [
            function(71),
            "namespace kvkeep {\n" + function(71) + "}\n",
            "namespace {\nclass A final : public B {\n public:\n" + function(71) + "};\n}\n",
            function(71, "A::A(int x) : x_{x}, y_(2), z_{3}"),
            function(71, 'TEST_CASE("a { brace in a name")'),
            function(71, "template <typename T>\n  requires Small<T>\nT Load(const char* p)"),
            "struct A {\n  int x = 1;\n};\nconst int kTable[] = {1, 2};\n" + function(71),
            '#define X(a) if (a) {\nextern "C" {\n' + function(71) + "}\n",
        ]:
            with self.subTest(text=text[:60]):
                self.expect("function-length", {"server/main.cc": text})
        self.expect("function-length", {"tools/a.py": "def f():\n" + "    pass\n" * 70})

    def test_what_is_no_long_function(self):
        for text in [
            function(70),
            function(70) + function(70),
            "namespace kvkeep {\n" + "int x;\n" * 80 + "}\n",
            "class A {\n" + "  int x();\n" * 80 + "};\n",
            "const int kTable[] = {\n" + "  1,\n" * 80 + "};\n",
            "enum class Code : int {\n" + "  kA,\n" * 80 + "};\n",
        ]:
            with self.subTest(text=text[:60]):
                self.expect("function-length", {"server/main.cc": text}, count=0)

    def test_whitespace(self):
        self.expect("whitespace", {"server/main.cc": "int x; \n"})
        self.expect("whitespace", {"server/main.cc": "\tint x;\n"})
        self.expect("whitespace", {"server/main.cc": "int x;\r\n"})
        self.expect("whitespace", {"server/main.cc": "int x;"})

    def test_todo_names_an_issue(self):
        word = "TO" + "DO"
        self.expect("todo", {"server/main.cc": f"// {word}: later\n"})
        self.expect("todo", {"tools/script": f"#!/bin/sh\n# {word} later\n"})
        self.expect("todo", {"server/main.cc": f"// {word}(#12): later\n"}, count=0)
        self.expect("todo", {"server/main.cc": 'mkdtemp("/x/aXXXXXX");\n'}, count=0)

    def test_planted_bugs_are_in_sources_that_are_compiled_again(self):
        asks = "int x = Planted(Canary::kA);\n"
        build = {"tests/sim/CMakeLists.txt": "kvkeep_plant(store a.cc\n  b.cc)\n"}
        self.expect("planted", {**build, "tiers/store/b.cc": asks}, count=0)
        self.expect("planted", {**build, "tiers/store/c.cc": asks})
        self.expect("planted", {**build, "tiers/store/b.h": HEADER + asks})
        self.expect("planted", {**build, "tiers/store/c.cc": "// Planted(): see b.cc\n"}, count=0)

    def test_no_two_objects_know_each_other(self):
        one = HEADER + "class One {\n private:\n  Two& two_;\n};\n"
        two = HEADER + "struct Two final : Base {\n  std::unique_ptr<Three> three;\n};\n"
        three = HEADER + "class Three {\n  const One* one_ = nullptr;\n};\n"
        around = {"tiers/base/one.h": one, "tiers/base/two.h": two, "tiers/base/three.h": three}
        self.expect("known-both-ways", around, count=3)
        self.expect("known-both-ways", {**around, "tiers/base/two.h": HEADER}, count=0)
        asks = (HEADER + "class Three {\n  One* Find(const One& one);\n"
                "  struct In {\n    One* o;\n  };\n};\n")
        self.expect("known-both-ways", {**around, "tiers/base/three.h": asks}, count=0)

    def test_the_store_calls_upwards_by_known_interfaces_alone(self):
        host = "class Late {\n  class Host {\n    virtual void F() = 0;\n  };\n};\n"
        readme = {"tiers/store/README.md": "# store\n"}
        self.expect("store-interface", {**readme, "tiers/store/a.h": HEADER + host})
        own = HEADER + "class Own {\n public:\n  virtual void F(int a,\n      int b) = 0;\n};\n"
        self.expect("store-interface", {**readme, "tiers/store/a.h": own})
        self.expect("store-interface", {"tiers/base/a.h": own}, count=0)

    def test_no_sentence_of_a_comment_begins_as_a_riddle(self):
        for begins in ("// Of the others.", "  // Those that wait.", "int a;  // Such as it is.",
                       "// It waits.\n//\n// Who waits.", "// It waits (if so). That\n// is it.",
                       "// Either:\n// - Those that wait.", "/* It waits. Of it. */"):
            self.expect("riddle", {"server/main.cc": begins + "\n"})
        self.expect("riddle", {"tests/x.py": "# Who waits.\n# The one that waits.\n"})
        self.expect("riddle", {"tests/x.py": 'def f():\n    \"\"\"Of one.\"\"\"\n'})
        self.expect("riddle", {"server/CMakeLists.txt":
                               GOOD["server/CMakeLists.txt"] + "# Of it.\n"})
        good = ("// Offers it.\n// Thatcher. It is one\n// Of Babel's.\nint of;\n"
                'const char* k = "Of it. Those";\n')
        self.expect("riddle", {"server/main.cc": good}, 0)

    def test_no_sentence_of_a_page_begins_as_a_riddle(self):
        for begins in ("Those that wait.", "It waits.\nThat is it.", "- Who waits.", "## Who waits",
                       "| a | Of it |\n", "**Such** as it is.", "1. It waits. Those do not."):
            self.expect("riddle", {"server/README.md": f"# server\n\n{begins}\n"})
        good = "# server\n\n```\nOf it.\n```\n\nOften. Thatcher, who is one\nOf us. 1.5. It.\n"
        self.expect("riddle", {"server/README.md": good}, 0)

    def test_no_cell_of_a_table_is_a_paragraph(self):
        page = "# server\n\n| a | b |\n|---|---|\n| {} | {} |\n"
        for long, count in ((200, 0), (201, 1)):
            cells = page.format("x" * long, "a\\|b" + "x" * 196)
            self.expect("long-cell", {"server/README.md": cells}, count)

    def test_a_folder_may_have_as_many_problems_as_it_is_known_to_have(self):
        two = {"tiers/base/key.cc": "// Of it. Those do.\n", "server/main.cc": "// It does.\n"}
        for known, count in (({}, 2), ({"server": 2}, 2), ({"tiers": 1}, 2), ({"tiers": 2}, 0)):
            self.assertEqual(len(tidy.beyond(known, tidy.riddles({**GOOD, **two}))), count)

    def test_headers_begin_with_a_comment_and_a_guard(self):
        self.expect("header-comment", {"server/a.h": "#pragma once\n// Late.\n"})
        self.expect("header-guard", {"server/a.h": "// No guard.\n#ifndef A_H\n#endif\n"})

    def test_file_names_are_snake_case(self):
        self.expect("file-name", {"server/Main.cc": "", "server/a-b.h": HEADER}, count=2)

    def test_a_folder_with_sources_has_a_readme(self):
        self.expect("readme", {"client/client.h": HEADER})
        self.expect("readme", {"proto/kvkeep/v1/kvkeep.proto": "// x\n"})
        self.expect("readme", {"tests/client/client_test.cc": ""}, count=0)
        without = {path: text for path, text in GOOD.items() if path != "tests/README.md"}
        self.assertIn("readme", {p.rule for p in tidy.check(without)})

    def test_a_page_has_one_title(self):
        self.expect("one-title", {"server/README.md": "# one\n\n# two\n"})
        self.expect("one-title", {"server/README.md": "## only a section\n"})

    def test_a_type_has_one_definition(self):
        def within(space, text):
            return HEADER + f"namespace {space} {{\n{text}}}  // namespace {space}\n"
        types = "struct A {\n};\nvoid F() {\n}\nclass B final : public A {\n};\nstruct A::C {};\n"
        hidden = "namespace {\nstruct A {};\n}  // namespace\nstruct A;\n"
        self.expect("one-type", {"server/a.h": within("kvkeep", types),
                                 "tiers/base/b.h": within("kvkeep", types)}, 2)
        self.expect("one-type", {"server/a.h": within("kvkeep", types),
                                 "tiers/base/b.h": within("kvkeep", hidden),
                                 "tiers/base/c.h": within("kvkeep::other", types)}, 0)

    def test_every_source_is_built(self):
        self.expect("cmake-source", {"server/other.cc": ""})
        self.expect("cmake-source", {"server/in.cc": ""})  # "main.cc" does not name it
        self.expect("cmake-source", {"server/other.cc": "",
                                     "server/CMakeLists.txt": "x(main.cc) # other.cc\n"})
        self.expect("cmake-source", {"server/other.cc": "",
                                     "server/CMakeLists.txt": "x(main.cc other.cc)\n"}, count=0)
        self.expect("cmake-source", {"server/sub/other.cc": "",
                                     "server/CMakeLists.txt": "x(main.cc sub/other.cc)\n"},
                    count=0)
        self.expect("cmake-source", {"nowhere/other.cc": ""})

    def test_nothing_decodes_what_may_run_code(self):
        for line in ["import pick" + "le", "from dil" + "l import loads", "torch." + "load(path)",
                     "yaml." + "load(text)", "yaml." + "unsafe_load(text)",
                     "import cloudpick" + "le", "pick" + "le.loads(b)", "import mar" + "shal"]:
            for path in ["client/connector.py", "tools/script"]:
                with self.subTest(line=line, path=path):
                    text = line + "\n" if path.endswith(".py") else f"#!/bin/sh\n{line}\n"
                    self.expect("code-in-data", {path: text})
        for line in ["yaml.safe_load(text)", "json.load(file)", "pickled = 1", "install(path)"]:
            with self.subTest(line=line):
                self.expect("code-in-data", {"tools/script": f"#!/bin/sh\n{line}\n"}, count=0)

    def test_paths_of_one_machine(self):
        for path in ["ho" + "me/someone/x", "ro" + "ot/x", "wo" + "rk/main", "t" + "mp/wt/x"]:
            with self.subTest(path=path):
                self.expect("local-path", {"server/README.md": f"# t\nsee /{path}\n"})
        for text in ["a/wo" + "rk/x", "~/x", "/usr/share/x", "/t" + "mp/kvkeep-x"]:
            with self.subTest(text=text):
                self.expect("local-path", {"server/README.md": f"# t\nsee {text}\n"}, count=0)


class Banned(unittest.TestCase):
    # One example at least for each entry of tidy.BANNED, in its order.
    EXAMPLES = [
        ["assert(x);", "  assert (x);"],
        ["std::mutex mu;", "std::lock_guard l(mu);", "std::condition_variable_any c;"],
        ["absl::Mutex mu;", "absl::MutexLock l(&mu);"],
        ["using namespace std;", "using namespace absl;"],
        ['std::cout << "x";', 'std::cerr << "x";', 'printf("x");', 'std::printf("x");'],
        ['sprintf(buffer, "x");', "strcpy(a, b);"],
        ["int x = rand();", "std::rand();", "srand(1);", "std::random_device d;"],
        ["auto now = std::chrono::steady_clock::now();", "absl::Now();"],
        ["thread.detach();"],
        ["throw Error();", "throw;"],
    ]
    FINE = [
        "static_assert(true);", "KVKEEP_CHECK(x);", "using namespace std::chrono_literals;",
        "using namespace std::literals;", 'snprintf(b, 4, "x");', 'std::fprintf(stderr, "x");',
        "int brand(int x);", "SeededRandom rand(1);", 'Log("std::mutex");', "// assert(x)",
        "kvkeep::Mutex mu;",
    ]

    def rules(self, path, line):
        return [p.rule for p in tidy.check({**GOOD, path: line + "\n"})
                if p.rule in ("banned", "sleep")]

    def test_each_banned_call_is_found_in_the_tiers(self):
        self.assertEqual(len(self.EXAMPLES), len(tidy.BANNED))
        for (pattern, _, _), lines in zip(tidy.BANNED, self.EXAMPLES):
            for line in lines:
                with self.subTest(line=line):
                    self.assertTrue(re.search(pattern, line))
                    self.assertEqual(self.rules("tiers/base/key.cc", line), ["banned"])
        fired.add("banned")

    def test_what_looks_alike_is_fine(self):
        for line in self.FINE:
            with self.subTest(line=line):
                self.assertEqual(self.rules("tiers/base/key.cc", line), [])

    def test_places_with_a_licence(self):
        self.assertEqual(self.rules("tiers/base/mutex.h", "std::mutex mu_;"), [])
        self.assertEqual(self.rules("tiers/base/clock.cc", "std::chrono::steady_clock::now();"), [])
        self.assertEqual(self.rules("server/main.cc", 'std::cout << "x";'), [])
        self.assertEqual(self.rules("tests/server/main_test.cc", "throw 1;"), [])

    def test_sleeping_is_rare_and_explained(self):
        for line in ["std::this_thread::sleep_for(d);", "usleep(1);", "::sleep(1);"]:
            with self.subTest(line=line):
                self.assertEqual(self.rules("tiers/base/key.cc", line + "  // why"), ["sleep"])
                self.assertEqual(self.rules("tests/tiers/base/key_test.cc", line), ["sleep"])
                self.assertEqual(self.rules("tests/e2e/a_test.cc", "int x;\n" + line), ["sleep"])
                self.assertEqual(self.rules("tests/e2e/a_test.cc", line + "  // why"), [])
        fired.add("sleep")


class Machinery(unittest.TestCase):
    def test_strip_keeps_lines_and_drops_literals(self):
        text = 'int a = 1\'000; // "x\n/* {\n */ char c = \'"\'; auto s = R"x({\n)" {)x";\nint b;\n'
        code = cpp_source.strip(text)
        self.assertEqual(code.count("\n"), text.count("\n"))
        self.assertNotIn("{", code)
        self.assertIn("1\'000", code)
        self.assertIn("int b;", code.splitlines()[4])

    def test_functions_are_found_with_their_lines(self):
        text = ("namespace a {\nint F() {\n  auto f = [] { return 1; };\n  return f();\n}\n\n"
                "struct S {\n  S() : x_{1} {}\n  int x_{0};\n};\n\nvoid G(int x) {\n}\n}\n")
        self.assertEqual(cpp_source.functions(text), [("F", 2, 5), ("S", 8, 8), ("G", 12, 13)])

    def test_the_ratchets_tell_when_they_are_stale(self):
        name = next(iter(tidy.KNOWN_LONG_LINES), None)
        if name:
            self.assertTrue(any(name in note for note in tidy.stale_ratchets({name: "short\n"})))
        told = list(tidy.stale_ratchets({}))
        for name in tidy.KNOWN_RIDDLES:
            self.assertIn(f"KNOWN_RIDDLES: {name} (now 0)", told)

    def test_zz_every_rule_fired_in_a_test_above(self):
        source = pathlib.Path(tidy.__file__).read_text(encoding="utf-8")
        rules = set(re.findall(r'Problem\([^"]*?"([a-z-]+)"', source))
        self.assertGreaterEqual(len(rules), len(tidy.RULES))
        self.assertEqual(rules - fired, set())


if __name__ == "__main__":
    # Rules and Banned first: the last test of Machinery looks at what they fired.
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case)
                               for case in (Rules, Banned, Machinery))
    sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())
