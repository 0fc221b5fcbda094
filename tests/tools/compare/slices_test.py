#!/usr/bin/env python3
"""The loop that drives every contestant, with one that is a dictionary: it measures what it says,
finds a wrong byte, and answers what the contest reads. Also the contestants that need no other
program."""

import ctypes
import gc
import tempfile
import unittest

import made_up  # noqa: F401  (adds the path)
from contestant import Commands
from dictionary.mooncake_peer import Dictionary
from files_contestant import Files
from kvkeep_contestant import HIT, STORED, Call
from memcpy_contestant import Memcpy
from measured import Slice
import memory
from redis_contestant import Redis
from slices import LookupMissed, Slices

REGION, CAPACITY, SIZE = 4 << 20, 8 << 20, 100_000
SLICE_S = 0.02


class SlicesTest(unittest.TestCase):
    def slices(self, batch=1, calls=60):
        self.peer = Dictionary("", CAPACITY)
        slices = Slices(self.peer, CAPACITY, REGION)
        slices.load(SIZE, batch)
        self.filled = slices.fill(calls)
        self.peer.gets = self.peer.clears = self.peer.rests = 0
        return slices

    def test_every_byte_of_every_get_is_compared(self):
        for operation in ("get", "lookup+get"):
            for batch in (1, 8):
                with self.subTest(operation=operation, batch=batch):
                    slices = self.slices(batch, 16 // batch)
                    while self.peer.gets <= 16:  # all, and again; a busy machine takes longer
                        measured = slices.run(operation, SLICE_S)
                        self.assertEqual(measured.chunks, len(measured.calls_ns) * batch)
                        self.assertEqual(measured.bytes, measured.chunks * SIZE)
                        self.assertEqual(measured.verified_bytes, measured.bytes)
                        self.assertEqual(measured.wrong_bytes, 0)
                        self.assertGreater(measured.cpu_ns, 0)

    def test_one_wrong_byte_is_found_wherever_it_lies(self):
        for batch in (1, 8):
            for at in (0, SIZE // 2, SIZE - 1):
                slices = self.slices(batch, 60 // batch)
                self.peer.spoil_get, self.peer.spoil_at = 7, at
                wrong = 0
                while self.peer.gets < 7:
                    wrong += slices.run("get", SLICE_S).wrong_bytes
                self.assertEqual(wrong, 1)

    def test_a_get_that_writes_nothing_is_wrong_also_where_all_was_written_before(self):
        # As many chunks as there are places: each comes to its own place again, round by round.
        for size in (SIZE, REGION):
            for operation in ("get", "lookup+get", "put"):
                with self.subTest(size=size, operation=operation):
                    places = REGION // size
                    slices = self.slices()
                    slices.load(size, 1)
                    slices.fill(places)
                    self.peer.gets = 0
                    while self.peer.gets <= places:
                        self.assertEqual(slices.run(operation, SLICE_S).wrong_bytes, 0)
                    self.peer.get = lambda keys, addresses, size: None
                    for _ in range(2):
                        measured = slices.run(operation, 1e-9)  # a single call
                        self.assertGreater(measured.wrong_bytes, 0)

    def test_a_get_of_all_but_a_page_is_wrong(self):
        slices = self.slices(calls=REGION // SIZE)
        while self.peer.gets <= REGION // SIZE:
            slices.run("get", SLICE_S)
        last_page = (SIZE - 1) // memory.PAGE_BYTES * memory.PAGE_BYTES
        for at in (0, memory.PAGE_BYTES, last_page):

            def get(keys, addresses, size, at=at):
                for key, address in zip(keys, addresses):
                    chunk, end = self.peer.chunks[key], at + memory.PAGE_BYTES
                    ctypes.memmove(address, chunk, at)
                    ctypes.memmove(address + end, chunk[end:], len(chunk[end:]))

            self.peer.get = get
            self.assertGreater(slices.run("get", 1e-9).wrong_bytes, 0)

    def test_outcomes_of_earlier_calls_are_forgotten_before_each_call(self):
        slices, log = self.slices(calls=2), []
        for name in ("forget_outcomes", "get", "put", "lookup"):
            setattr(self.peer, name, self.logged(log, name, getattr(self.peer, name)))
        for operation, calls in (("get", ["forget_outcomes", "get"]),
                                 ("lookup+get", ["forget_outcomes", "lookup", "get"]),
                                 ("lookup", ["forget_outcomes", "lookup"]),
                                 ("put", ["forget_outcomes", "put", "get"])):
            slices.run(operation, 1e-9)
            self.assertEqual([name for name, _ in log], calls)
            self.assertEqual(len({keys for _, keys in log}), 1)
            log.clear()

    def logged(self, log, name, call):
        def logging(keys, *arguments):
            log.append((name, keys))
            return call(keys, *arguments)
        return logging

    def test_no_garbage_is_collected_on_the_clock(self):
        self.addCleanup(gc.enable)
        self.addCleanup(gc.unfreeze)
        self.slices()
        self.assertFalse(gc.isenabled())
        self.assertGreater(gc.get_freeze_count(), 0)

    def test_another_chunks_bytes_are_wrong(self):
        slices = self.slices()
        self.peer.chunks[3] = self.peer.chunks[4]
        self.assertGreater(slices.run("get", SLICE_S).wrong_bytes, SIZE // 2)

    def test_bytes_are_wrong_that_were_changed_where_they_were_put_from(self):
        slices = self.slices()
        put = self.peer.put

        def put_and_spoil(keys, addresses, size):
            memory.copy(addresses[0], b"\0" * size, size)
            put(keys, addresses, size)

        self.peer.put = put_and_spoil
        self.assertGreater(slices.run("put", SLICE_S).wrong_bytes, 0)

    def test_puts_are_read_back_and_are_of_new_keys(self):
        slices = self.slices()
        before = set(self.peer.chunks)
        measured = slices.run("put", SLICE_S)
        self.assertGreaterEqual(measured.verified_bytes, SIZE)
        self.assertEqual(measured.wrong_bytes, 0)
        self.assertTrue(self.peer.clears > 0 or before < set(self.peer.chunks))
        self.peer.gets, self.peer.spoil_get, self.peer.spoil_at = 0, 1, 5
        self.assertEqual(slices.run("put", SLICE_S).wrong_bytes, 1)

    def test_a_peer_that_does_not_evict_is_never_more_than_half_full(self):
        slices = self.slices(calls=CAPACITY // 2 // SIZE)
        put_bytes = 0
        while put_bytes <= CAPACITY:
            put_bytes += slices.run("put", 0.1).bytes
        self.assertGreater(self.peer.clears, 2)
        self.assertLessEqual(self.peer.most_bytes, CAPACITY // 2)
        self.peer.evicts, self.peer.clears = True, 0
        slices.run("put", 0.1)
        self.assertEqual(self.peer.clears, 0)

    def test_lookups_must_find_all(self):
        slices = self.slices(16, 4)
        runs = lookups = 0
        while lookups <= 16:
            measured = slices.run("lookup", SLICE_S)
            self.assertEqual(measured.chunks, 16 * len(measured.calls_ns))
            runs, lookups = runs + 1, lookups + len(measured.calls_ns)
        self.assertEqual(self.peer.rests, runs + lookups // 16)
        self.peer.forgotten = 1
        for operation in ("lookup", "lookup+get"):
            with self.assertRaises(LookupMissed):
                slices.run(operation, SLICE_S)

    def test_the_first_fill_is_measured(self):
        self.slices(4, 6)
        self.assertEqual((len(self.filled.calls_ns), self.filled.chunks), (6, 24))
        self.assertEqual(self.filled.bytes, 24 * SIZE)
        self.assertEqual(self.filled.slice().calls, 6)

    def test_what_cannot_be_measured_is_refused(self):
        slices = self.slices()
        self.assertRaises(ValueError, slices.run, "dance", SLICE_S)
        self.assertRaises(ValueError, slices.load, REGION + 1, 1)
        slices.load(SIZE, 1)
        self.assertRaises(ValueError, slices.run, "get", SLICE_S)


class MemoryTest(unittest.TestCase):
    def test_pages_are_aligned_for_huge_pages_and_writable(self):
        pages, copied = memory.Pages(3 << 20), memory.Pages(4096)
        self.assertEqual(pages.address % memory.HUGE_PAGE_BYTES, 0)
        memory.copy(pages.address + (3 << 20) - 4, b"kept", 4)
        memory.copy(copied.address, pages.address + (3 << 20) - 4, 4)
        self.assertEqual(memory.count_wrong(copied.address, b"kept", 4), 0)
        self.assertEqual(memory.count_wrong(copied.address, b"kexx", 4), 2)
        pages.close()
        copied.close()

    def test_payloads_are_unlike_and_the_same_each_time(self):
        one, other = memory.Payloads(SIZE, 3), memory.Payloads(SIZE, 3)
        self.assertEqual(one.count_wrong(2, other.address(2)), 0)
        self.assertGreater(one.count_wrong(2, other.address(1)), SIZE * 0.9)


class CommandsTest(unittest.TestCase):
    def test_commands_are_answered_as_the_contest_reads_them(self):
        commands = Commands(Dictionary)

        def ask(what, **arguments):
            return commands.answer({"do": what, **arguments})

        self.assertEqual(ask("start", directory="", capacity_bytes=CAPACITY, region_bytes=REGION),
                         {"version": "of a dictionary", "servers": []})
        self.assertEqual(ask("load", size=SIZE, batch=2), {})
        filled = Slice(**ask("fill", calls=3))
        self.assertEqual((filled.calls, filled.bytes), (3, 6 * SIZE))
        got = Slice(**ask("get", seconds=SLICE_S))
        self.assertEqual((got.wrong_bytes, got.verified_bytes), (0, got.bytes))
        self.assertTrue(0 < got.p50_us <= got.p99_us)
        self.assertGreaterEqual(got.seconds, SLICE_S)
        self.assertRaisesRegex(ValueError, "0 bytes", ask, "load", size=0, batch=1)


class OwnContestantsTest(unittest.TestCase):
    def test_what_redis_is_sent_for_a_lookup_is_made_with_the_keys(self):
        word = b"$32\r\n%s\r\n"
        keys = Redis.call_keys(None, 9, 2)
        self.assertEqual(keys.words, [word % (b"0" * 31 + b"9"), word % (b"0" * 31 + b"a")])
        self.assertEqual(keys.exists, b"*3\r\n$6\r\nEXISTS\r\n" + b"".join(keys.words))

    def test_kvkeep_is_taken_to_have_got_and_stored_nothing_before_each_call(self):
        call = Call(None, first=0, count=2)
        call.stored[:], call._got[:] = [STORED] * 2, [HIT] * len(call._got)
        self.assertEqual((call.stored[:], call.got()), (call.all_stored, call.all_hit))
        call.forget_outcomes()
        self.assertEqual((call.stored[:], call.got()), ([0, 0], [0, 0]))

    def test_the_oldest_chunk_gives_way_to_the_newest(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        for make in (Memcpy, Files):
            with self.subTest(make=make):
                one, pages = make(directory, 4 << 20), memory.Pages(2 << 20)
                for number in range(3):
                    memory.copy(pages.address, b"%d" % number, 1)
                    one.put(one.call_keys(number, 1), [pages.address], 2 << 20)
                self.assertEqual([one.lookup(one.call_keys(number, 1)) for number in range(3)],
                                 [0, 1, 1])
                one.get(one.call_keys(1, 1), [pages.address], 2 << 20)
                self.assertEqual(memory.count_wrong(pages.address, b"1", 1), 0)
                one.clear()
                self.assertEqual(one.lookup(one.call_keys(1, 2)), 0)


if __name__ == "__main__":
    unittest.main()
