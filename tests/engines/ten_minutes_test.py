#!/usr/bin/env python3
"""The ten minutes of README.md's section "Engines": its commands, as they stand there, in order.

    ten_minutes_test.py --root SOURCES --build build/release [--wheel FILE]

It needs the environment of tests/engines/venv vllm, and root with namespaces: the commands run in a
mount and network namespace of their own, with no daemon, no config and a free port 8000. Exit 77,
skipped: one of these is not there. Without --wheel the wheel is packed from BUILD, so it runs on
this machine only; tests/deploy/wheel_check.py checks what tools/wheel makes.

Replaced are MODEL, by a random-weight Llama, and `vllm`, by a script that starts the real one with
the arguments that a CPU needs (vllm_engine.py). About three minutes.
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
IN_NAMESPACE = "--in-namespace"
SKIPPED = 77
STARTS_WITHIN_S, ENDS_WITHIN_S = 600, 120
CPU_BYTES = 64 << 20
# Small, as other tests run beside it; up_test and wheel_check have `up` write one.
CONFIG = """
g2: {capacity: 256MiB, segment_bytes: 64MiB}
g3: {paths: []}
metrics: {listen: ""}
"""
VLLM = """#!{python}
import json, sys
sys.path.insert(0, {here!r})
import vllm_engine
flag = sys.argv.index("--kv-transfer-config") + 1
connector = json.loads(sys.argv[flag])
connector["kv_connector_extra_config"].update(
    spec_name="HostSpec", spec_module_path="vllm_on_cpu", cpu_bytes_to_use={cpu_bytes})
sys.argv[flag] = json.dumps(connector)
sys.argv += vllm_engine.as_flags(vllm_engine.ARGUMENTS)
if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main
    main()
"""


def commands(page):
    """Returns (the commands before vLLM, the one that starts it, those of the other terminal)."""
    section = page.partition("\n## Engines\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    found = re.fullmatch(r"(.+\n)(vllm serve .+\n)# In another terminal: .+?\n(.+)", block,
                         re.DOTALL)
    assert found, f"README.md's section Engines has other commands now:\n{block}"
    return found.groups()


def pack(root, build, folder):
    """Makes a wheel of this build, which has what a wheel of tools/wheel has but libraries."""
    project = (root / "client" / "python" / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"$', project, re.MULTILINE).group(1)
    scripts = re.search(r"^\[project\.scripts\]\n(.+?)\n\n", project, re.MULTILINE | re.DOTALL)
    package, info = root / "client" / "python" / "kvkeep", f"kvkeep-{version}.dist-info"
    files = {f"kvkeep/{path.name}": path.read_bytes() for path in package.glob("*.py")}
    for name in ("bin/kvkeepd", "bin/kvkeep", "lib/libkvkeep-client.so.1"):
        files[f"kvkeep/{name}"] = (build / name).read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: kvkeep\nVersion: {version}\n".encode())
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = (
        "[console_scripts]\n" + scripts.group(1).replace('"', "") + "\n").encode()
    record = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    wheel = folder / f"kvkeep-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, content in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = (stat.S_IFREG | 0o755) << 16
            packed.writestr(member, content)
    return wheel


def _digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


class Terminal:
    """A folder with the wheel, and an environment of Python's that has what vLLM's has."""

    def __init__(self, folder, engine):
        self.folder = folder
        subprocess.run([engine, "-m", "venv", folder / "venv"], check=True)
        packages = "lib/python{}.{}/site-packages".format(*sys.version_info[:2])
        (folder / "venv" / packages / "engine.pth").write_text(
            f"import site; site.addsitedir({str(engine.parents[1] / packages)!r})\n",
            encoding="utf-8")
        (info,) = (engine.parents[1] / packages).glob("vllm-*.dist-info")
        (folder / "venv" / packages / info.name).symlink_to(info)  # where `kvkeep up` looks
        vllm = folder / "venv" / "bin" / "vllm"
        vllm.write_text(VLLM.format(python=folder / "venv" / "bin" / "python", here=str(HERE),
                                    cpu_bytes=CPU_BYTES), encoding="utf-8")
        vllm.chmod(0o755)
        sys.path.insert(0, str(HERE))
        import engine_process
        import vllm_engine
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KVKEEP")},
            **vllm_engine.ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "VLLM_WORKER_MULTIPROCESSING_METHOD": "fork",
            "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
        self.model, self.log = folder / "model", folder / "vllm.log"
        engine_process.make_model(self.model)
        engine_process.make_tokenizer(self.model, 1000)

    def run(self, lines):
        """Runs them, and prints and returns what they say."""
        done = subprocess.run(["bash", "-ec", lines.replace("MODEL", str(self.model))],
                              cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
                              text=True, check=False)
        print(lines + done.stdout, flush=True)
        assert done.returncode == 0, f"exit status {done.returncode}"
        return done.stdout

    def serve(self, line):
        """Starts vLLM. Returns its process once it serves."""
        log = self.log
        with open(log, "w", encoding="utf-8") as said:
            process = subprocess.Popen(
                ["bash", "-c", "exec " + line.replace("MODEL", str(self.model))], cwd=self.folder,
                env=self.environment, stdout=said, stderr=said)
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not _is_healthy():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-6000:]
            time.sleep(0.2)
        return process

    def chunks(self):
        """Returns how many chunks the daemon has."""
        said = subprocess.run(["kvkeep", "--json", "status"], env=self.environment, check=True,
                              stdout=subprocess.PIPE).stdout
        return json.loads(said)["g2"]["chunks"]


def _is_healthy():
    try:
        with urllib.request.urlopen("http://localhost:8000/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def asked_of(terminal, serve, ask):
    """Starts vLLM, asks it, and ends it. Returns (the text of its answer, the status' hits)."""
    process = terminal.serve(serve)
    try:
        said = terminal.run(ask)
        answer, end = json.JSONDecoder().raw_decode(said)
        tiers = [line.split() for line in re.findall(r"^G[23] .+$", said[end:], re.MULTILINE)]
        deadline = time.monotonic() + 60
        while not terminal.chunks():  # vLLM stores after its answers
            assert time.monotonic() < deadline, "vLLM has stored nothing"
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(ENDS_WITHIN_S)
    return answer["choices"][0]["text"], sum(int(tier[-2]) for tier in tiers)


def ten_minutes(asked, folder):
    began = time.monotonic()
    before, serve, ask = commands((asked.root / "README.md").read_text(encoding="utf-8"))
    wheel = shutil.copy(asked.wheel, folder) if asked.wheel else pack(asked.root, asked.build,
                                                                      folder)
    terminal = Terminal(folder, pathlib.Path(sys.executable))
    try:
        assert "--kv-transfer-config" in terminal.run(before), "`up` prints no flag"
        first, hits = asked_of(terminal, serve, ask)
        assert hits == 0, f"{hits} hits before anything was kept"
        again, hits = asked_of(terminal, serve, ask)
        assert again == first, (first, again)
        assert hits > 0, ("a new vLLM has asked for the same prompt, and nothing was found:\n" +
                          terminal.log.read_text()[-20000:])
        print(f"{pathlib.Path(wheel).name}: {hits} hits after {time.monotonic() - began:.0f} s")
    finally:
        subprocess.run(["kvkeep", "down"], env=terminal.environment, check=False)


def in_namespace(asked):
    """Hides the machine's own daemon and files from the commands, and port 8000."""
    sys.path.insert(0, str(HERE.parent / "deploy"))
    import installed_root

    installed_root.raise_loopback()
    for path in ("/run", "/var/lib", "/var/cache", "/var/log",
                 asked.in_namespace / "layers"):
        installed_root.mount("tmpfs", pathlib.Path(path), "tmpfs", data="mode=0755")
    upper, work = (asked.in_namespace / "layers" / kind for kind in ("upper", "work"))
    upper.mkdir()
    work.mkdir()
    installed_root.overlay("/etc", upper, work, pathlib.Path("/etc"))
    config = pathlib.Path("/etc/kvkeep/kvkeep.yaml")
    config.parent.mkdir(exist_ok=True)
    config.write_text(CONFIG, encoding="utf-8")
    (asked.in_namespace / "user").mkdir()
    ten_minutes(asked, asked.in_namespace / "user")


def skip(why):
    print(f"skipped: THE TEN MINUTES WERE NOT TESTED: {why}")
    sys.exit(SKIPPED)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--root", "--build"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    parser.add_argument("--wheel", type=pathlib.Path)
    parser.add_argument(IN_NAMESPACE, type=pathlib.Path, help="for this script's own use")
    asked = parser.parse_args()
    if asked.in_namespace is not None:
        return in_namespace(asked)
    made = subprocess.run(["timeout", "240", HERE / "venv", "--made", "vllm"], text=True,
                          stdout=subprocess.PIPE, check=False)
    if made.returncode != 0:
        skip("vLLM from PyPI is not there (build/engines/vllm.log, in CI)")
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0 or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        skip("namespaces of root are not permitted here")
    with tempfile.TemporaryDirectory() as holder:
        words = ["--root", asked.root.resolve(), "--build", asked.build.resolve()]
        words += ["--wheel", asked.wheel.resolve()] if asked.wheel else []
        return subprocess.run([*unshare, made.stdout.splitlines()[-1], "-B", __file__, *words,
                               IN_NAMESPACE, holder], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
