"""Leases for engines that release keys, not lookups, or that never say when they are done."""

import collections
import threading
import time


class _Held:
    def __init__(self, lease, keys, until):
        self.lease, self.until = lease, until
        self.keys = collections.Counter(keys)  # keys that are still held


class HeldLeases:
    """Leases of lookups. Each is held until all its keys were released, for at most `limit_s`.

    A key that several lookups found needs a release for each, which end the holds from the oldest
    on. A thread gives back leases that run out. Thread-safe.
    """

    def __init__(self, limit_s):
        self._limit_s = limit_s
        self._changed = threading.Condition()
        self._by_key = {}  # key: its holds, the oldest first
        self._in_order = collections.OrderedDict()  # _Held: None, in the order of their ends
        self._closed = False
        self.ran_out = 0  # leases that ran out before all their keys were released
        self._thread = threading.Thread(target=self._watch, name="kvkeep-leases", daemon=True)
        self._thread.start()

    def __len__(self):
        with self._changed:
            return len(self._in_order)

    def hold(self, lease, keys):
        """Takes over a lease on these keys."""
        with self._changed:
            if keys and not self._closed:
                held = _Held(lease, keys, time.monotonic() + self._limit_s)
                for key in keys:
                    self._by_key.setdefault(key, collections.deque()).append(held)
                self._in_order[held] = None
                self._changed.notify()
                return
        lease.release()

    def let_go(self, keys):
        """Drops one hold of each key. Keys without a hold are ignored."""
        over = []
        with self._changed:
            for key in keys:
                if key in self._by_key:
                    self._drop(self._by_key[key][0], key, over)
        for held in over:
            held.lease.release()

    def close(self):
        """Gives all leases back. Idempotent."""
        with self._changed:
            self._closed = True
            over = list(self._in_order)
            self._in_order.clear()
            self._by_key.clear()
            self._changed.notify()
        self._thread.join()
        for held in over:
            held.lease.release()

    def _drop(self, held, key, over):
        """Drops one hold of a key, and adds a lease without holds to `over`. REQUIRES: the lock."""
        holders = self._by_key[key]
        holders.remove(held)
        if not holders:
            del self._by_key[key]
        held.keys[key] -= 1
        if held.keys[key] == 0:
            del held.keys[key]
        if not held.keys:
            del self._in_order[held]
            over.append(held)

    def _watch(self):
        while True:
            over = []
            with self._changed:
                first = next(iter(self._in_order), None)
                if self._closed:
                    return
                left = None if first is None else first.until - time.monotonic()
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                for key in list(first.keys.elements()):
                    self._drop(first, key, over)
                self.ran_out += 1
            for held in over:
                held.lease.release()
