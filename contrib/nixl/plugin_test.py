#!/usr/bin/env python3
"""The backend KVKEEP in NIXL's real wheel, with a real kvkeepd: every byte is compared.

    python3 -m venv VENV && VENV/bin/pip install nixl==1.5.1 numpy
    contrib/nixl/build NIXL_SOURCE
    VENV/bin/python contrib/nixl/plugin_test.py [--plugin FILE] [--build BUILD] [CLASS.METHOD ...]

Exit 77, skipped: nixl, the plugin or kvkeepd is missing. Asks no network. A minute.
"""

import hashlib
import mmap
import os
import pathlib
import random
import sys
import tempfile
import threading
import time
import unittest

from plugin_rig import (ASKED, DEADLINE_MS, MIB, SLACK_S, Node, WithDaemon, bytes_of,
                        errors_said, np)

import kvkeep
from engine_table import engine_table
from nixl._api import nixl_agent, nixl_agent_config

SIZES = [1, 2, 63, 64, 4095, 4096, 4097, 65536, MIB - 1, MIB, MIB + 1, 3 * MIB + 7, 32 * MIB]


class Interface(unittest.TestCase):
    def test_the_engine_class_is_that_of_the_wheel(self):
        binding = sys.modules["nixl._bindings"].__file__
        wheel = pathlib.Path(binding).parent.name
        stock = next(pathlib.Path(binding).parents[1].glob(f".{wheel}.*/plugins/*_POSIX.so"))
        self.assertEqual(engine_table(str(ASKED.plugin)), engine_table(str(stock)))

    def test_nixl_lists_it_with_its_parameters(self):
        agent = nixl_agent("lists", nixl_agent_config(backends=[]))
        self.assertEqual(agent.get_plugin_list(), ["KVKEEP"])
        self.assertEqual(set(agent.get_plugin_mem_types("KVKEEP")), {"DRAM_SEG", "OBJ_SEG"})
        self.assertEqual(set(agent.get_plugin_params("KVKEEP")), {
            "endpoint", "namespace", "part", "parts", "deadline_ms", "replace"})


class Parameters(WithDaemon):
    def test_a_wrong_one_is_refused_by_its_name(self):
        wrong = [("endpoint", ["", "unix://", "unix://a", "nowhere", "localhost:7000",
                               "unix:///" + "x" * 107, "unix:///a\0b"]),
                 ("namespace", ["", "x" * 100_000]), ("part", ["", "-1", "1", "x", "0x0", " 0"]),
                 ("parts", ["0", "5000", "1.0"]), ("deadline_ms", ["0", "600001", "1s"]),
                 ("replace", ["", "True", "1"]), ("namspace", ["m"])]
        for name, values in wrong:
            for value in values:
                with self.subTest(name=name, value=value[:20]), errors_said() as said:
                    with self.assertRaisesRegex(Exception, "NIXL_ERR_BACKEND"):
                        Node(**{"endpoint": self.daemon.endpoint, name: value})
                    self.assertIn(f"kvkeep: create_backend: parameter {name}: ", said())

    def test_parts_and_namespaces_have_their_own_objects(self):
        nodes = [self.node(namespace=namespace, part=part, parts="2")
                 for namespace in ("one", "two") for part in ("0", "1")]
        for number, node in enumerate(nodes):
            self.assertEqual(node.write("same", node.register(bytes_of(number, 1000))), "DONE")
        for number, node in enumerate(nodes):
            back = node.register(np.zeros(1000, np.uint8))
            self.assertEqual(node.read("same", back), "DONE")
            np.testing.assert_array_equal(back, bytes_of(number, 1000))


class Transfers(WithDaemon):
    def test_each_size_comes_back(self):
        node = self.node()
        for size in SIZES:
            with self.subTest(size=size):
                data = node.register(bytes_of(size, size))
                back = node.register(np.zeros(size, np.uint8))
                self.assertEqual(node.query(f"size {size}"), [False])
                self.assertEqual(node.write(f"size {size}", data), "DONE")
                self.assertEqual(node.query(f"size {size}"), [True])
                self.assertEqual(node.read(f"size {size}", back), "DONE")
                np.testing.assert_array_equal(back, data)

    def test_many_objects_are_one_transfer(self):
        node = self.node()
        data = node.register(bytes_of(1, 1500 * 5003))
        back = node.register(np.zeros_like(data))

        def pieces(array):
            return [(f"many {i}", 0, array[i * 5003:(i + 1) * 5003 - i % 3]) for i in range(1500)]
        self.assertEqual(node.move("WRITE", pieces(data)), "DONE")
        asked = [f"many {i}" for i in range(1500)]
        self.assertEqual(node.query(*asked, "none", asked[0]), [True] * 1500 + [False, True])
        order = pieces(back)
        random.Random(1).shuffle(order)
        self.assertEqual(node.move("READ", order), "DONE")
        for (_, _, expected), (_, _, got) in zip(pieces(data), pieces(back)):
            np.testing.assert_array_equal(got, expected)

    def test_an_object_is_gathered_from_layers_and_scattered_to_them(self):
        node = self.node()
        layers, blocks, run = 7, 5, 10_001
        data = node.register(bytes_of(2, layers * blocks * run)).reshape(layers, blocks, run)
        pieces = [(f"block {block}", layer * run, data[layer, block])
                  for layer in range(layers) for block in range(blocks)]
        self.assertEqual(node.move("WRITE", pieces), "DONE")
        for block in range(blocks):
            back = node.register(np.zeros(layers * run, np.uint8))
            self.assertEqual(node.read(f"block {block}", back), "DONE")
            np.testing.assert_array_equal(back.reshape(layers, run), data[:, block])
        kept = data.copy()
        data[:] = 0
        self.assertEqual(node.move("READ", pieces), "DONE")
        np.testing.assert_array_equal(data, kept)

    def test_a_key_that_is_not_there_is_not_found(self):
        node = self.node()
        data = node.register(bytes_of(3, 1000))
        self.assertEqual(node.write("there", data[:500]), "DONE")
        self.assertEqual(node.read("nobody's", data), "nixlNotFoundError")
        # One of several: the transfer as a whole.
        self.assertEqual(node.move("READ", [("there", 0, data[:500]), ("other", 0, data[500:])]),
                         "nixlNotFoundError")
        self.assertEqual(node.query("there", "other"), [True, False])

    def test_another_size_is_a_mismatch(self):
        node = self.node()
        data = node.register(bytes_of(4, 2 * MIB))
        self.assertEqual(node.write("whole", data[:MIB]), "DONE")
        for size in (1, MIB - 1, MIB + 1, 2 * MIB):
            self.assertEqual(node.read("whole", data[:size]), "nixlMismatchError")
        self.assertEqual(node.read("whole", data[:MIB]), "DONE")

    def test_what_is_no_whole_object_is_refused(self):
        node = self.node()
        data = node.register(bytes_of(5, 1000))
        refused = "nixlInvalidParamError"
        for operation in ("READ", "WRITE"):
            self.assertEqual(node.move(operation, [("a", 1, data[:10])]), refused)
            self.assertEqual(node.move(operation, [("a", 0, data[:10]), ("a", 11, data[20:30])]),
                             refused)
            self.assertEqual(node.move(operation, [("a", 10, data[:10]), ("a", 0, data[20:30])]),
                             refused)
        self.assertEqual(node.move("WRITE", [("a", 0, data[:10]), ("a", 0, data[20:30])]), refused)
        self.assertEqual(node.query("a"), [False])
        # Two reads of one object have two places.
        self.assertEqual(node.write("a", data[:10]), "DONE")
        self.assertEqual(node.move("READ", [("a", 0, data[20:30]), ("a", 0, data[40:50])]), "DONE")
        for at in (20, 40):
            np.testing.assert_array_equal(data[at:at + 10], data[:10])

    def test_prepared_lists_as_lmcache_and_vllm_use_them(self):
        node = self.node()
        size, count = 70_000, 20
        arena = node.register(bytes_of(14, size * count))
        blocks = node.agent.prep_xfer_dlist(
            "NIXL_INIT_AGENT", [(arena.ctypes.data + i * size, size, 0) for i in range(count)],
            "DRAM")
        chosen = [19, 3, 7, 0]
        objects = node.agent.register_memory(
            [(0, size, 1000 + i, f"prepared {i}") for i in chosen], "OBJ")
        remote = node.agent.prep_xfer_dlist(node.name, objects.trim())
        kept = arena.copy()
        for operation in ("WRITE", "READ"):
            transfer = node.agent.make_prepped_xfer(operation, blocks, chosen, remote,
                                                    list(range(len(chosen))))
            self.assertEqual(node.end(transfer, node.agent.transfer(transfer)), "DONE")
            node.agent.release_xfer_handle(transfer)
            if operation == "WRITE":
                for i in chosen:
                    arena[i * size:(i + 1) * size] = 0
        np.testing.assert_array_equal(arena, kept)
        node.agent.release_dlist_handle(remote)
        node.agent.release_dlist_handle(blocks)
        node.agent.deregister_memory(objects)

    def test_threads_share_an_agent(self):
        node = self.node(threads=True)
        ends = []

        def work(thread):
            data, back = (node.register(np.zeros(300_000, np.uint8)) for _ in range(2))
            good = True
            for number in range(60):
                data[:] = bytes_of((thread << 16) + number, len(data))
                good &= node.write(f"thread {thread} {number % 7}", data) == "DONE"
                good &= node.read(f"thread {thread} {number % 7}", back) == "DONE"
                good &= np.array_equal(data, back) and node.query(f"thread {thread} 0") == [True]
            ends.append(good)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(ends, [True] * 4)

    def test_transfers_leave_no_descriptors_behind(self):
        node = self.node()
        data = node.register(bytes_of(15, 1000))
        self.assertEqual(node.write("few", data), "DONE")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(200):
            self.assertEqual(node.read("few", data), "DONE")
            self.assertEqual(node.read("none", data), "nixlNotFoundError")
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 2)

    def test_a_handle_is_posted_again_and_released_while_it_runs(self):
        node = self.node()
        data = node.register(bytes_of(6, 8 * MIB))
        back = node.register(np.zeros_like(data))
        with node.prepared("WRITE", [("again", 0, data)]) as write, \
                node.prepared("READ", [("again", 0, back)]) as read:
            for round_ in range(5):
                data[:] = bytes_of(round_, len(data))
                self.assertEqual(node.end(write, node.agent.transfer(write)), "DONE")
                self.assertEqual(node.end(read, node.agent.transfer(read)), "DONE")
                np.testing.assert_array_equal(back, data)
        for round_ in range(10):
            with node.prepared("WRITE", [(f"left {round_}", 0, data)]) as write:
                node.agent.transfer(write)
            kept = data.copy()
            data[:] = bytes_of(100 + round_, len(data))
            if node.read(f"left {round_}", back) == "DONE":
                np.testing.assert_array_equal(back, kept)


class Names(WithDaemon):
    def test_names_and_keys_are_those_of_the_command_line_and_python(self):
        node = self.node()
        data = node.register(bytes_of(7, 3000))
        key = hashlib.sha256(b"a prefix").hexdigest()
        names = ["text", "é", "x" * 65, key, key.upper()[:-1] + "g"]
        with kvkeep.connect(self.daemon.endpoint, namespace="test", path="local") as cache:
            for number, name in enumerate(names):
                part = data[number * 100:number * 100 + 100]
                self.assertEqual(node.write(name, part), "DONE")
                self.assertEqual(cache.get(name), part.tobytes())
            self.assertEqual(cache.get(bytes.fromhex(key)), data[300:400].tobytes())
            self.assertEqual(node.query(key.upper()), [True])
            cache.put("theirs", b"hello")
        self.assertEqual(node.read("theirs", data[:5]), "DONE")
        self.assertEqual(data[:5].tobytes(), b"hello")

    def test_a_write_replaces_a_name_and_leaves_a_key(self):
        node, keeping = self.node(), self.node(replace="false")
        first, second = (node.register(bytes_of(seed, size)) for seed, size in ((8, 900), (9, 70)))
        back = node.register(np.zeros(900, np.uint8))
        keeping.register(second)
        key = hashlib.sha256(b"key").hexdigest()
        for name, writer, kept in (("name", node, second), (key, node, first),
                                   ("kept", keeping, first)):
            with self.subTest(name=name):
                self.assertEqual(node.write(name, first), "DONE")
                self.assertEqual(writer.write(name, second), "DONE")
                self.assertEqual(node.read(name, back[:len(kept)]), "DONE")
                np.testing.assert_array_equal(back[:len(kept)], kept)

    def test_garbage_is_a_name_or_refused(self):
        node = self.node()
        seed = random.randrange(1 << 32)
        print(f"\ngarbage: seed {seed}", flush=True)
        chance = random.Random(seed)
        back = node.register(np.zeros(64, np.uint8))
        kept = {}
        for number in range(300):
            name = chance.randbytes(chance.choice([0, 1, 31, 32, 63, 64, 65, 4096, 100_000]))
            if number % 5 == 0:
                name = bytes(chance.choice(b"0123456789abcdefABCDEF\0 gx") for _ in range(64))
            data = node.register(bytes_of(number, 1 + number % 64))
            state = node.write(name, data)
            if not name:
                self.assertEqual(state, "nixlBackendError")  # as NIXL calls what no backend takes
                continue
            self.assertEqual(state, "DONE", name[:80])
            kept[name] = data
        self.assertEqual(node.query(b""), [False])
        for name, data in kept.items():
            self.assertEqual(node.read(name, back[:len(data)]), "DONE")
            np.testing.assert_array_equal(back[:len(data)], data)


class SecondGrpc(WithDaemon):
    """NIXL's wheel has a gRPC of its own, of another version than that of kvkeep's client. With
    `--build FOLDER/kvkeep` the client is that of a kvkeep wheel unpacked to FOLDER."""

    def test_a_client_by_grpc_works_or_refuses_and_does_not_crash(self):
        try:
            with kvkeep.connect(self.daemon.endpoint, namespace="grpc", path="grpc") as cache:
                self.assertTrue(cache.put("name", b"value"))
                self.assertEqual(cache.get("name"), b"value")
        except kvkeep.Unavailable as error:
            self.assertIn("a second gRPC in this process", str(error))
            of_a_wheel = ASKED.build.resolve().parent / "kvkeep.libs"
            self.assertFalse(of_a_wheel.exists(), error)

    def test_a_client_of_both_paths_keeps_the_local_one(self):
        with kvkeep.connect(self.daemon.endpoint, namespace="both") as cache:
            for number in range(3):
                self.until_done(lambda: cache.put(f"name {number}", b"value") and "DONE")
                self.assertEqual(cache.get(f"name {number}"), b"value")
                self.daemon.kill()
                self.daemon.start()


class RandomOperations(WithDaemon):
    def test_a_thousand_are_as_with_a_dictionary(self):
        seed = random.randrange(1 << 32)
        print(f"\noperations: seed {seed}", flush=True)
        chance = random.Random(seed)
        node = self.node()
        room = node.register(np.zeros(4 * MIB, np.uint8))
        kept = {}
        for number in range(1000):
            names = chance.sample(range(40), chance.randint(1, 6))
            operation = chance.choice(["WRITE", "READ", "READ", "QUERY"])
            if operation == "QUERY":
                self.assertEqual(node.query(*(f"n{name}" for name in names)),
                                 [name in kept for name in names])
                continue
            sizes = [len(kept[name]) if operation == "READ" and name in kept
                     and chance.random() < 0.95 else chance.choice([1, 100, 4096, 70_000, 600_000])
                     for name in names]
            ends = np.cumsum(sizes)
            parts = [room[end - size:end] for end, size in zip(ends, sizes)]
            room[:ends[-1]] = bytes_of(number, ends[-1])
            state = node.move(operation, [(f"n{name}", 0, part)
                                          for name, part in zip(names, parts)])
            if operation == "WRITE":
                self.assertEqual(state, "DONE")
                kept.update({name: part.copy() for name, part in zip(names, parts)})
                continue
            good = all(name in kept and len(kept[name]) == size
                       for name, size in zip(names, sizes))
            self.assertEqual(state == "DONE", good, state)
            if good:
                for name, part in zip(names, parts):
                    np.testing.assert_array_equal(part, kept[name])


class SharedMemory(WithDaemon):
    """Memory that the daemon reads itself."""

    def mapped(self, size):
        fd = os.memfd_create("arena", os.MFD_CLOEXEC)
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, size)
        return np.frombuffer(mmap.mmap(fd, size), np.uint8)

    def test_its_bytes_are_those_of_the_write_whatever_comes_after(self):
        node = self.node()
        arena = self.mapped(16 * MIB)
        node.register(arena[MIB:])
        for round_ in range(20):
            data = bytes_of(round_, 3 * MIB + round_)
            at = MIB + round_ * 4097
            arena[at:at + len(data)] = data
            self.assertEqual(node.write(f"shared {round_}", arena[at:at + len(data)]), "DONE")
            arena[at:at + len(data)] = 255
            back = arena[9 * MIB:9 * MIB + len(data)]
            self.assertEqual(node.read(f"shared {round_}", back), "DONE")
            np.testing.assert_array_equal(back, data)
        node.forget(arena[MIB:])

    def test_a_file_of_dev_shm_and_one_whose_descriptor_is_closed(self):
        node = self.node()
        for keep_path in (True, False):
            with tempfile.NamedTemporaryFile(dir="/dev/shm", delete=False) as file:
                file.truncate(2 * MIB)
                arena = np.frombuffer(mmap.mmap(file.fileno(), 2 * MIB), np.uint8)
            if keep_path:
                self.addCleanup(os.unlink, file.name)
            else:
                os.unlink(file.name)
            arena[:] = bytes_of(keep_path, len(arena))
            node.register(arena)
            self.assertEqual(node.write(f"file {keep_path}", arena[:MIB]), "DONE")
            self.assertEqual(node.read(f"file {keep_path}", arena[MIB:]), "DONE")
            np.testing.assert_array_equal(arena[MIB:], arena[:MIB])

    def test_a_daemon_that_was_stopped_stores_no_later_bytes(self):
        node = self.node(deadline_ms="400")
        arena = node.register(self.mapped(4 * MIB))
        back = node.register(np.zeros(MIB, np.uint8))
        for round_ in range(4):
            data = bytes_of(round_, MIB)
            arena[:MIB] = data
            with self.stopped():
                began = time.monotonic()
                self.assertNotEqual(node.write(f"stopped {round_}", arena[:MIB]), "DONE")
                self.assertLess(time.monotonic() - began, 0.4 + SLACK_S)
                arena[:MIB] = 7
            # The daemon has answered what came before, once it answers this.
            self.until_done(lambda name=f"later {round_}": node.write(name, back))
            if node.read(f"stopped {round_}", back) == "DONE":
                np.testing.assert_array_equal(back, data)


class DaemonAway(WithDaemon):
    def test_a_backend_is_made_without_a_daemon_and_works_once_there_is_one(self):
        self.daemon.kill()
        node = self.node(deadline_ms="300")
        data = node.register(bytes_of(10, 5000))
        self.assertEqual(node.write("early", data), "nixlBackendError")
        self.assertEqual(node.read("early", data), "nixlBackendError")
        self.assertEqual(node.query("early"), [False])
        self.daemon.start()
        self.until_done(lambda: node.write("early", data))

    def test_what_was_on_disk_is_there_after_a_kill_and_nothing_hangs(self):
        node = self.node()
        data = node.register(bytes_of(11, 6 * MIB))
        back = node.register(np.zeros_like(data))
        self.daemon.clear()
        self.assertEqual(node.write("stays", data), "DONE")
        self.daemon.wait_clean(1)
        self.daemon.kill()
        began = time.monotonic()
        with errors_said() as said:
            for _ in range(10):
                self.assertEqual(node.read("stays", back), "nixlBackendError")
                self.assertEqual(node.write("other", data), "nixlBackendError")
                self.assertEqual(node.query("stays"), [False])
            self.assertEqual(said().count("kvkeep: transfers fail: UNAVAILABLE"), 1, said())
        self.assertLess(time.monotonic() - began, DEADLINE_MS / 1000 + SLACK_S)
        self.daemon.start()
        self.daemon.wait_joined()
        self.until_done(lambda: node.read("stays", back))
        np.testing.assert_array_equal(back, data)

    def test_kills_in_the_middle_of_transfers_leave_whole_objects_or_none(self):
        seed = random.randrange(1 << 32)
        print(f"\nkills: seed {seed}", flush=True)
        chance = random.Random(seed)
        node = self.node()
        data = node.register(bytes_of(12, 64 * MIB))
        place = node.register(np.zeros_like(data))
        ended = []
        for round_ in range(8):
            names = [f"{round_} {i}" for i in range(8)]
            if round_ % 2 == 0:
                ended.append(self.killed(node, "WRITE", self.pieces(names, data), chance))
            else:
                self.assertEqual(node.move("WRITE", self.pieces(names, data)), "DONE")
                ended.append(self.killed(node, "READ", self.pieces(names, place), chance))
                if ended[-1] == "DONE":
                    np.testing.assert_array_equal(place, data)
            self.daemon.kill()
            self.daemon.start()
            self.daemon.wait_joined()
            self.until_done(lambda: node.write("probe", data[:1]))
            for name, _, part in self.pieces(names, data):
                if node.read(name, place[:len(part)]) == "DONE":
                    np.testing.assert_array_equal(place[:len(part)], part)
        print(f"transfers ended as {ended}", flush=True)

    @staticmethod
    def pieces(names, array):
        return [(name, 0, part) for name, part in zip(names, np.split(array, len(names)))]

    def killed(self, node, operation, pieces, chance):
        """Returns how a transfer ends whose daemon is killed at a moment of it, by chance."""
        with node.prepared(operation, pieces) as transfer:
            began = time.monotonic()
            try:
                state = node.agent.transfer(transfer)
                longest_s = 0.3 if operation == "WRITE" else 0.005
                time.sleep(chance.choice((0, chance.random())) * longest_s)
                self.daemon.process.kill()
                state = node.end(transfer, state)
            except TimeoutError:
                raise
            except Exception as error:
                state = type(error).__name__
            self.assertLess(time.monotonic() - began, DEADLINE_MS / 1000 + SLACK_S)
        return state

    def test_a_daemon_that_hangs_costs_a_deadline(self):
        node = self.node(deadline_ms="500")
        data = node.register(bytes_of(13, MIB))
        back = node.register(np.zeros_like(data))
        self.assertEqual(node.write("hangs", data), "DONE")
        for step in (lambda: node.read("hangs", back), lambda: node.write("hang", data),
                     lambda: node.query("hangs")):
            with self.stopped():
                began = time.monotonic()
                self.assertNotIn(step(), ("DONE", [True]))
                self.assertLess(time.monotonic() - began, 0.5 + SLACK_S)
        self.until_done(lambda: node.read("hangs", back))
        np.testing.assert_array_equal(back, data)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *ASKED.tests])
