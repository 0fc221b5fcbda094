#!/usr/bin/env python3
"""Compares what two plugins of NIXL think the engine class is: the virtual functions, in order.

    contrib/nixl/engine_table.py PLUGIN OTHER_PLUGIN

NIXL's core calls a plugin by the places of these functions, and NIXL_PLUGIN_API_VERSION stays the
same when they move. So compare libplugin_KVKEEP.so with a plugin that came with NIXL. Exit 1: they
differ, and the plugin must not be loaded. Needs readelf and c++filt, of binutils.
"""

import re
import subprocess
import sys

POINTER = 8
_WRITES = ("R_X86_64_64", "R_AARCH64_ABS64")  # a relocation that stores an address


def _output(*command, text=None):
    return subprocess.run(command, input=text, check=True, capture_output=True,
                          text=True).stdout


def _tables(plugin):
    """Returns {mangled name of a table: (address, bytes)} and {address: mangled name of what the
    loader writes there}."""
    tables, written = {}, {}
    for line in _output("readelf", "-sW", "--dyn-syms", plugin).splitlines():
        words = line.split()
        if len(words) == 8 and words[3] == "OBJECT" and words[7].startswith("_ZTV"):
            tables[words[7]] = int(words[1], 16), int(words[2], 0)
    for line in _output("readelf", "-rW", plugin).splitlines():
        words = line.split()
        if len(words) >= 5 and words[2] in _WRITES:
            written[int(words[0], 16)] = words[4].partition("@")[0]
    return tables, written


def engine_table(plugin):
    """Returns the functions of the plugin's engine class, without its name; ValueError if the file
    does not show one class of engines."""
    tables, written = _tables(plugin)
    names = {}
    for table, (at, size) in tables.items():
        places = range(at + 2 * POINTER, at + size, POINTER)
        names[table] = [written.get(place, "?") for place in places]
    plain = _output("c++filt", text="\n".join(
        name for table in names.values() for name in table)).splitlines()
    found = []
    for table in names:
        functions, plain = plain[:len(names[table])], plain[len(names[table]):]
        if any(function.endswith("::supportsRemote() const") for function in functions):
            found.append([re.sub(r"^[^(]*::", "", function) for function in functions])
    # A class has the base's destructors under its own name.
    found = [tuple("~" if name.startswith("~") else name for name in table) for table in found]
    if len(set(found)) != 1:
        raise ValueError(f"{plugin}: {len(set(found))} different tables of an engine")
    return list(found[0])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    ours, theirs = (engine_table(plugin) for plugin in sys.argv[1:])
    if ours == theirs:
        print(f"equal: {len(ours)} functions")
        return
    for place in range(max(len(ours), len(theirs))):
        pair = [(table[place:] or ["nothing"])[0] for table in (ours, theirs)]
        if pair[0] != pair[1]:
            sys.exit(f"function {place} differs: {pair[0]} there, {pair[1]} here")


if __name__ == "__main__":
    main()
