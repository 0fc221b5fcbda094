"""The library exports what its headers declare, nothing more and nothing less, under its SONAME.

    symbols_test.py LIBRARY KVKEEP_H [HEADER...]
"""

import re
import subprocess
import sys


def declared(header):
    text = re.sub(r"//.*", "", open(header, encoding="utf-8").read())
    return set(re.findall(r"^[\w *]*\b(kvkeep_\w+)\(", text, re.MULTILINE))


def exported(library):
    lines = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True).splitlines()
    functions, others = set(), set()
    for line in lines:
        _, kind, name = line.split()
        name = name.partition("@")[0]
        if kind == "A" and name == "KVKEEP_1":
            continue  # the version itself
        (functions if kind == "T" and name.startswith("kvkeep_") else others).add(name)
    return functions, others


def main():
    library, header, *others_of_ours = sys.argv[1:]
    names = declared(header)
    for other in others_of_ours:
        names |= declared(other)
    functions, others = exported(library)
    problems = [f"exported and not of ours: {name}" for name in sorted(others)]
    problems += [f"exported and not declared: {name}" for name in sorted(functions - names)]
    problems += [f"declared and not exported: {name}" for name in sorted(names - functions)]
    if len(names) < 30:
        problems.append(f"only {len(names)} declarations found in {header}: can we still read it?")
    dynamic = subprocess.check_output(["readelf", "-d", library], text=True)
    version = re.search(r"#define KVKEEP_ABI_VERSION (\d+)", open(header, encoding="utf-8").read())
    if f"[libkvkeep-client.so.{version.group(1)}]" not in dynamic:
        problems.append(f"SONAME is not libkvkeep-client.so.{version.group(1)}")
    print("\n".join(problems) or f"{len(names)} functions, all declared and exported")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
