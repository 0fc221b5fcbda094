"""Which content a request's LoRA adapter has, without engine or daemon.

    adapters_test.py SOURCES
"""

import concurrent.futures
import logging
import os
import pathlib
import subprocess
import sys
import threading
import time
import types
import unittest
from unittest import mock

SOURCES = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(SOURCES / "client" / "python"))

from kvkeep import vllm_adapters, weights  # noqa: E402
from kvkeep.vllm_adapters import Adapters  # noqa: E402
from weights_rig import WithModel, safetensors  # noqa: E402

LOGGER = logging.getLogger("test")


class Reading(threading.Event):
    """Replaces a function: calls for hanging paths wait until the event is set."""

    def __init__(self, function):
        super().__init__()
        self._function, self.hangs = function, set()

    def __call__(self, path):
        if str(path) in self.hangs:
            self.wait(60)
        return self._function(path)


class AdaptersOfRequests(WithModel):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.adapters = Adapters(LOGGER, timeout_s=5, clock=lambda: self.now)
        self.addCleanup(self.adapters.close)

    def request(self, path=None, name="a", number=1, **other):
        return types.SimpleNamespace(lora_int_id=number, lora_name=name,
                                     lora_path=str(path or self.model), **other)

    def ask(self, *given, **named):
        return self.adapters.of(self.request(*given, **named))

    def of(self, *given, **named):
        return self.ask(*given, **named).result()

    def load(self, *given, **named):
        self.adapters.loaded(self.request(*given, **named))

    def assert_unknown(self, *given, **named):
        self.assertEqual(self.of(*given, **named), Adapters.UNKNOWN)

    def wait_for(self, true):
        deadline = time.monotonic() + 20
        while not true():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)

    def rewrite(self, folder=None, content=b"n"):
        safetensors((folder or self.model) / "model-2.safetensors", c=content * 100)

    def hanging(self, name, *paths):
        """Makes the function hang on the paths, until the test is over or the event is set."""
        reading = Reading(getattr(vllm_adapters, name))
        reading.hangs = {str(path) for path in paths or (self.model,)}
        patch = mock.patch.object(vllm_adapters, name, reading)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(reading.set)
        return reading

    def test_an_adapter_is_its_content(self):
        first = self.of()
        self.assertEqual(first, self.id())
        self.assertEqual(self.of(self.make("copy"), "b", 2), first)
        other = self.make("other")
        self.rewrite(other)
        self.assertEqual(self.of(other, number=3), self.id(other))  # under the same name
        self.assertNotEqual(self.of(self.make("3d"), number=4, is_3d_lora_weight=True), first)
        with mock.patch.object(weights, "_digest_of", side_effect=AssertionError):
            self.assertEqual(self.of(), first)  # read once
        self.assertEqual(self.adapters.unknown, 0)

    def test_one_whose_files_change_under_a_running_engine_is_unknown(self):
        before = self.ask()
        self.assertEqual(before.result(), self.id())
        times = (self.model / "model-1.safetensors").stat()
        os.utime(self.model / "model-1.safetensors", (3, 3))
        with self.assertLogs(LOGGER, "WARNING"):
            self.assert_unknown()
        self.assertEqual(before.result(), Adapters.UNKNOWN)  # the engine may have loaded it anew
        os.utime(self.model / "model-1.safetensors", ns=(times.st_atime_ns, times.st_mtime_ns))
        self.assert_unknown()
        self.assert_unknown(self.root / "absent", number=3)
        self.wait_for(lambda: self.adapters.unknown == 3)  # counted after the answers

    def test_files_that_were_replaced_since_the_engine_loaded_them_are_not_what_it_has(self):
        with self.assertLogs(LOGGER, "WARNING"):  # by the read already, if it sees the change
            self.load()
            self.rewrite()
            self.assert_unknown()
        self.load()  # the engine keeps what it has
        self.assert_unknown()

    def test_files_that_are_as_they_were_when_they_were_loaded(self):
        self.load()
        self.load()
        self.assertEqual(self.of(), self.id())
        self.load(load_inplace=True)
        self.assertEqual(self.of(), self.id())

    def test_files_that_change_while_they_are_read(self):
        reading = self.hanging("fingerprint")
        self.load()
        asked = self.ask()
        self.rewrite()
        reading.set()
        self.assertEqual(asked.result(), Adapters.UNKNOWN)

    def test_other_content_is_found_once_the_engine_has_removed_the_old_one_and_its_blocks(self):
        self.load()
        first = self.ask()
        old = first.result()
        self.rewrite()
        self.adapters.removed(1)
        self.assertEqual(first.result(), Adapters.UNKNOWN)
        self.load(number=2)
        self.assert_unknown(number=2)  # the prompt's beginning may be computed with the old one
        self.adapters.blocks_gone()
        self.assertEqual(self.of(number=2), self.id())
        self.assertNotEqual(self.of(number=2), old)
        self.adapters.removed(7)

    def test_the_same_content_is_found_whenever_it_is_loaded_again(self):
        self.load()
        first = self.of()
        self.adapters.removed(1)
        self.load()
        self.assertEqual(self.of(), first)
        self.assertEqual(self.of(number=2), first)

    def test_other_content_is_found_under_another_path(self):
        self.assertEqual(self.of(), self.id())
        other = self.make("other")
        self.rewrite(other)
        self.adapters.removed(1)
        self.load(other)
        self.assertEqual(self.of(other), self.id(other))

    def test_other_content_that_is_loaded_in_place_is_unknown(self):
        """A failed load leaves the old adapter, and nothing reports the failure."""
        self.load()
        first = self.ask()
        self.assertEqual(first.result(), self.id())
        self.rewrite()
        self.load(load_inplace=True)
        self.assertEqual(first.result(), Adapters.UNKNOWN)
        self.assert_unknown()
        self.adapters.blocks_gone()
        self.assert_unknown()
        self.load(self.make("other"), load_inplace=True)
        self.assert_unknown(self.root / "other")

    def test_one_that_each_step_loads_anew_is_unknown(self):
        self.assert_unknown(load_inplace=True)
        self.assert_unknown()

    def test_a_number_that_two_adapters_have_is_of_neither(self):
        other = self.make("other")
        self.assertEqual(self.of(), self.id())
        self.assert_unknown(other)
        self.assert_unknown(other, number=2)  # blocks of that name may be of the first
        self.assertEqual(self.of(), self.id())

    def test_one_that_is_not_there_yet_when_the_engine_is_told_to_load_it(self):
        """Loads an adapter that the engine downloads."""
        self.load(self.root / "later")
        self.make("later")
        self.assertEqual(self.of(self.root / "later"), self.id())

    def test_a_file_system_that_hangs_makes_misses_of_its_own_adapters_only(self):
        hung = [self.make(f"hung {number}") for number in range(9)]
        reading = self.hanging("locate", *hung)
        asked = [self.ask(folder, number=10 + at) for at, folder in enumerate(hung)]
        self.assertEqual(self.of(), self.id())
        with self.assertRaises(concurrent.futures.TimeoutError):
            asked[0].result(0.01)
        self.now = 4.9
        self.assertFalse(any(one.done() for one in asked))
        self.now = 5.1
        with self.assertLogs(LOGGER, "WARNING"):
            self.assertTrue(all(one.done() for one in asked))
        self.assertEqual({one.result() for one in asked}, {Adapters.UNKNOWN})
        again = self.ask(hung[0], number=10)  # no other wait
        self.assertTrue(again.done())
        self.assertEqual(self.of(number=2), self.id())
        reading.set()  # the engine may have loaded them before they were seen
        self.assert_unknown(hung[0], number=10)

    def test_contents_that_cannot_be_read_do_not_hinder_others_for_ever(self):
        hung = [self.make(f"hung {number}") for number in range(4)]
        self.hanging("fingerprint", *hung)
        asked = [self.ask(folder, number=10 + at) for at, folder in enumerate(hung)]
        self.wait_for(lambda: self.adapters._reads.running == 4)
        waits = self.ask()
        self.wait_for(lambda: self.adapters._adapters[1].signature is not None)
        self.now = 5.1
        with self.assertLogs(LOGGER, "WARNING"):
            self.assertTrue(all(one.done() for one in [*asked, waits]))
        self.ask()  # notices that they hang
        self.wait_for(lambda: self.adapters._adapters[1].content is not None)
        self.assertEqual(self.of(), self.id())

    def test_files_that_are_read_for_long_are_known_later(self):
        reading = self.hanging("fingerprint")
        asked = self.ask()
        self.wait_for(lambda: self.adapters._adapters[1].signature is not None)
        self.now = 6
        with self.assertLogs(LOGGER, "WARNING"):
            self.assertTrue(asked.done())
        self.assertEqual(asked.result(), Adapters.UNKNOWN)
        self.assertTrue(self.ask().done())
        reading.set()
        self.wait_for(lambda: self.adapters._adapters[1].content is not None)
        self.assertEqual(self.of(), self.id())

    def test_a_process_ends_while_a_file_system_hangs(self):
        said = subprocess.run([sys.executable, "-c", HANGS, SOURCES / "client" / "python"],
                              timeout=30, check=True, capture_output=True, text=True)
        self.assertEqual(said.stdout, "asked\n")

    def test_an_error_of_the_file_system_is_not_asked_about_again(self):
        with mock.patch.object(vllm_adapters, "signature", side_effect=OSError("stale")), \
                self.assertLogs(LOGGER, "WARNING"):
            self.assert_unknown()
            self.load(number=2)
        self.assert_unknown()  # the engine may have had no error
        self.assert_unknown(number=2)


HANGS = """
import logging, sys, threading, types
sys.path.insert(0, sys.argv[1])
from kvkeep import vllm_adapters
vllm_adapters.locate = lambda _: threading.Event().wait()
adapters = vllm_adapters.Adapters(logging.getLogger())
adapters.of(types.SimpleNamespace(lora_int_id=1, lora_name="a", lora_path="/a"))
adapters.close()
print("asked")
"""


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
