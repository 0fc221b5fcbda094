#!/usr/bin/env python3
"""deploy/kubernetes, docker and compose against the API's schema, the daemon and each other.

    containers_check.py --root SOURCES --bin FOLDER_OF_BINARIES --tools FOLDER

The schemas are those inside PyPI's kubernetes-validate, which goes into a virtual environment in
--tools the first time. Checks that cannot run (no PyPI, no kubectl, no PyYAML) are skipped with a
message.
"""

import argparse
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
    import memory_rule
except ImportError:
    yaml = None

ROOT = BIN = TOOLS = None
VALIDATOR = "kubernetes-validate==1.37.0"
VERSIONS = ("1.30.0", "1.37.0")  # Kubernetes versions: the oldest that is supported, the newest
WITHOUT_PRIVILEGE = ("base", "node-arena")
ALL = WITHOUT_PRIVILEGE + ("node-arena-by-pod",)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)


def setUpModule():
    if yaml is None:
        raise unittest.SkipTest("no PyYAML here")


def kubernetes():
    return ROOT / "deploy" / "kubernetes"


def gib(text):
    return int(re.fullmatch(r"(\d+)(?:Gi?|GiB)", text).group(1)) << 30


def patched(document, operations):
    """Applies RFC 6902, as far as the overlays use it."""
    for operation in operations:
        *path, last = operation["path"].strip("/").split("/")
        there = document
        for word in path:
            there = there[int(word) if isinstance(there, list) else word]
        if isinstance(there, list):
            index = int(last)
            there[index:index + (operation["op"] == "replace")] = [operation["value"]]
        else:
            assert operation["op"] == "add" or last in there, operation
            there[last] = operation["value"]
    return document


def rendered(folder):
    """Returns `kubectl kustomize`'s output for a folder; a generated ConfigMap keeps its name."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    documents = []
    for name in kustomization["resources"]:
        path = (folder / name).resolve()
        documents += rendered(path) if path.is_dir() else list(
            yaml.safe_load_all(path.read_text()))
    for generator in kustomization.get("configMapGenerator", []):
        data = {name: (folder / name).read_text() for name in generator["files"]}
        documents.append({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                          "metadata": {"name": generator["name"]}})
    for patch in kustomization.get("patches", []):
        (target,) = [document for document in documents
                     if document["kind"] == patch["target"]["kind"]]
        patched(target, yaml.safe_load((folder / patch["path"]).read_text()))
    for document in documents:
        if document["kind"] != "Namespace":
            document["metadata"]["namespace"] = kustomization["namespace"]
    text = json.dumps(documents)
    for image in kustomization.get("images", []):
        new = f"{image['newName']}:{image['newTag']}"
        text = text.replace(f'"image": "{image["name"]}"', f'"image": "{new}"')
    return json.loads(text)


def of_kind(documents, kind):
    (document,) = [one for one in documents if one["kind"] == kind]
    return document


def pod_of(documents):
    return of_kind(documents, "DaemonSet")["spec"]["template"]["spec"]


class Schema(unittest.TestCase):
    def validator(self):
        program = TOOLS / "bin" / "kubernetes-validate"
        if not program.exists():
            made = run(sys.executable, "-m", "venv", TOOLS)
            done = made if made.returncode != 0 else run(
                TOOLS / "bin" / "pip", "install", "--quiet", "--retries", "1", VALIDATOR)
            if done.returncode != 0:
                self.skipTest(f"{VALIDATOR} cannot be had: {(done.stdout + done.stderr)[-200:]}")
        return program

    def problems(self, documents, version):
        program = self.validator()
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump_all(documents, file)
            file.flush()
            done = run(program, "--strict", "--quiet", "-k", version, file.name)
        return "" if done.returncode == 0 else done.stdout + done.stderr + "failed"

    def test_all_manifests_are_the_apis(self):
        manifests = {name: rendered(kubernetes() / name) for name in ALL}
        manifests["engine"] = [yaml.safe_load((kubernetes() / "engine.yaml").read_text())]
        for name, documents in manifests.items():
            for version in VERSIONS:
                with self.subTest(manifest=name, kubernetes=version):
                    self.assertEqual(self.problems(documents, version), "")

    def test_the_check_above_can_fail(self):
        documents = rendered(kubernetes() / "base")
        pod_of(documents)["containers"][0]["readinesProbe"] = {}
        self.assertIn("readinesProbe", self.problems(documents, VERSIONS[-1]))

    def test_kustomize_makes_of_them_what_is_checked_here(self):
        if shutil.which("kubectl") is None:
            self.skipTest("no kubectl here")
        for name in ALL + ("monitoring",):
            with self.subTest(manifest=name):
                done = run("kubectl", "kustomize", kubernetes() / name)
                self.assertEqual(done.returncode, 0, done.stderr)
                plain = re.sub(r"\bkvkeep-[a-z0-9]{10}\b", "kvkeep", done.stdout)
                theirs = list(yaml.safe_load_all(plain))
                ours = rendered(kubernetes() / name)
                self.assertCountEqual(theirs, ours)


class Pod(unittest.TestCase):
    def setUp(self):
        self.documents = {name: rendered(kubernetes() / name) for name in ALL}
        self.base = self.documents["base"]
        self.pod = pod_of(self.base)
        (self.daemon,) = self.pod["containers"]
        self.text = of_kind(self.base, "ConfigMap")["data"]["kvkeep.yaml"]
        self.config = yaml.safe_load(self.text)

    def test_no_container_has_more_than_it_needs(self):
        for name in ALL:
            pod = pod_of(self.documents[name])
            self.assertFalse([key for key in pod if key.startswith("host")])
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertEqual(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
            for container in pod["initContainers"] + pod["containers"]:
                context = container["securityContext"]
                with self.subTest(manifest=name, container=container["name"]):
                    self.assertEqual(container["image"], "IMAGE:TAG")
                    if (name, container["name"]) == ("node-arena-by-pod", "mount"):
                        self.assertTrue(context["privileged"])
                        continue
                    self.assertNotIn("privileged", context)
                    self.assertFalse(context["allowPrivilegeEscalation"])
                    self.assertTrue(context["readOnlyRootFilesystem"])
                    self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                    self.assertEqual(context["capabilities"].get("add", []),
                                     ["CHOWN"] if container["name"] == "folders" else [])
                    self.assertNotIn("hostPort", json.dumps(container))
                    self.assertIn("memory", container["resources"]["limits"])
            self.assertTrue(pod["containers"][0]["securityContext"]["runAsNonRoot"])

    def test_the_daemons_file_is_a_good_one(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(self.text)
            file.flush()
            done = run(BIN / "kvkeepd", "--check-config", file.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        (mount,) = [one for one in self.daemon["volumeMounts"] if one["name"] == "config"]
        self.assertEqual(self.daemon["command"],
                         ["kvkeepd", "--config", f"{mount['mountPath']}/kvkeep.yaml"])

    def test_the_arena_is_mounted_twice_once_read_only(self):
        for name in ALL:
            pod = pod_of(self.documents[name])
            mounts = {one["mountPath"]: one for one in pod["containers"][0]["volumeMounts"]}
            writable = mounts[self.config["g2"]["arena_dir"]]
            readonly = mounts[self.config["g2"]["arena_readonly_dir"]]
            self.assertEqual((writable["name"], writable["subPath"]), (readonly["name"],
                                                                      readonly["subPath"]))
            self.assertTrue(readonly.get("readOnly"))
            self.assertFalse(writable.get("readOnly", False))
        volumes = {one["name"]: one for one in self.pod["volumes"]}
        sizes = [volumes["arena"]["emptyDir"]["sizeLimit"]]
        script = pod_of(self.documents["node-arena-by-pod"])["initContainers"][0]["command"][-1]
        sizes.append(re.search(r"size=(\d+G)", script).group(1))
        for size in sizes:
            self.assertGreater(gib(size), gib(self.config["g2"]["capacity"]) * 1.002)
        unit = (ROOT / "deploy/systemd/var-lib-kvkeep-arena-rw.mount").read_text()
        where = re.search(r"^Where=(.*)/rw$", unit, re.MULTILINE).group(1)
        node = {one["name"]: one for one in pod_of(self.documents["node-arena"])["volumes"]}
        self.assertEqual(node["arena"]["hostPath"]["path"], where)

    def test_the_memory_limit_is_enough_for_all_that_the_config_lets_it_use(self):
        wanted = memory_rule.needed(BIN, self.text)
        for name in ALL:
            resources = pod_of(self.documents[name])["containers"][0]["resources"]
            with self.subTest(manifest=name):
                self.assertGreaterEqual(gib(resources["limits"]["memory"]), wanted)
                self.assertEqual(resources["requests"]["memory"], resources["limits"]["memory"])
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(self.text)
            file.flush()
            done = run(BIN / "kvkeep", "--json", "doctor", "--config", file.name)
        findings = {one["subject"]: one["found"] for one in json.loads(done.stdout)["findings"]}
        self.assertIn(f"may use up to {wanted / (1 << 30):.1f} GiB", findings["memory limit"])

    def test_no_engine_is_given_the_admin_socket_with_its_tenants(self):
        default = yaml.safe_load(run(BIN / "kvkeepd", "--print-default-config").stdout)
        listen = {**default["listen"], **self.config["listen"]}
        admin = pathlib.PurePath(listen["admin"])
        for name in ALL:
            pod = pod_of(self.documents[name])
            mounts = {one["mountPath"]: one for one in pod["containers"][0]["volumeMounts"]}
            volumes = {one["name"]: one for one in pod["volumes"]}
            with self.subTest(manifest=name):
                # A folder of the pod's own, not of the node: no other pod can mount it.
                own = mounts[str(admin.parent)]
                self.assertIn("emptyDir", volumes[own["name"]])
                script = {one["name"]: one for one in pod["initContainers"]}["folders"]
                self.assertRegex(script["command"][-1], r"mkdir -p -m 0700 .*/admin/socket\n")
                self.assertEqual(own["subPath"], "socket")
                for socket in (listen["unix"], listen["local"]):
                    folder = pathlib.PurePath(socket).parent
                    self.assertIn("hostPath", volumes[mounts[str(folder)]["name"]])
                    self.assertFalse(admin.is_relative_to(folder))
        # Run by hand, to try it.
        readme = (ROOT / "deploy/README.md").read_text()
        self.assertIn(f"--tmpfs {admin.parent}:mode=0700,uid=64000,gid=64000", readme)
        compose = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())
        (tmpfs,) = compose["services"]["kvkeep"]["tmpfs"]
        self.assertTrue(tmpfs.startswith(f"{admin.parent}:mode=0700,uid=64000,gid=64000"), tmpfs)

    def test_all_that_the_daemon_writes_to_is_a_mount(self):
        paths = [self.config["state"]["dir"], self.config["g3"]["paths"][0]["dir"],
                 self.config["g2"]["arena_dir"], "/run/kvkeep/kvkeep.sock",
                 "/run/kvkeep-admin/admin.sock"]
        writable = [one["mountPath"] for one in self.daemon["volumeMounts"]
                    if not one.get("readOnly")]
        for path in paths:
            self.assertTrue(any((path + "/").startswith(mount + "/") for mount in writable), path)
        for name in ALL:
            pod = pod_of(self.documents[name])
            used = {mount["name"] for container in pod["containers"] + pod["initContainers"]
                    for mount in container["volumeMounts"]}
            self.assertEqual(used, {volume["name"] for volume in pod["volumes"]})

    def test_probes_and_scrapes_ask_the_port_that_the_daemon_opens(self):
        port = self.config["metrics"]["listen"].rpartition(":")[2]
        (named,) = self.daemon["ports"]
        self.assertEqual(str(named["containerPort"]), port)
        paths = {kind: self.daemon[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness",
                                                                           "liveness")}
        self.assertEqual({kind: one["path"] for kind, one in paths.items()}, {
            "startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"})
        self.assertEqual({one["port"] for one in paths.values()}, {named["name"]})
        pod_monitor = yaml.safe_load((kubernetes() / "monitoring/podmonitor.yaml").read_text())
        (endpoint,) = pod_monitor["spec"]["podMetricsEndpoints"]
        self.assertEqual((endpoint["port"], endpoint["path"]), (named["name"], "/metrics"))
        labels = of_kind(self.base, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
        policy = of_kind(self.base, "NetworkPolicy")["spec"]
        for selector in (pod_monitor["spec"]["selector"], policy["podSelector"]):
            self.assertEqual(selector["matchLabels"], labels)
        self.assertEqual(str(policy["ingress"][0]["ports"][0]["port"]), port)

    def test_an_engine_reaches_what_the_daemon_listens_on(self):
        engine = yaml.safe_load((kubernetes() / "engine.yaml").read_text())["spec"]
        (container,), (volume,) = engine["containers"], engine["volumes"]
        self.assertIn(container["securityContext"]["runAsUser"],
                      self.config["listen"]["allowed_uids"])
        run_volume = {one["name"]: one for one in self.pod["volumes"]}["run"]
        self.assertEqual(volume["hostPath"]["path"], run_volume["hostPath"]["path"])
        self.assertEqual(container["env"][0]["value"],
                         f"unix://{container['volumeMounts'][0]['mountPath']}/kvkeep.sock")


class Image(unittest.TestCase):
    def setUp(self):
        text = (ROOT / "deploy/docker/Dockerfile").read_text()
        text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
        self.lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]

    def words(self, instruction):
        return [rest for word, rest in self.lines if word == instruction]

    def test_it_runs_as_a_user_by_number_and_is_watched_by_the_cli(self):
        (user,) = self.words("USER")
        manifest = pod_of(rendered(kubernetes() / "base"))["containers"][0]["securityContext"]
        self.assertEqual(user, str(manifest["runAsUser"]))
        self.assertIn(f"useradd --system --uid {user} ", " ".join(self.words("RUN")))
        check = self.words("HEALTHCHECK")[0].partition("CMD ")[2]
        command = shlex.split(check.strip("[]").replace(",", " "))
        self.assertEqual(command[0], "kvkeep")
        done = run(BIN / command[0], *command[1:], "--help")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_nothing_is_fetched_but_from_debian_and_what_it_copies_is_there(self):
        self.assertEqual(self.words("FROM"), ["debian:12 AS build", "debian:12-slim"])
        self.assertEqual(self.words("ADD"), [])
        for copied in self.words("COPY"):
            self.assertTrue((ROOT / copied.split()[0]).exists(), copied)
        for line in self.words("RUN"):
            self.assertNotRegex(line, r"\b(curl|wget|pip)\b")
            if "apt-get install" in line:
                self.assertIn("--no-install-recommends", line)
                self.assertIn("rm -rf /var/lib/apt/lists/*", line)
        for words in re.findall(r"(?:^|\s)/src/(tools/\S+ \S+)", " ".join(self.words("RUN"))):
            program, option = words.split()
            self.assertIn(f"{option})", (ROOT / program).read_text())


class Compose(unittest.TestCase):
    def setUp(self):
        self.folder = ROOT / "deploy/compose"
        self.compose = yaml.safe_load((self.folder / "compose.yaml").read_text())
        self.services = self.compose["services"]

    def test_every_file_that_is_mounted_is_there_and_every_volume_is_declared(self):
        for name, service in self.services.items():
            for source in (volume.split(":")[0] for volume in service.get("volumes", [])):
                with self.subTest(service=name, source=source):
                    if source.startswith("."):
                        self.assertTrue((self.folder / source).is_file())
                    else:
                        self.assertIn(source, self.compose["volumes"])
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), port)
        build = self.services["kvkeep"]["build"]
        self.assertEqual((self.folder / build["context"]).resolve(), ROOT)
        self.assertTrue((ROOT / build["dockerfile"]).is_file())

    def test_the_daemon_has_no_more_than_it_needs_and_takes_its_environment(self):
        service = self.services["kvkeep"]
        self.assertTrue(service["read_only"])
        self.assertEqual(service["cap_drop"], ["ALL"])
        config = ROOT / "deploy/config/kvkeep.yaml"
        done = run(BIN / "kvkeepd", "--check-config", config, env=service["environment"])
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run(BIN / "kvkeepd", "--check-config", config,
                   env={"KVKEEP_METRICS_LISTEN": "nowhere"})
        self.assertNotEqual(done.returncode, 0, "the check above cannot fail")

    def test_prometheus_scrapes_the_daemon_by_rules_that_are_mounted(self):
        if shutil.which("promtool") is None:
            self.skipTest("no promtool here")
        file = self.folder / "prometheus.yaml"
        done = run("promtool", "check", "config", "--syntax-only", file)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        config = yaml.safe_load(file.read_text())
        listen = self.services["kvkeep"]["environment"]["KVKEEP_METRICS_LISTEN"]
        (scraped,) = config["scrape_configs"]
        self.assertEqual(scraped["static_configs"][0]["targets"],
                         [f"kvkeep:{listen.rpartition(':')[2]}"])
        mounted = [volume.split(":")[1] for volume in self.services["prometheus"]["volumes"]]
        self.assertLessEqual(set(config["rule_files"]), set(mounted))


def main():
    global ROOT, BIN, TOOLS
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--root", "--bin", "--tools"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    ROOT, BIN, TOOLS = (path.resolve() for path in (arguments.root, arguments.bin,
                                                    arguments.tools))
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
