"""Bytes under names: put some, get them back, delete them.

    python names.py [ENDPOINT]    without one: $KVKEEP_ENDPOINT, or this node's daemon

Prints what it got. `kvkeep up` starts a daemon.
"""

import sys

import kvkeep

with kvkeep.connect(*sys.argv[1:2], namespace="example") as cache:
    cache.put("greeting", b"hello")
    cache.put_many({"one": b"1", "two": b"2"})
    print(cache.get("greeting"))
    for name, data in cache.get_many(["one", "two", "three"]):
        print(name, data)  # None is a miss
    print(cache.delete("greeting", "one", "two"), "deleted")
    print(cache.get("greeting"))
