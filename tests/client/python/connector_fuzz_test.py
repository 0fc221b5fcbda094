"""Adapters of engines given what no engine gives: each call ends with a miss or an error that says
what is wrong, never with other bytes, and the adapter works as before.

    connector_fuzz_test.py SOURCES LIBRARY KVKEEPD

KVKEEP_SEED repeats a run, KVKEEP_FUZZ_CALLS makes it longer.
"""

import os
import random
import sys
import unittest

import lmcache_test
import sglang_rig
import vllm_test

from kvkeep import errors
from kvkeep.lmcache import L2Options
from kvkeep.sglang_storage import StorageOptions
from kvkeep.vllm_identity import VllmOptions

SEED = int(os.environ.get("KVKEEP_SEED", random.randrange(1 << 30)))
CALLS = int(os.environ.get("KVKEEP_FUZZ_CALLS", 400))
# What an engine can tell from a fault of its own; anything else is a fault of the adapter.
CLEAR = (ValueError, TypeError, errors.KvkeepError)


class Drawn(random.Random):
    def text(self):
        size = self.choice((0, 1, 31, 32, 63, 64, 64, 64, 65, 128, 70_000))
        alphabet = self.choice(("0123456789abcdef", "0123456789ABCDEF", "0123456789abcdef ",
                                "x", "é", "\0", "\ud800", "\U0001f511"))
        return "".join(self.choices(alphabet, k=size))

    def raw(self):
        return self.randbytes(self.choice((0, 1, 4, 31, 32, 33, 36, 36, 64, 4096)))

    def thing(self):
        return self.choice((None, True, 0, -1, 1 << 70, 0.5, float("nan"), float("inf"), [], {}, (),
                            object(), self.text(), self.raw(), [self.text()], {"a": None}))

    def some(self, one, most=9):
        return [one() for _ in range(self.randrange(most))]


class Fuzz:
    """One adapter's test. `call` makes a call of it and returns what it says of the keys, all of
    which are unknown; `works` fails unless the adapter does its usual work."""

    options = None  # its class of options

    def setUp(self):
        super().setUp()
        self.drawn = Drawn(SEED)
        print(f"\n{type(self).__name__}: seed {SEED}", flush=True)

    def attempt(self, call):
        try:
            return call()
        except CLEAR as error:
            self.assertTrue(str(error), repr(error))
            return None

    def test_garbage_is_a_miss_or_a_clear_error(self):
        self.works()
        for number in range(CALLS):
            with self.subTest(call=number):
                found = self.attempt(self.call)
                self.assertFalse(any(found or ()), found)
        self.works()

    def test_a_wrong_option_is_refused_by_its_name(self):
        names = sorted(self.options.__dataclass_fields__)
        refused = 0
        for _ in range(CALLS):
            name, value = self.drawn.choice(names), self.drawn.thing()
            with self.subTest(name=name, value=repr(value)[:60]):
                try:
                    self.options.of({"name": "n", name: value})
                except (ValueError, TypeError) as error:
                    self.assertIn(name, str(error))
                    refused += 1
        self.assertGreater(refused, CALLS / 4)


class SGLang(Fuzz, sglang_rig.WithDaemon):
    options = StorageOptions

    def setUp(self):
        super().setUp()
        self.made = self.backend(options={"timeout_s": 5.0})

    def works(self):
        self.store(self.made)
        self.assertEqual(self.made.batch_get_v1(sglang_rig.keys(3), sglang_rig.indices([5, 6, 7])),
                         [True] * 3)
        for value, page in enumerate((5, 6, 7), start=1):
            self.assertEqual(self.made.mem_pool_host.read(page), [{value}, {value + 100}])

    def call(self):
        keys = self.drawn.some(self.drawn.text)
        kind = self.drawn.randrange(4)
        if kind == 0:
            return [self.made.batch_exists(keys)]
        if kind == 1:
            return [self.made.exists(key) for key in keys]
        pages = [self.drawn.randrange(-2, 12) for _ in keys]
        if self.drawn.random() < 0.3:
            pages = pages[1:] + self.drawn.some(lambda: 3, 3)
        return self.made.batch_get_v1(keys, sglang_rig.indices(pages))


class LMCache(Fuzz, lmcache_test.LMCache):
    options = L2Options

    def setUp(self):
        super().setUp()
        self.made = self.adapter(timeout_s=5.0)

    def works(self):
        asked = lmcache_test.keys(3)
        self.assertEqual(self.store(self.made, asked, lmcache_test.objects(3)), 3 * 4096)
        into = lmcache_test.objects(3, first=100)
        self.assertEqual(self.load(self.made, asked, into), [True] * 3)
        self.assertEqual([bytes(one.memory) for one in into],
                         [bytes([fill]) * 4096 for fill in (1, 2, 3)])

    def key(self):
        return lmcache_test.ObjectKey(**{
            "chunk_hash": self.drawn.raw(), "model_name": self.drawn.text(),
            "kv_rank": self.drawn.choice((0, -1, 1 << 70, 7)), "cache_salt": self.drawn.text(),
            "object_group_id": self.drawn.choice((0, -1, 1 << 40))})

    def call(self):
        keys = self.drawn.some(self.key)
        if self.drawn.random() < 0.5:
            return self.lookup(self.made, keys)
        sizes = [self.drawn.choice((0, 1, 4096)) for _ in keys]
        return self.load(self.made, keys, [lmcache_test.Object(9, nbytes=size) for size in sizes])


class Vllm(Fuzz, vllm_test.Vllm):
    options = VllmOptions

    def setUp(self):
        super().setUp()
        self.made = self.engine(timeout_s=5.0)

    def works(self):
        stored = vllm_test.keys(3)
        self.assertEqual(self.made.store(stored), stored)
        self.assertEqual(self.made.load(stored), [key[:1] for key in stored])

    def key(self):
        """A hash and its group, which is nearly always one that there is."""
        group = self.drawn.choice((0, 1) * 20 + (7, 1 << 30))
        return self.drawn.raw() + group.to_bytes(vllm_test.GROUP_BYTES, "big")

    def call(self):
        keys = self.drawn.some(self.key)
        if self.drawn.random() < 0.5:
            request = self.drawn.text()
            try:
                return self.made.ask(keys, request)
            finally:
                self.made.over(request)
        return [one for one in self.made.load(keys) if one is not None]


def load_tests(loader, _, pattern):
    """Leaves out the tests of the modules that this one builds on."""
    del loader, pattern
    names = [name for name in vars(Fuzz) if name.startswith("test_")]
    return unittest.TestSuite(kind(name) for kind in (SGLang, LMCache, Vllm) for name in names)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
