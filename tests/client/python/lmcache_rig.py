"""Common code of the tests of both LMCache adapters: how LMCache groups layers, on its recorded
classes.
"""

import types
from unittest import mock

import signatures
from kvkeep import engine_facts, engine_versions

GROUPS = signatures.load("lmcache.v1.kv_layer_groups")
CHUNK_TOKENS = 256


def layers(window=-1, recurrent=False):
    return GROUPS.KernelGroupInfo([], None, None, sw_size_tokens=window, recurrent_state=recurrent)


ATTENTION, MAMBA, WINDOW = layers(), layers(16, recurrent=True), layers(512)


def grouped(kinds, *objects, **more):
    """Returns how many objects LMCache makes of layers of these kinds. objects: the numbers of the
    kinds in each."""
    manager = GROUPS.KVLayerGroupsManager([], [])
    manager._kernel_groups, manager._lmcache_tokens_per_chunk = list(kinds), CHUNK_TOKENS
    manager.objects = [GROUPS.ObjectGroupInfo(one, **more) for one in objects]
    return len(manager._detect_object_groups([]))


def grouped_before(kinds, *objects):
    """Returns the same as grouped(), with objects as LMCache had them before 0.5.5."""
    manager = GROUPS.KVLayerGroupsManager([], [])
    manager._kernel_groups, manager._lmcache_tokens_per_chunk = list(kinds), CHUNK_TOKENS
    manager.objects = [types.SimpleNamespace(kernel_group_indices=one) for one in objects]
    return len(manager._detect_object_groups([]))


def unpatched():
    """Resets LMCache to its state before any adapter was made."""
    return mock.patch.object(GROUPS.KVLayerGroupsManager, "_detect_object_groups",
                             lambda self, engine_group_infos: self.objects)


def older(version):
    """LMCache is of this version meanwhile, as far as engine_facts.py tells it from others."""
    known = next(one for one in engine_facts.KNOWN["lmcache"] if one.recorded == version)
    return mock.patch.object(engine_versions, "version_of",
                             lambda _: engine_versions.Version(version, known))


class RefusesMixedObjects:
    """A test of an adapter, which make_one makes."""

    def test_models_whose_layers_lmcache_would_mix_in_one_object_are_refused(self):
        mixed = ((ATTENTION, MAMBA), (ATTENTION, WINDOW), (WINDOW, MAMBA),
                 (WINDOW, layers(1024)), (WINDOW, layers(512, recurrent=True)))
        with unpatched():
            for kinds in mixed:
                self.assertEqual(grouped(kinds, [0, 1]), 1)
            for _ in range(2):  # several adapters of one server
                self.make_one()
            for kinds in mixed:
                with self.assertRaisesRegex(ValueError, "layers with .* in one object.*"
                                            "lmcache server with --separate-object-groups"):
                    grouped(kinds, [0, 1])
                self.assertEqual(grouped(kinds, [0], [1]), 2)
            for kinds in ((ATTENTION, ATTENTION), (MAMBA, MAMBA), (layers(300), WINDOW)):
                self.assertEqual(grouped(kinds, [0, 1]), 1)
            self.assertEqual(grouped((ATTENTION, WINDOW), [0, 1], aux=True), 1)

    def test_before_0_5_5_several_groups_in_an_object_are_refused(self):
        kinds = [types.SimpleNamespace(sw_size_tokens=window) for window in (-1, -1, 512)]
        with older("0.5.4"), unpatched():
            self.make_one()
            for some in (kinds[:2], kinds[1:], [kinds[2], kinds[2]]):
                with self.assertRaisesRegex(
                        ValueError, "recurrent states .group 0.*LMCache 0.5.5 or newer"):
                    grouped_before(some, [0, 1])
                self.assertEqual(grouped_before(some, [0], [1]), 2)
        with older("0.5.3"), unpatched():
            self.make_one()
            self.assertEqual(grouped_before(kinds, [0], [1]), 2)
            with self.assertRaisesRegex(ValueError, "LMCache .* a window has left behind.*0.5.4"):
                grouped_before(kinds, [0], [2])

    def test_an_lmcache_that_groups_layers_elsewhere_is_refused(self):
        with unpatched():
            del GROUPS.KVLayerGroupsManager._detect_object_groups
            with self.assertRaisesRegex(ValueError, "no .*_detect_object_groups.*not be refused.*"
                                        "KVKEEP_UNCHECKED_ENGINE=1"):
                self.make_one()
            with mock.patch.dict("os.environ", KVKEEP_UNCHECKED_ENGINE="1"):
                self.make_one()
