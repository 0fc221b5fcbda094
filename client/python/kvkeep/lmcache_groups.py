"""LMCache: refuses models with blocks that an engine never had and LMCache would keep.

In layers with a window or a recurrent state (Mamba) an engine keeps only the blocks that it still
needs; the others are its null block, which holds anything. LMCache leaves out an object of null
blocks alone. But unless it runs with --separate-object-groups, an object has blocks of all layers:
LMCache keeps null blocks beside those of attention, and finds a prefix that ends there (LMCache
issue 4247). Neither the object nor its key tells, so an adapter cannot leave it out. Instead the
model is refused where the server groups its layers, before the first object. Before 0.5.5 LMCache
does not tell which layers have states: there an object with several groups of layers is refused.
"""

import functools
import importlib
import threading

from kvkeep.engine_versions import engine_version, field, lacks, take_unchecked

_LOCK = threading.Lock()  # guards LMCache's class while it is changed


def refuse_mixed_objects(logger):
    """Makes LMCache refuse such models from now on, in this process. Raises ValueError if this
    LMCache groups layers elsewhere, unless the environment accepts it all the same."""
    try:
        manager = importlib.import_module("lmcache.v1.kv_layer_groups").KVLayerGroupsManager
        detect = manager._detect_object_groups
    except (ImportError, AttributeError):
        take_unchecked("kvkeep: LMCache has no lmcache.v1.kv_layer_groups.KVLayerGroupsManager."
                       "_detect_object_groups: models with windows or recurrent states would not "
                       "be refused", logger)
        return
    with _LOCK:
        if not hasattr(manager._detect_object_groups, "kvkeep_refuses"):
            manager._detect_object_groups = _refusing(detect)


def _refusing(detect):
    @functools.wraps(detect)
    def checked(self, *given, **named):
        objects = detect(self, *given, **named)
        for one in objects:
            kinds = {_kind(self._kernel_groups[at], at, self._lmcache_tokens_per_chunk)
                     for at in one.kernel_group_indices}
            windows = [at for at in one.kernel_group_indices
                       if self._kernel_groups[at].sw_size_tokens != -1]
            if windows and lacks("lmcache", "windows"):
                raise ValueError(
                    f"kvkeep: LMCache {engine_version('lmcache')} keeps blocks that a window has "
                    "left behind, which the engine has not: tokens would be wrong. Use LMCache "
                    "0.5.4 or newer for a model with windows")
            # A connector's own groups ("aux") are always in one object.
            if len(kinds) > 1 and not field("lmcache", one, "ObjectGroupInfo", "aux"):
                tells = field("lmcache", self._kernel_groups[0], "KernelGroupInfo",
                              "recurrent_state") is not None
                raise ValueError(
                    f"kvkeep: LMCache would keep layers with {' and with '.join(sorted(kinds))} "
                    "in one object, and with it blocks that the engine never had: tokens would be "
                    "wrong. "
                    f"{'Start' if tells else 'Use LMCache 0.5.5 or newer, and start'} lmcache "
                    "server with --separate-object-groups")
        return objects

    checked.kvkeep_refuses = True
    return checked


def _kind(group, number, chunk_tokens):
    """Returns text that distinguishes groups whose layers have different blocks, as LMCache
    does. Where LMCache does not tell recurrent states from windows, each such group is a kind of
    its own."""
    window = group.sw_size_tokens
    reach = "no window" if window == -1 else f"a window of {-(-window // chunk_tokens)} chunks"
    recurrent = field("lmcache", group, "KernelGroupInfo", "recurrent_state")
    if recurrent is None:
        return f"{reach} or recurrent states (group {number})"
    return f"recurrent states, {reach}" if recurrent else reach
