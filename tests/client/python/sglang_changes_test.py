"""kvkeep.sglang and kvkeep.sglang_direct, while SGLang changes the weights of a running engine: on
SGLang's recorded classes, with a real daemon; SGLang itself is not needed.

    sglang_changes_test.py SOURCES LIBRARY KVKEEPD
"""

import sys
import unittest
from unittest import mock

import sglang_rig
from sglang_rig import (CHANGING, ENGINE, HICACHE, MEMORY, RESETS, SERVING, WithDaemon, changing,
                        indices, keys, updates)

from kvkeep.sglang_changes import OBSERVED, Observed

UPDATER = "model_executor.model_runner_components.weight_updater"
INFO = HICACHE.HiCacheStorageExtraInfo()


def change():
    changing(UPDATER).update_weights_from_disk("given")


class Changes(WithDaemon):
    def setUp(self):
        super().setUp()
        self.first = self.backend()
        self.store(self.first)

    def found(self, backend, count=3):
        return backend.batch_exists(keys(count))

    def test_a_change_that_nobody_gave_a_version_is_seen_whichever_it_is(self):
        self.assertEqual(len(updates()), sum(len(names) for _, names in CHANGING.values()) - 1)
        for number, update in enumerate(updates()):
            with self.subTest(update=number):
                backend = self.backend()
                self.assertEqual(self.found(backend), 3)
                update("given")
                self.assertEqual(self.found(backend), 0)
                self.assertFalse(backend.exists(keys(1)[0]))
                self.assertEqual(backend.batch_get_v1(keys(3), indices(range(3))), [False] * 3)
                self.assertEqual(backend.batch_exists_v2(keys(3)).kv_hit_pages, 0)

    def test_what_is_stored_after_a_change_is_found_by_this_engine_alone(self):
        change()
        self.store(self.first, first=101)
        self.assertEqual(self.first.batch_exists(keys(3, first=101)), 3)
        transfer = HICACHE.PoolTransfer(HICACHE.PoolName.KV, keys=keys(2, first=111),
                                        host_indices=indices([0, 1]))
        self.assertEqual(self.first.batch_set_v2([transfer], INFO),
                         {HICACHE.PoolName.KV: [True, True]})
        second = self.backend()
        self.assertEqual(second.batch_exists(keys(3, first=101)), 0)
        self.assertEqual(second.batch_exists(keys(2, first=111)), 0)
        self.assertEqual(self.found(second), 3)  # that of the initial weights

    def test_a_second_change_and_a_reset_after_one_forget_what_was_stored_between(self):
        for forget in (change, lambda: changing(RESETS).reset()):
            change()
            self.store(self.first, first=101)
            self.assertEqual(self.first.batch_exists(keys(3, first=101)), 3)
            forget()
            self.assertEqual(self.first.batch_exists(keys(3, first=101)), 0)

    def test_a_reset_without_a_change_forgets_nothing(self):
        changing(RESETS).reset()
        self.assertEqual(self.found(self.first), 3)

    def test_what_is_computed_during_a_change_is_not_found_after_it(self):
        during = mock.Mock(side_effect=lambda *_: self.store(self.first, first=101))
        with mock.patch.object(sglang_rig, "DURING", during):
            change()
        during.assert_called_once()
        self.assertEqual(self.first.batch_exists(keys(3, first=101)), 0)
        self.assertEqual(self.backend().batch_exists(keys(3, first=101)), 0)

    def test_a_change_that_fails_is_one_and_its_error_is_sglangs(self):
        with mock.patch.object(sglang_rig, "DURING", mock.Mock(side_effect=OSError("no disk"))), \
                self.assertRaisesRegex(OSError, "no disk"):
            change()
        self.assertEqual(self.found(self.first), 0)

    def test_pages_that_a_change_overtook_are_misses(self):
        namespace = self.first._pools[HICACHE.PoolName.KV]._namespace
        get = namespace.get

        def overtaken(*given, **named):
            got = get(*given, **named)
            change()
            return got

        with mock.patch.object(namespace, "get", overtaken):
            self.assertEqual(self.first.batch_get_v1(keys(3), indices(range(3))), [False] * 3)

    def test_nvme_is_spared_what_nobody_else_can_find(self):
        puts = []
        namespace = self.first._pools[HICACHE.PoolName.KV]._namespace
        put = namespace.put

        def watched(*given, **named):
            puts.append(named["no_g3"])
            return put(*given, **named)

        with mock.patch.object(namespace, "put", watched):
            self.store(self.first, first=101)
            change()
            self.store(self.first, first=111)
        self.assertEqual(puts, [False, True])

    def test_a_version_alone_begins_an_epoch_too(self):
        with mock.patch.object(SERVING, "weight_version", "7"):
            self.assertEqual(self.found(self.first), 0)
            self.store(self.first, first=101)
            self.assertEqual(self.first.batch_exists(keys(3, first=101)), 3)
            self.assertEqual(self.backend().batch_exists(keys(3, first=101)), 0)
        self.assertEqual(self.found(self.first), 0)  # back to the old name, but not to its chunks
        self.assertEqual(self.found(self.backend()), 3)

    # ---- a storage that is attached to a running engine

    def test_an_attach_to_a_running_engine_shares_only_where_its_weights_are_known(self):
        with mock.patch.object(MEMORY, "hicache_storage_backend", None):
            named = {"weights": "name:X"}
            self.store(self.backend(options=named))
            for since_start, changes, options, shares in (
                    (True, 0, {}, True), (True, 2, {}, False), (False, 0, {}, False),
                    (False, 0, named, True), (True, 2, named, True)):
                with mock.patch.multiple(OBSERVED, since_start=since_start, changes=changes):
                    self.assertEqual(self.found(self.backend(options=options)), 3 * shares,
                                     (since_start, changes, options))

    # ---- SGLang's methods

    def test_a_method_that_sglang_does_not_have_any_more_is_an_error_and_nothing_is_wrapped(self):
        updater = type(changing(UPDATER))
        before = updater.update_weights_from_disk
        with mock.patch.object(updater, "end_weight_update"):
            del updater.end_weight_update
            with self.assertRaisesRegex(ValueError, "no .*WeightUpdater.end_weight_update.*seen"):
                Observed().begin(at_start=True)
        self.assertIs(updater.update_weights_from_disk, before)

    def test_methods_are_wrapped_once_and_give_what_sglangs_give(self):
        updater = changing(UPDATER)
        before = type(updater).update_weights_from_disk
        self.backend()
        self.assertIs(type(updater).update_weights_from_disk, before)
        call = mock.Mock(return_value=(True, "done"))
        with mock.patch.object(sglang_rig, "DURING", call):
            self.assertEqual(updater.update_weights_from_disk("path", load_format="auto"),
                             (True, "done"))
        call.assert_called_once_with(updater, "path", load_format="auto")


class Multimodal(WithDaemon):
    KINDS = ("is_multimodal", "is_audio_model", "is_image_understandable_model",
             "is_audio_understandable_model")

    def model(self, **kinds):
        return mock.patch.dict(ENGINE.of_model, hf_config=Config(), **kinds)

    def test_models_that_take_images_or_audio_are_refused_unless_senders_are_trusted(self):
        for kind in self.KINDS:
            with self.model(**{kind: True}):
                with self.assertRaisesRegex(
                        ValueError, 'Llava takes images.*64 bits.*--language-model-only.*'
                        '"multimodal": "trusted"'):
                    self.backend()
                self.store(self.backend(options={"multimodal": "trusted"}))
        with self.assertRaisesRegex(ValueError, 'multimodal: "refused" or "trusted", not .yes.'):
            self.backend(options={"multimodal": "yes"})

    def test_language_only_is_no_way_out_as_images_come_from_elsewhere(self):
        with self.model(is_multimodal=True), mock.patch.multiple(ENGINE, language_only=True), \
                self.assertRaisesRegex(ValueError, "not --language-only"):
            self.backend()

    def test_weights_of_sglangs_weight_cache_are_not_those_of_the_files(self):
        with mock.patch.multiple(ENGINE, weight_cache_mode="client"):
            with self.assertRaisesRegex(ValueError, 'weight-cache-mode client.*"name:X"'):
                self.backend()
            self.backend(options={"weights": "name:X"})


class Config(dict):
    """The part of a transformers configuration that is used."""

    architectures = ["Llava"]

    def __init__(self):
        super().__init__(architectures=["Llava"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
