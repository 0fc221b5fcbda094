#!/usr/bin/env python3
"""The parts of tools/compare/s3 with made-up arms and servers: rounds, ratios, what an arm's
commands compare, and how requests are counted. s3_test.cc runs all of it."""

import contextlib
import io
import pathlib
import socket
import sys
import tempfile
import unittest
from unittest import mock

import made_up

sys.path.append(str(made_up.COMPARE / "s3"))

import arm  # noqa: E402
import compare_s3  # noqa: E402
from gateway import Gateway  # noqa: E402
import memory  # noqa: E402
from processes import Child, ChildFailed  # noqa: E402
from s3_contest import ArmProcess, Contest, Plan, Sample  # noqa: E402
import s3_report as report  # noqa: E402

SIZE, CHUNKS = 100_000, 4
PLAN = Plan(sizes=[SIZE], chunks=CHUNKS, rounds=3, lookup_keys=16, lookup_present=CHUNKS,
            lookup_bytes=1000)

FAKE_SERVER = """#!/usr/bin/env python3
import socket, sys
address, port = sys.argv[sys.argv.index("--port") + 1].split(":")
log = open(sys.argv[sys.argv.index("--access-log") + 1], "a")
with socket.create_server((address, int(port))) as listener:
    while True:
        connection = listener.accept()[0]
        if connection.recv(1):
            print("a request", file=log, flush=True)
        connection.close()
"""


class MadeUpServer:
    """Ten requests more at each look."""

    def __init__(self):
        self.seen, self.removals = 0, 0

    def requests(self):
        self.seen += 10
        return self.seen

    def names(self):
        return set()

    def remove_all_but(self, names):
        self.removals += 1


class MadeUpArm:
    def __init__(self, name, log, looks_up=True):
        self.name, self.looks_up, self.log = name, looks_up, log
        self.wrong, self.fails_at, self.found = 0, None, {16: CHUNKS, CHUNKS: CHUNKS}

    def begin(self, size, chunks):
        self.ask("begin")

    def stop(self):
        self.log.append((self.name, "stop"))

    def ask(self, what, **arguments):
        self.log.append((self.name, what))
        if what == self.fails_at:
            raise ChildFailed(f"{self.name} fails")
        if what == "compare":
            return {"wrong_bytes": self.wrong}
        return {"found": self.found.get(arguments.get("keys")), "seconds": 2.0}

    def timed(self, what, **arguments):
        return {**self.ask(what, **arguments), "cpu_s": 0.5}


class ContestTest(unittest.TestCase):
    def setUp(self):
        self.log, self.server = [], MadeUpServer()
        self.arms = [MadeUpArm(name, self.log) for name in ("kvkeep", "two", "bare")]
        self.arms[2].looks_up = False
        self.contest = Contest(PLAN, self.server, say=lambda text: None)

    def of(self, what):
        return [sample for sample in self.contest.samples if sample.what == what]

    def test_everybody_has_one_slice_a_round_and_the_order_moves_on(self):
        self.contest.run(self.arms)
        self.assertEqual([(one.round, one.arm) for one in self.of("put")],
                         [(0, "kvkeep"), (0, "two"), (0, "bare"), (1, "two"), (1, "bare"),
                          (1, "kvkeep"), (2, "bare"), (2, "kvkeep"), (2, "two")])

    def test_a_slice_begins_with_nothing_known(self):
        self.contest.run(self.arms)
        at = self.log.index(("two", "load"))
        mine = [what for name, what in self.log[:at] if name == "two"]
        self.assertEqual(mine[-3:], ["begin", "lookup", "lookup"])  # first of unknown keys

    def test_a_recall_is_a_lookup_and_a_load_and_a_bare_one_a_load(self):
        self.contest.run(self.arms)
        by_arm = {one.arm: one for one in self.of("recall")}
        self.assertEqual((by_arm["two"].seconds, by_arm["two"].cpu_s), (4, 1))
        self.assertEqual((by_arm["bare"].seconds, by_arm["bare"].cpu_s), (2, 0.5))
        self.assertEqual(by_arm["two"].bytes, SIZE * CHUNKS)
        self.assertEqual({one.arm for one in self.of("lookup")}, {"kvkeep", "two"})

    def test_requests_are_those_of_the_operation(self):
        self.contest.run(self.arms)
        self.assertEqual([one.requests for one in self.of("put")], [10] * 9)
        self.assertEqual([one.requests for one in self.of("lookup+load")], [20] * 6)

    def test_what_was_put_is_removed_after_each_slice(self):
        self.contest.run(self.arms)
        self.assertEqual(self.server.removals, 3 * 3 + 2 * 3)

    def test_a_wrong_byte_is_counted_each_time(self):
        self.arms[1].wrong = 7
        self.contest.run(self.arms)
        self.assertEqual(self.contest.wrong_bytes, 7 * 6)

    def test_who_fails_is_out_and_the_others_go_on(self):
        self.arms[1].fails_at = "load"
        self.contest.run(self.arms)
        self.assertEqual(self.contest.failures, {"two": "two fails"})
        self.assertEqual({one.arm for one in self.of("put")}, {"kvkeep", "bare"})
        self.assertEqual(self.log.count(("two", "load")), 1)
        self.assertEqual([what for name, what in self.log if name == "two"][-2:], ["load", "stop"])
        self.assertEqual([name for name, what in self.log if what == "stop"], ["two"])

    def test_who_does_not_say_hello_is_stopped(self):
        with (mock.patch.object(Child, "ask", side_effect=ChildFailed("no hello")),
              mock.patch.object(Child, "stop", autospec=True, side_effect=Child.stop) as stop,
              self.assertRaisesRegex(ChildFailed, "no hello")):
            ArmProcess("silent", ["cat"], {})
        stop.assert_called_once()

    def test_who_finds_too_much_or_too_little_fails(self):
        self.arms[1].found[16] = CHUNKS - 1
        self.arms[0].found[CHUNKS] = CHUNKS + 1
        self.contest.run(self.arms)
        self.assertEqual(self.contest.failures.keys(), {"two", "kvkeep"})


class ReportTest(unittest.TestCase):
    def samples(self, what="recall"):
        seconds = {"kvkeep": (1, 10, 1), "bare": (1, 20, 4)}
        return [Sample(arm, what, 2 << 20, turn, some[turn], 10**9, 3, 70)
                for arm, some in seconds.items() for turn in range(3)]

    def test_a_ratio_is_the_median_of_the_rounds_ratios(self):
        (ratio,) = report.ratios(self.samples())
        self.assertEqual(ratio["ratio"], {"median": 2, "min": 1, "max": 4})
        self.assertEqual((ratio["ours"], ratio["beside"]), ("kvkeep", "bare"))

    def test_a_round_that_one_of_both_lacks_is_in_no_ratio(self):
        (ratio,) = report.ratios(self.samples()[:-1])
        self.assertEqual(ratio["ratio"], {"median": 1.5, "min": 1, "max": 2})

    def test_figures_are_medians(self):
        (row, _) = report.figures(self.samples())
        self.assertEqual(row["mb_per_s"], {"median": 1000, "min": 100, "max": 1000})
        self.assertEqual((row["cpu_s_per_gb"], row["requests"]), (3, 70))

    def test_what_is_wanted_is_judged(self):
        ((ratio, wanted, met),) = report.judged(report.ratios(self.samples("put")))
        self.assertEqual((ratio["ratio"]["median"], wanted, met), (2, 0.5, True))
        self.assertIn("met: put 2 MiB", report.text(self.samples("put")))


class Dictionary(arm.Arm):
    version = "a dictionary"

    def begin(self, size, places, region):
        self.kept, self.size, self.drops = {}, size, False

    def put(self, keys, places):
        self.kept.update((key, bytes(memory.view(place, self.size)))
                         for key, place in zip(keys, places))

    def look_up(self, keys):
        return next((i for i, key in enumerate(keys) if key not in self.kept), len(keys))

    def load(self, keys, places):
        for key, place in zip(keys, places):
            if not self.drops:
                memory.copy(place, self.kept[key], self.size)


class CommandsTest(unittest.TestCase):
    def setUp(self):
        self.arm = Dictionary(None)
        self.commands = arm.Commands(self.arm)
        self.ask("begin", size=SIZE, chunks=CHUNKS)
        self.ask("put", prompt="p", chunks=CHUNKS)

    def tearDown(self):
        self.ask("end")

    def ask(self, what, **arguments):
        return self.commands.answer({"do": what, **arguments})

    def wrong_after_load(self):
        self.assertEqual(self.ask("lookup", prompt="p", keys=9)["found"], CHUNKS)
        self.ask("load", prompt="p", chunks=CHUNKS)
        return self.ask("compare", chunks=CHUNKS)["wrong_bytes"]

    def test_right_bytes(self):
        self.assertEqual(self.wrong_after_load(), 0)

    def test_one_wrong_byte_is_found_wherever_it_lies(self):
        for at in (0, SIZE // 2, SIZE - 1):
            key = arm.keys_of("p", CHUNKS)[-1]
            right = self.arm.kept[key]
            self.arm.kept[key] = right[:at] + bytes([right[at] ^ 1]) + right[at + 1:]
            self.assertEqual(self.wrong_after_load(), 1)
            self.arm.kept[key] = right

    def test_another_chunks_bytes_are_wrong(self):
        first, second = arm.keys_of("p", 2)
        self.arm.kept[first] = self.arm.kept[second]
        self.assertGreater(self.wrong_after_load(), SIZE // 2)

    def test_a_load_of_nothing_is_wrong(self):
        self.arm.drops = True
        self.assertGreater(self.wrong_after_load(), SIZE * CHUNKS * 0.9)

    def test_more_chunks_than_there_is_room_for_are_refused(self):
        with self.assertRaises(ValueError):
            self.ask("load", prompt="p", chunks=CHUNKS + 1)


class GatewayTest(unittest.TestCase):
    def setUp(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        program = pathlib.Path(directory) / "server"
        program.write_text(FAKE_SERVER)
        program.chmod(0o700)
        self.gateway = Gateway(program, directory)
        self.addCleanup(self.gateway.stop)

    def test_requests_are_the_lines_of_the_access_log(self):
        before = self.gateway.requests()
        port = int(self.gateway.endpoint.rpartition(":")[2])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"x")
                connection.recv(1)
        self.assertEqual(self.gateway.requests() - before, 3)

    def test_objects_beyond_those_named_are_removed(self):
        bucket = self.gateway._objects / self.gateway.bucket
        (bucket / "kept").write_text("k")
        kept = self.gateway.names()
        (bucket / "more").mkdir()
        (bucket / "more" / "fresh").write_text("f")
        self.gateway.remove_all_but(kept)
        self.assertEqual(self.gateway.names(), {str(bucket / "kept")})


class ArgumentsTest(unittest.TestCase):
    def test_a_plan(self):
        plan = compare_s3.plan_of(compare_s3.parse(["--server", "x", "--sizes", "64KiB,2MiB,5"]))
        self.assertEqual((plan.sizes, plan.chunks, plan.lookup_keys, plan.lookup_present),
                         ([64 << 10, 2 << 20, 5], 64, 512, 100))

    def test_one_server_is_wanted(self):
        for arguments in ([], ["--server", "x", "--url", "y"], ["--url", "y"]):
            with (contextlib.redirect_stderr(io.StringIO()),
                  self.assertRaises(SystemExit) as ended):
                compare_s3.parse(arguments)
            self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
