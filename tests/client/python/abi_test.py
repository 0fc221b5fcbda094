"""kvkeep/_abi.py against the headers of the C ABI as the C compiler sees them: every struct, field,
function and number.

    abi_test.py SOURCES LIBRARY
"""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SOURCES, LIBRARY = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path.insert(0, str(SOURCES / "client" / "python"))

from kvkeep import _abi, calls, kv, watch  # noqa: E402

C = SOURCES / "client" / "c"
LAST = ("kvkeep_kv.h", "kvkeep_pin.h", "kvkeep_watch.h")  # which include the others
TEXT = "".join((C / name).read_text() for name in ("kvkeep.h", "kvkeep_gpu.h", *LAST))


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def structs():
    """Returns our type for the header's name. A const buffer is a buffer to us."""
    return {"kvkeep_" + snake(name): kind for name, kind in vars(_abi).items()
            if isinstance(kind, type) and issubclass(kind, ctypes.Structure)}


def ask_the_compiler(expressions):
    lines = "\n".join(f'printf("%zu\\n", (size_t)({expression}));' for expression in expressions)
    headers = "".join(f"#include <{name}>\n" for name in ("stddef.h", "stdio.h", *LAST))
    text = (f"{headers}int main(void) {{\n{lines}\nreturn 0;\n}}\n")
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "ask.c"), pathlib.Path(folder, "ask")
        source.write_text(text, encoding="utf-8")
        subprocess.run(["cc", f"-I{C}", source, "-o", program], check=True)
        done = subprocess.run([program], check=True, capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


class AbiTest(unittest.TestCase):
    def test_structs_have_the_headers_layout(self):
        asked, ours = [], []
        for name, kind in structs().items():
            asked.append(f"sizeof({name})")
            ours.append(ctypes.sizeof(kind))
            for field, _ in kind._fields_:
                asked.append(f"offsetof({name}, {field})")
                ours.append(getattr(kind, field).offset)
        self.assertGreater(len(asked), 150)
        for expression, theirs, mine in zip(asked, ask_the_compiler(asked), ours):
            self.assertEqual(theirs, mine, expression)

    def test_every_struct_of_the_header_is_there(self):
        declared = set(re.findall(r"^\} (kvkeep_\w+);$", TEXT, re.MULTILINE))
        enums = set(re.findall(r"typedef enum (kvkeep_\w+)", TEXT))
        self.assertEqual(declared - enums - {"kvkeep_const_buffer"}, set(structs()))

    def test_numbers_are_the_headers(self):
        named = {f"KVKEEP_GET_{status.name}": status for status in calls.GetStatus}
        named |= {f"KVKEEP_PUT_{status.name}": status for status in calls.PutStatus}
        named |= {f"KVKEEP_KV_{form.name}": form for form in kv.KvFormat}
        named |= {f"KVKEEP_KV_ORDER_{order.name}": order for order in kv.KvOrder}
        named |= {"KVKEEP_ABI_VERSION": _abi.ABI_VERSION, "KVKEEP_IN_G2": calls.Found.IN_G2,
                  "KVKEEP_IN_G3": calls.Found.IN_G3,
                  "KVKEEP_MAX_METADATA_BYTES": _abi.MAX_METADATA_BYTES,
                  "KVKEEP_LEASE_LEADING_RUN": 1, "KVKEEP_LEASE_ALL_PRESENT": 2,
                  "KVKEEP_GET_TRANSIENT": 1, "KVKEEP_GET_NO_VERIFY": 2, "KVKEEP_PUT_DURABLE": 1,
                  "KVKEEP_PUT_TRANSIENT": 2, "KVKEEP_PUT_NO_G3": 4, "KVKEEP_PUT_CHECKSUM": 8,
                  "KVKEEP_ACQUIRE_ALL_PRESENT": 1, "KVKEEP_ACQUIRE_TRANSIENT": 2,
                  "KVKEEP_GPU_REUSED": 1,
                  **{f"KVKEEP_WATCH_{begin.name}": begin for begin in watch.Begin},
                  "KVKEEP_PATH_AUTO": 0, "KVKEEP_PATH_GRPC": 1, "KVKEEP_PATH_LOCAL": 2}
        self.assertEqual(ask_the_compiler(named), [int(value) for value in named.values()])

    def test_every_function_is_declared_or_left_out_on_purpose(self):
        text = re.sub(r"//.*", "", TEXT)
        header = set(re.findall(r"\bkvkeep_(\w+)\(", text))
        ours = set(_abi._FUNCTIONS) | set(_abi._CALLS) | {f"{name}_async" for name in _abi._CALLS}
        self.assertEqual(ours - header, set())
        # The package leaves these out: an event loop waits for a queue; a release in the background
        # is enough; the daemon has verified what is acquired.
        self.assertEqual(header - ours, {"queue_wait", "release", "release_async",
                                         "acquired_verify", "get_server_info_async"})
        _abi.load()

    def test_every_timeout_fits(self):
        self.assertEqual([calls.milliseconds(seconds) for seconds in
                          (None, -1, 0, 0.25, 1e9, float("inf"))],
                         [0, 1, 1, 250, 2 ** 32 - 1, 2 ** 32 - 1])

    def test_a_library_that_is_too_old_or_too_new_is_named(self):
        for body, words in (
                ("unsigned kvkeep_abi_version(void) { return 1; }",
                 r"other\.so: has no kvkeep_\w+: it is older"),
                ("unsigned kvkeep_abi_version(void) { return 99; }", r"other\.so: ABI 99, "),
                ("int none;", r"other\.so: has no kvkeep_abi_version")):
            with tempfile.TemporaryDirectory() as folder:
                source, library = pathlib.Path(folder, "other.c"), pathlib.Path(folder, "other.so")
                source.write_text(body, encoding="utf-8")
                subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
                with unittest.mock.patch.dict(os.environ, KVKEEP_CLIENT_LIBRARY=str(library)):
                    with self.assertRaisesRegex(OSError, words):
                        _abi.load()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
