"""kvkeep.sglang, interface v2: models with several pools. On SGLang's recorded classes, with a real
daemon; SGLang itself is not needed.

    sglang_pools_test.py SOURCES LIBRARY KVKEEPD
"""

import hashlib
import random
import signal
import sys
import time
import unittest

from sglang_rig import HICACHE, Pool, WithDaemon, indices, keys

from kvkeep.engine import Breaker
from kvkeep.sglang_pages import digest_of
from kvkeep.sglang_prefixes import ALL_PAGES, good_ends, restorable

INFO = HICACHE.HiCacheStorageExtraInfo()
ALL, TRAILING = HICACHE.PoolHitPolicy.ALL_PAGES, HICACHE.PoolHitPolicy.TRAILING_PAGES
MAMBA, INDEXER, SWA = (HICACHE.PoolName(name) for name in ("mamba", "indexer", "swa"))


def wanted(name, window=0):
    """Makes SGLang's request, which gives a window's length by as many meaningless names."""
    return HICACHE.PoolTransfer(name, keys=["__placeholder__"] * window,
                                hit_policy=TRAILING if window else ALL)


class Logical(Pool):
    """A pool that numbers pages and has no bytes."""

    layout, dtype = "layer_first", "torch.uint8"

    def get_page_buffer_meta(self, indices):
        del indices


class Prefixes(unittest.TestCase):
    def test_ends_are_those_of_the_definition(self):
        seed = random.randrange(2 ** 32)
        print("seed", seed)
        rng = random.Random(seed)
        for _ in range(2000):
            count, density = rng.randrange(12), rng.random()
            pools = [("kv", ALL_PAGES)] + [
                (name, rng.choice([ALL_PAGES, 1, 2, 5])) for name in ("a", "b")]
            there = {name: [rng.random() < density for _ in range(count)] for name, _ in pools}
            good = [end for end in range(1, count + 1) if all(
                all(there[name][0 if window is ALL_PAGES else max(0, end - window):end])
                for name, window in pools)]
            found = restorable(pools, lambda name, pages: there[name][:pages])
            self.assertEqual(found.restorable_prefix_pages, good, (pools, there))
            self.assertEqual(found.kv_hit_pages, max(good, default=0))
            for name, window in pools:
                alone = good_ends(there[name], window)
                if name == "kv":
                    self.assertEqual(found.extra_pool_hit_pages.get(name, 0), max(alone, default=0))

    def test_a_pool_is_not_asked_once_no_end_is_left(self):
        asked = []
        restorable([("kv", ALL_PAGES), ("a", 1), ("b", 1)],
                   lambda name, pages: asked.append((name, pages)) or [name == "kv"] * 2)
        self.assertEqual(asked, [("kv", None), ("a", 2)])


class Pools(WithDaemon):
    def hybrid(self, options=None, first=None, **config):
        """A backend, and its pools by name; a state is a page of one index and three pieces."""
        pools = {"kv": first or Pool(), MAMBA: Pool(planes=3, page_size=1), INDEXER: Pool(planes=1),
                 SWA: Pool()}
        made = self.backend(pools["kv"], options, **config)
        for name, pool in pools.items():  # SGLang announces the first one twice
            made.register_mem_host_pool_v2(pool, name)
        return made, pools

    def put(self, backend, pools, name, pages, value):
        """Puts pages of the prompt of keys(8), by number; each piece tells the pool and the
        page."""
        for page in pages:
            pools[name].fill(page, value + page)
        transfer = HICACHE.PoolTransfer(name, pools[name].indices(pages),
                                        keys=[keys(8)[page] for page in pages])
        if name == "kv":
            done = backend.batch_set_v1(transfer.keys, transfer.host_indices, INFO)
        else:
            done = backend.batch_set_v2([transfer], INFO)[name]
        self.assertEqual(done, [True] * len(pages))

    def find(self, backend, *transfers, count=8):
        found = backend.batch_exists_v2(keys(count), list(transfers), INFO)
        self.assertEqual(max(found.restorable_prefix_pages, default=0), found.kv_hit_pages)
        return found.restorable_prefix_pages

    def held(self, backend):
        """Returns the pages of keys(8), by pool."""
        numbers = {digest_of(key): page for page, key in enumerate(keys(8))}
        pages = {}
        for name, digest in backend._link.held._by_key:
            pages.setdefault(name, []).append(numbers[digest])
        return {name: sorted(some) for name, some in pages.items()}

    def get(self, backend, pools, name, pages, into):
        return backend.batch_get_v2([HICACHE.PoolTransfer(
            name, pools[name].indices(into), keys=[keys(8)[page] for page in pages])], INFO)[name]

    def test_a_page_of_one_pool_is_not_one_of_another(self):
        first, pools = self.hybrid()
        for name, value in (("kv", 1), (MAMBA, 21), (INDEXER, 41)):
            self.put(first, pools, name, [0, 1, 2], value)
        second, pools = self.hybrid()
        for name, value, pieces in ((MAMBA, 21, 3), (INDEXER, 41, 1)):
            self.assertEqual(self.get(second, pools, name, [0, 2, 5], [7, 0, 1]),
                             [True, True, False])
            for page, good in ((7, value), (0, value + 2)):
                self.assertEqual(pools[name].read(page),
                                 [{good + 100 * piece} for piece in range(pieces)])
        self.assertEqual(self.get(second, pools, SWA, [0, 1, 2], [0, 1, 2]), [False] * 3)
        self.assertEqual(second.batch_get_v1(keys(3), indices([4, 5, 6])), [True] * 3)
        self.assertEqual(pools["kv"].read(6), [{3}, {103}])

    def test_a_pool_of_all_pages_ends_the_prefix_where_it_ends(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, "kv", range(6), 1)
        self.assertEqual(self.find(backend, wanted(INDEXER)), [])
        self.put(backend, pools, INDEXER, [0, 1, 3], 41)
        found = backend.batch_exists_v2(keys(8), [wanted(INDEXER)], INFO)
        self.assertEqual((found.kv_hit_pages, found.restorable_prefix_pages), (2, [1, 2]))
        self.assertEqual(found.extra_pool_hit_pages, {"kv": 6, INDEXER: 2})
        self.put(backend, pools, INDEXER, [2, 4, 5, 6], 41)  # more than K and V
        self.assertEqual(self.find(backend, wanted(INDEXER))[-1], 6)

    def test_a_pool_of_trailing_pages_has_its_own_ends(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, "kv", range(6), 1)
        self.put(backend, pools, MAMBA, [1, 4, 7], 21)
        self.put(backend, pools, SWA, [0, 1, 3, 4], 61)
        self.assertEqual(self.find(backend, wanted(MAMBA, 1)), [2, 5])
        self.assertEqual(self.find(backend, wanted(SWA, 2)), [1, 2, 5])
        self.assertEqual(self.find(backend, wanted(SWA, 3)), [1, 2])
        self.assertEqual(self.find(backend, wanted(MAMBA, 1), wanted(SWA, 3)), [2])
        self.assertEqual(self.find(backend, wanted(SWA, 2), wanted(INDEXER)), [])
        self.assertEqual(self.find(backend), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.find(backend, wanted(MAMBA, 1), count=4), [2])

    def test_what_is_needed_is_held_until_it_was_fetched_and_nothing_else(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, "kv", range(6), 1)
        self.put(backend, pools, MAMBA, [1, 4], 21)
        self.assertEqual(self.find(backend, wanted(MAMBA, 1)), [2, 5])
        held = backend._link.held
        self.assertEqual(len(held), 2)  # five pages of K and V; the last state
        self.get(backend, pools, MAMBA, [1], [0])
        self.assertEqual(len(held), 2)
        self.get(backend, pools, MAMBA, [4], [0])
        self.assertEqual(len(held), 1)
        backend.batch_get_v1(keys(5), indices(range(5)))
        self.assertEqual(len(held), 0)

    def test_what_went_away_before_it_was_held_is_not_found(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, "kv", range(6), 1)
        self.put(backend, pools, MAMBA, [1, 4], 21)
        states = backend._pools[MAMBA]
        hold = states.hold

        def evicted(digests):
            states._namespace.delete([digest_of(keys(8)[4])])
            return hold(digests)

        states.hold = evicted
        self.assertEqual(self.find(backend, wanted(MAMBA, 1)), [2])
        self.assertEqual(self.held(backend), {"kv": [0, 1], "mamba": [1]})

    def test_an_end_that_went_away_while_a_longer_one_was_held_is_not_found_either(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, "kv", range(6), 1)
        self.put(backend, pools, SWA, range(6), 61)
        windows, lost = backend._pools[SWA], [5, 3, 1]
        hold = windows.hold

        def evicted(digests):
            if lost:
                windows._namespace.delete([digest_of(keys(8)[lost.pop(0)])])
            return hold(digests)

        windows.hold = evicted
        self.assertEqual(self.find(backend, wanted(SWA, 2)), [1])
        self.assertEqual(self.held(backend), {"kv": [0], "swa": [0]})

    def test_what_nvme_alone_has_is_found_only_where_that_is_faster_than_computing(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, "kv", range(3), 1)
        self.put(backend, pools, MAMBA, [2], 21)
        self.daemon.wait_clean(3 * 2 + 3)
        self.daemon.restart()  # its DRAM is empty
        for rate, ends in ((1e12, []), (1e-3, [3])):
            engine, _ = self.hybrid({"prefill_tokens_per_s": rate})
            self.assertEqual(self.find(engine, wanted(MAMBA, 1)), ends)

    def test_many_pages_go_in_several_calls(self):
        backend, pools = self.hybrid(first=Pool(300))
        many = [hashlib.sha256(bytes([page % 256, page // 256])).hexdigest() for page in range(300)]
        pools[INDEXER] = Pool(300, planes=1)
        backend.register_mem_host_pool_v2(pools[INDEXER], INDEXER)
        for page in range(300):
            pools[INDEXER].fill(page, page % 251)
        transfer = HICACHE.PoolTransfer(INDEXER, pools[INDEXER].indices(range(300)), keys=many)
        self.assertEqual(backend.batch_set_v2([transfer], INFO), {INDEXER: [True] * 300})
        pools[INDEXER].planes[0][:] = bytes(len(pools[INDEXER].planes[0]))
        transfer.keys = many[:299] + keys(1)
        self.assertEqual(backend.batch_get_v2([transfer], INFO), {INDEXER: [True] * 299 + [False]})
        self.assertEqual([pools[INDEXER].read(page) for page in range(299)],
                         [[{page % 251}] for page in range(299)])

    def test_a_prompt_longer_than_a_call_may_be_is_found_as_far_as_that(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, "kv", range(3), 1)
        self.put(backend, pools, INDEXER, range(3), 41)
        chain = keys(3) + [hashlib.sha256(b"%d" % page).hexdigest() for page in range(70_000)]
        self.assertEqual(backend.batch_exists(chain, INFO), 3)
        found = backend.batch_exists_v2(chain, [wanted(INDEXER)], INFO)
        self.assertEqual(found.restorable_prefix_pages, [1, 2, 3])
        self.assertEqual(backend._pools[INDEXER].there([digest_of(key) for key in chain]),
                         [True] * 3 + [False] * 70_000)

    def test_a_daemon_that_is_away_or_hangs_is_a_miss_in_every_pool(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, "kv", range(3), 1)
        self.put(backend, pools, INDEXER, range(3), 41)
        transfer = HICACHE.PoolTransfer(INDEXER, pools[INDEXER].indices(range(3)), keys=keys(3))

        def misses():
            self.assertEqual(self.find(backend, wanted(INDEXER)), [])
            for call in (backend.batch_get_v2, backend.batch_set_v2):
                self.assertEqual(call([transfer], INFO), {INDEXER: [False] * 3})

        self.hang(backend)
        misses()
        self.assertEqual(backend._link.breaker.given_up, 2)  # waited for once
        self.daemon.process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + 30
        while True:  # a daemon that has just gone on may take longer than 0.2 s
            backend._link.breaker = Breaker()
            if self.find(backend, wanted(INDEXER)) == [1, 2, 3]:
                break
            self.assertLess(time.monotonic(), deadline)
        self.daemon.kill()
        misses()

    def test_states_are_of_a_rank_where_all_have_the_same_k_and_v(self):
        (first, pools), (second, _) = (self.hybrid(tp_size=2, tp_rank=rank, is_mla_model=True)
                                       for rank in range(2))
        for name, value in (("kv", 1), (INDEXER, 41), (MAMBA, 21)):
            self.put(first, pools, name, [0], value)
        self.assertEqual(self.find(second, wanted(INDEXER)), [1])
        self.assertEqual(self.find(first, wanted(MAMBA, 1)), [1])
        self.assertEqual(self.find(second, wanted(MAMBA, 1)), [])
        split = Pool()
        split.head_num = 4
        with self.assertRaisesRegex(ValueError, "draft is split by heads"):
            first.register_mem_host_pool_v2(split, "draft")
        self.hybrid({"name": "eagle"}, is_mla_model=True)[0].register_mem_host_pool_v2(
            split, "draft")

    def test_a_first_pool_without_bytes_has_what_the_others_have(self):
        backend, pools = self.hybrid(first=Logical())
        self.assertEqual(backend.batch_set_v1(keys(3), indices(range(3)), INFO), [True] * 3)
        self.assertEqual(self.find(backend, wanted(INDEXER)), [])
        self.put(backend, pools, INDEXER, range(3), 41)
        self.assertEqual(self.find(backend, wanted(INDEXER)), [1, 2, 3])
        self.assertEqual(backend.batch_get_v1(keys(3), indices(range(3)), INFO), [True] * 3)
        self.assertEqual(backend.batch_exists(keys(3), INFO), 0)  # of numbers alone
        self.assertFalse(backend.exists(keys(1)[0]))

    def test_what_could_be_taken_for_other_bytes_is_apart_or_refused(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, MAMBA, [0], 21)
        pools[MAMBA].temporal_dtype = "torch.float32"
        backend.register_mem_host_pool_v2(pools[MAMBA], MAMBA)
        self.assertEqual(self.get(backend, pools, MAMBA, [0], [1]), [False])
        pools[MAMBA].temporal_dtype = "torch.uint8"
        with self.assertRaisesRegex(ValueError, r"uint8 \(pool mamba\)"):
            backend.register_mem_host_pool_v2(pools[MAMBA], MAMBA)
        with self.assertRaisesRegex(ValueError, "page_first"):
            backend.register_mem_host_pool_v2(Pool(layout="layer_first"), "swa")
        for draft in (HICACHE.PoolName.DRAFT, HICACHE.PoolName.DRAFT_SWA):
            with self.assertRaisesRegex(ValueError, f"draft model the pool {draft.value} is"):
                backend.register_mem_host_pool_v2(Pool(), draft)
            self.hybrid({"name": "eagle"})[0].register_mem_host_pool_v2(Pool(), draft)
        unknown = HICACHE.PoolTransfer(MAMBA, hit_policy=HICACHE.PoolHitPolicy.BLOCK_GROUPS)
        with self.assertRaisesRegex(ValueError, "policy"):
            backend.batch_exists_v2(keys(1), [unknown], INFO)

    def test_a_pool_that_was_refused_has_nothing_and_keeps_nothing(self):
        backend, pools = self.hybrid()
        self.put(backend, pools, "kv", range(3), 1)
        self.put(backend, pools, INDEXER, range(3), 41)
        self.put(backend, pools, SWA, range(3), 61)
        for name in ("kv", SWA):  # kept until now
            with self.assertRaises(ValueError):
                backend._register(name, Pool(layout="layer_first"))
            transfer = HICACHE.PoolTransfer(name, pools[name].indices(range(2)), keys=keys(2))
            for call in (backend.batch_get_v2, backend.batch_set_v2):
                self.assertEqual(call([transfer], INFO), {name: [False] * 2})
            self.assertEqual(self.find(backend, wanted(SWA, 1)), [])
            self.assertEqual(self.find(backend, wanted(HICACHE.PoolName.DRAFT)), [])
        self.assertEqual(self.get(backend, pools, INDEXER, [0], [1]), [True])
        self.assertEqual(backend.batch_get_v1(keys(2), indices(range(2))), [False] * 2)
        self.assertEqual(backend.batch_set_v1(keys(2), indices(range(2))), [False] * 2)
        self.assertEqual((backend.batch_exists(keys(2)), backend.exists(keys(1)[0])), (0, False))
        self.assertEqual(len(backend._link.held), 0)

    def test_indices_that_do_not_fit_the_keys_are_a_miss(self):
        backend, pools = self.hybrid()
        for given in (None, pools[INDEXER].indices([0])):
            transfer = HICACHE.PoolTransfer(INDEXER, given, keys=keys(2))
            for call in (backend.batch_set_v2, backend.batch_get_v2):
                with self.assertLogs("kvkeep.sglang_pages", "ERROR"):
                    self.assertEqual(call([transfer], INFO), {INDEXER: [False] * 2})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
