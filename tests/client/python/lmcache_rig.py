"""What tests of both adapters of LMCache share: how LMCache groups layers, on its recorded classes.
"""

from unittest import mock

import signatures

GROUPS = signatures.load("lmcache.v1.kv_layer_groups")
CHUNK_TOKENS = 256


def layers(window=-1, recurrent=False):
    return GROUPS.KernelGroupInfo([], None, None, sw_size_tokens=window, recurrent_state=recurrent)


ATTENTION, MAMBA, WINDOW = layers(), layers(16, recurrent=True), layers(512)


def grouped(kinds, *objects, **more):
    """How many objects LMCache makes, if it puts those layers into these: numbers of layers."""
    manager = GROUPS.KVLayerGroupsManager([], [])
    manager._kernel_groups, manager._lmcache_tokens_per_chunk = list(kinds), CHUNK_TOKENS
    manager.objects = [GROUPS.ObjectGroupInfo(one, **more) for one in objects]
    return len(manager._detect_object_groups([]))


def unpatched():
    """LMCache as it is before any adapter was made."""
    return mock.patch.object(GROUPS.KVLayerGroupsManager, "_detect_object_groups",
                             lambda self, engine_group_infos: self.objects)


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

    def test_an_lmcache_that_groups_layers_elsewhere_is_refused(self):
        with unpatched():
            del GROUPS.KVLayerGroupsManager._detect_object_groups
            with self.assertRaisesRegex(ValueError, "no .*_detect_object_groups.*not be refused.*"
                                        "KVKEEP_UNCHECKED_ENGINE=1"):
                self.make_one()
            with mock.patch.dict("os.environ", KVKEEP_UNCHECKED_ENGINE="1"):
                self.make_one()
