"""The versions of engines that are known, and their differences: data.

engine_versions.py reads it. A version is known if it begins as a range here and its classes equal
the recorded ones (engine_records.py). So patch releases and vendors' builds are known, unless they
changed what adapters use. To add a version: `signatures.py check PACKAGES` prints its digest;
compare what differs from its record, then run `tests/engines/versions`.
"""

from types import MappingProxyType
from typing import Mapping, NamedTuple


class Known(NamedTuple):
    """A version whose classes and bytes were read.

    range: the beginning of its versions' names. recorded: the version that was read. digest: of its
    records.
    absent: "Class.field" of what it lacks and later ones have, and the value that stands for it.
    without: parts of kvkeep that cannot run with it.
    """

    range: str
    recorded: str
    digest: str
    absent: Mapping = MappingProxyType({})
    without: tuple = ()


_VLLM_BEFORE_33 = {"VllmConfig.num_hash_lookahead_tokens": 0,
                   "AttentionConfig.minimax_m3_indexer_cp": False}
# Their workers do not tell a connector that they sleep. Their events have another form. Their
# offloading config does not say which groups have windows.
_NOT_BEFORE_33 = ("sleep", "events", "window sizes")
_SGLANG_BEFORE_23 = {"HiCacheStorageConfig.dcp_size": 1}
# None: whether layers have recurrent states was not told.
_LMCACHE_BEFORE_5 = {"KernelGroupInfo.recurrent_state": None, "ObjectGroupInfo.aux": False}

# The newest version of each engine comes first.
KNOWN = {
    "vllm": (
        Known("0.33", "0.33.0", "dd8f49dfc670ba305c3845ff3dccc4a33cb56ba0f07429447f6053f2cf42d942"),
        Known("0.32", "0.32.0", "c5fec2060ade6ae34ba3a6b3b84ccbb30489e0f0fdbcfa1edfebf0b88cf4ed27",
              _VLLM_BEFORE_33, _NOT_BEFORE_33),
        Known("0.31", "0.31.0", "4d9c206cd344cb8bc9ad30e7b0418fa094901d3081223168ea0db47f5dc27310",
              _VLLM_BEFORE_33, _NOT_BEFORE_33),
    ),
    "sglang": (
        Known("0.5.23", "0.5.23",
              "615deb29a4e07187ae926e02388a3e4f8a41d4074d0557502a52382492ce5ced"),
        # These have no linker_factory, so no flag names a linker of ours.
        Known("0.5.22", "0.5.22",
              "ce32953ffcdd81886fe1f6e0c1083fcd2ae59685ef9c3a8e32f065e74244b810",
              _SGLANG_BEFORE_23, ("linker",)),
        Known("0.5.21", "0.5.21",
              "2f3aa69fd0b47d48f03295c3d15edecb4c8716897f0c6b0dac7e57aee6b08c45",
              {**_SGLANG_BEFORE_23, "ServerArgs.qsa_indexer_dtype": None}, ("linker",)),
    ),
    "lmcache": (
        Known("0.5", "0.5.6", "c995b9c54a51a39882fb7f09390f0882783b729e2b3e70d31a64433899f6c8cd"),
        Known("0.5", "0.5.5", "5b1ac8450bd6005ec9f582d694dbce4c19fe72757e4c518c746a293eda0fbf0c"),
        Known("0.5", "0.5.4", "9e4cb1240270fd6c50de8f09692a0862b6f12bba6f600f7df7dbd5e56f5c7d0e",
              _LMCACHE_BEFORE_5),
        # These keep null blocks as if they were the engine's.
        Known("0.5", "0.5.3", "26b5ac528464d999fe847372b9724725217a69455d71341591cf83cc1db2d802",
              _LMCACHE_BEFORE_5, ("windows",)),
        Known("0.5", "0.5.2", "5ccfd2b83eef1fad30a3dc8dd295be01dd883b88c6fe5c0bf12de6193202a560",
              _LMCACHE_BEFORE_5, ("windows",)),
        Known("0.5", "0.5.1", "5ccfd2b83eef1fad30a3dc8dd295be01dd883b88c6fe5c0bf12de6193202a560",
              _LMCACHE_BEFORE_5, ("windows",)),
        Known("0.5", "0.5.0", "04c57492c17c61ff5a8433f08773dcf4e2d84c85d9b8073f512408a043a17be3",
              _LMCACHE_BEFORE_5, ("windows",)),
    ),
    # Read in the repository, as no release could be had: kv_cache_connector.py at 035ab91cad04,
    # which does what the manual of 1.4.0rc4 says, and kv_cache_layout.py at ae7a72167ae7. A release
    # whose classes differ is not known.
    "tensorrt_llm": (
        Known("1.4", "1.4.0rc4",
              "659907a852c67414e5c440f853e49b6bec736420d99127004e68990969fe26e7"),
    ),
    "transformers": (
        Known("5.24", "5.24.0", "1e8e14ff211614929105c1d597ae1deee4c0b6e9843d87b12e313605f41faa60"),
        Known("5.23", "5.23.0", "1e8e14ff211614929105c1d597ae1deee4c0b6e9843d87b12e313605f41faa60"),
        Known("5.22", "5.22.0", "1e8e14ff211614929105c1d597ae1deee4c0b6e9843d87b12e313605f41faa60"),
    ),
}

# Things that moved: the modules of an engine that have or had each, the newest first. None at the
# end: some versions have no such thing, and need none.
PLACES = {
    "lmcache": {"Bitmap": ("lmcache.lmcache_native", "lmcache.native_storage_ops")},
    "vllm": {"CacheHitSource": ("vllm.v1.metrics.cache_hit_source", None)},
}
