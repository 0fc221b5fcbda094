"""Objects that a thread keeps until they may be dropped, without GPU or daemon.

    parked_test.py SOURCES LIBRARY
"""

import gc
import os
import pathlib
import sys
import threading
import unittest
import unittest.mock
import weakref

SOURCES, LIBRARY = pathlib.Path(sys.argv[1]), sys.argv[2]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path.insert(0, str(SOURCES / "client" / "python"))

from kvkeep.parked import Parked  # noqa: E402


class Memory:
    """Reports when it is gone."""


class ParkedTest(unittest.TestCase):
    def watched(self, ask):
        """Returns (Parked, what it runs at the end of the process)."""
        parked = Parked(ask)
        with unittest.mock.patch("atexit.register") as register:
            parked.watch()
        (end, *arguments), _ = register.call_args
        self.addCleanup(arguments[1].join, 20)
        return parked, lambda: end(*arguments)

    def test_what_is_done_with_is_dropped(self):
        parked, end = self.watched(lambda one: True)
        self.addCleanup(end)
        memory, gone = Memory(), threading.Event()
        weakref.finalize(memory, gone.set)
        parked.park(memory)
        del memory
        parked.park(Memory())  # the thread drops the one before
        self.assertTrue(gone.wait(20))

    def test_what_is_not_done_with_outlives_the_thread(self):
        asked = threading.Event()
        parked, end = self.watched(lambda one: asked.set())
        early, late = Memory(), Memory()
        left = [weakref.ref(early), weakref.ref(late)]
        parked.park(early)
        self.assertTrue(asked.wait(20))
        end()
        parked.park(late)  # as a `__del__` does when modules are torn down
        del early, late, parked, end
        self.doCleanups()
        gc.collect()
        self.assertNotIn(None, [one() for one in left])

    def test_a_thread_that_could_not_be_started_is_started_later(self):
        asked = threading.Event()
        parked = Parked(lambda one: not asked.set())
        with unittest.mock.patch("threading.Thread.start", side_effect=RuntimeError("no more")):
            with self.assertRaisesRegex(RuntimeError, "no more"):
                parked.watch()
        parked.watch()
        parked.park(Memory())
        self.assertTrue(asked.wait(20))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
