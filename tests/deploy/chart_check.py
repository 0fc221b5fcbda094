#!/usr/bin/env python3
"""deploy/helm beside the kustomization, and the recipes for other stacks.

    chart_check.py --root SOURCES --bin FOLDER_OF_BINARIES --tools FOLDER [--upstream FOLDER]

The chart, rendered by helm, must be what containers_check.py holds to the daemon: the output of
kustomize. helm comes from PATH, or from build/go: `GOBIN=$PWD/build/go go install
helm.sh/helm/v3/cmd/helm@v3.22.0`. Without it the comparison is skipped, and the output says so.
A recipe is held to the README's flags, to deploy/kubernetes/engine.yaml and to Kubernetes' schema.
--upstream names a folder with checkouts of production-stack and kserve, whose own chart and CRD
then judge the recipes; CI has none.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import containers_check
from containers_check import kubernetes, of_kind, pod_of, rendered, run

try:
    import yaml
except ImportError:
    yaml = None

ROOT = UPSTREAM = None
KINDS = {"pod": "base", "node": "node-arena", "node-by-pod": "node-arena-by-pod"}
IMAGE = ("--set", "image.repository=IMAGE", "--set", "image.tag=TAG")


def setUpModule():
    if yaml is None:
        raise unittest.SkipTest("no PyYAML here")


def chart():
    return ROOT / "deploy" / "helm" / "kvkeep"


def helm():
    built = ROOT / "build" / "go" / "helm"
    found = shutil.which("helm") or (str(built) if built.exists() else None)
    if found is None:
        raise unittest.SkipTest("no helm here: see the beginning of chart_check.py")
    return found


def templates(path, *words):
    """Returns what helm makes of a chart."""
    done = run(helm(), "template", "kvkeep", path, "--namespace", "kvkeep", "--kube-version",
               containers_check.VERSIONS[0], *words)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def plain(documents):
    """Returns them with the generated names of ConfigMaps as kustomize was given them."""
    return json.loads(re.sub(r"\bkvkeep-[a-z0-9]{10}\b", "kvkeep", json.dumps(documents)))


class Chart(unittest.TestCase):
    maxDiff = None

    def test_it_is_the_kustomization_in_each_of_its_forms(self):
        for kind, folder in KINDS.items():
            with self.subTest(kind=kind):
                ours = plain(templates(chart(), *IMAGE, "--set", f"arena.kind={kind}"))
                # The release's namespace is there before the chart.
                theirs = [one for one in rendered(kubernetes() / folder)
                          if one["kind"] != "Namespace"]
                key = lambda one: one["kind"]  # noqa: E731
                self.assertEqual(sorted(ours, key=key), sorted(theirs, key=key))

    def test_with_a_pod_monitor_it_is_the_one_of_monitoring(self):
        ours = of_kind(templates(chart(), *IMAGE, "--set", "podMonitor=true"), "PodMonitor")
        self.assertEqual(ours, of_kind(rendered(kubernetes() / "monitoring"), "PodMonitor"))

    def test_another_config_is_another_name_so_that_pods_are_replaced(self):
        names = {of_kind(templates(chart(), *IMAGE, "--set", f"config={config}"),
                         "ConfigMap")["metadata"]["name"] for config in ("a", "b", "a")}
        self.assertEqual(len(names), 2)

    def test_two_drives_are_in_every_place(self):
        documents = templates(chart(), *IMAGE, "--set-json", "drives=" + json.dumps(
            [{"name": "a", "hostPath": "/mnt/a"}, {"name": "b", "hostPath": "/mnt/b"}]))
        pod = pod_of(documents)
        for name in "ab":
            self.assertIn({"name": name, "hostPath": {"path": f"/mnt/{name}", "type": "Directory"}},
                          pod["volumes"])
            for container in pod["containers"] + pod["initContainers"]:
                self.assertIn({"name": name, "mountPath": f"/{name}"}, container["volumeMounts"])
        self.assertIn("mkdir -p -m 0700 /state/kvkeep /a/kvkeep /b/kvkeep /admin/socket\n",
                      pod["initContainers"][0]["command"][-1])

    def test_wrong_values_are_refused_by_name(self):
        for words, what in ((("--set", "aren.kind=pod"), "aren"),
                            (("--set", "arena.kind=disk"), "kind"),
                            (("--set", "arena.size=lots"), "size"),
                            (("--set", "drives[0].hostPath=mnt"), "hostPath"),
                            (("--set", "image.repository="), "image.repository")):
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, what):
                templates(chart(), *IMAGE, *words)

    def test_its_config_is_the_kustomizations_and_each_value_has_a_schema(self):
        values = yaml.safe_load((chart() / "values.yaml").read_text())
        self.assertEqual(values["config"], (kubernetes() / "base/kvkeep.yaml").read_text())
        schema = json.loads((chart() / "values.schema.json").read_text())
        self.assertFalse(schema["additionalProperties"])
        self.assertEqual(set(values) | {"global"}, set(schema["properties"]))


def flag():
    """Returns the configuration that README.md gives vLLM."""
    text = re.search(r"--kv-transfer-config '(.*?)'\n", (ROOT / "README.md").read_text(),
                     re.DOTALL).group(1)
    return json.loads(text)


def said(words):
    """Returns the configuration in vLLM's arguments."""
    return json.loads(words[words.index("--kv-transfer-config") + 1])


def recipe(name):
    return yaml.safe_load((kubernetes() / "recipes" / name).read_text())


def production_stack():
    """Returns (container, volumes) as the chart makes them of the values."""
    spec = recipe("production-stack.yaml")["servingEngineSpec"]
    (model,) = spec["modelSpec"]
    return {"name": "vllm", "image": f"{model['repository']}:{model['tag']}", "env": model["env"],
            "args": model["vllmConfig"]["extraArgs"], "volumeMounts": model["extraVolumeMounts"],
            "securityContext": spec["containerSecurityContext"]}, model["extraVolumes"]


def kserve():
    pod = recipe("kserve.yaml")["spec"]["template"]
    (container,) = pod["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    words = shlex.split(environment["VLLM_ADDITIONAL_ARGS"])  # as the shell of KServe's template
    return {**container, "args": words}, pod["volumes"]


def llm_d():
    pod = recipe("llm-d/decode.yaml")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return container, pod["volumes"]


def with_component(component, document):
    """Returns what kustomize makes of a document and a component."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        (folder / "document.yaml").write_text(yaml.safe_dump(document))
        (folder / "kustomization.yaml").write_text(yaml.safe_dump({
            "resources": ["document.yaml"],
            "components": [os.path.relpath(component.resolve(), folder)]}))
        done = run("kubectl", "kustomize", folder)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


RECIPES = {"production-stack": production_stack, "kserve": kserve, "llm-d": llm_d}


class Recipes(containers_check.Schema):
    """Schema's own tests run in containers_check.py."""

    test_all_manifests_are_the_apis = test_the_check_above_can_fail = None
    test_kustomize_makes_of_them_what_is_checked_here = None

    def test_each_file_is_one_of_a_recipe_that_is_checked(self):
        files = {path.relative_to(kubernetes() / "recipes").parts[0].removesuffix(".yaml")
                 for path in (kubernetes() / "recipes").rglob("*.yaml")}
        self.assertEqual(files, set(RECIPES))

    def test_an_engine_gets_the_flag_the_socket_and_the_user_of_an_engine(self):
        engine = yaml.safe_load((kubernetes() / "engine.yaml").read_text())["spec"]
        (wanted,) = engine["containers"]
        for name, read in RECIPES.items():
            with self.subTest(recipe=name):
                container, volumes = read()
                self.assertEqual(said(container["args"]), flag())
                self.assertEqual(container["securityContext"], wanted["securityContext"])
                self.assertEqual(container["volumeMounts"], wanted["volumeMounts"])
                self.assertEqual(volumes, engine["volumes"])
                self.assertIn(wanted["env"][0], container["env"])

    def test_its_parts_are_kubernetes(self):
        for name, read in RECIPES.items():
            container, volumes = read()
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                   "spec": {"containers": [container], "volumes": volumes}}
            for version in containers_check.VERSIONS:
                with self.subTest(recipe=name, kubernetes=version):
                    self.assertEqual(self.problems([pod], version), "")

    def test_kustomize_takes_the_component(self):
        if shutil.which("kubectl") is None:
            self.skipTest("no kubectl here")
        done = with_component(kubernetes() / "recipes/llm-d", {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "decode"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "modelserver", "image": "REPLACE",
                                         "command": ["vllm", "serve"]}]}}}})
        (container,) = done["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["command"], ["vllm", "serve"])
        self.assertEqual(said(container["args"]), flag())
        self.assertEqual(container["image"], "IMAGE:TAG")

    def test_production_stacks_own_chart_takes_the_values(self):
        if UPSTREAM is None:
            self.skipTest("no --upstream")
        with tempfile.TemporaryDirectory() as name:
            copy = pathlib.Path(shutil.copytree(UPSTREAM / "production-stack/helm", f"{name}/helm"))
            (copy / "Chart.lock").unlink(missing_ok=True)
            facts = yaml.safe_load((copy / "Chart.yaml").read_text())
            del facts["dependencies"]  # for its monitoring
            (copy / "Chart.yaml").write_text(yaml.safe_dump(facts))
            documents = templates(copy, "-f", kubernetes() / "recipes/production-stack.yaml")
        (engine,) = [one for one in documents if one["kind"] == "Deployment"
                     and one["metadata"]["name"].endswith("-deployment-vllm")]
        pod = engine["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        ours, volumes = production_stack()
        self.assertEqual(said(container["command"]), flag())
        self.assertEqual(container["image"], "IMAGE:TAG")
        self.assertEqual(container["securityContext"]["runAsUser"], 1000)
        for mount in ours["volumeMounts"]:
            self.assertIn(mount, container["volumeMounts"])
        for volume in volumes:
            self.assertIn(volume, pod["volumes"])

    def test_kserves_own_crd_knows_each_field(self):
        if UPSTREAM is None:
            self.skipTest("no --upstream")
        path = "kserve/config/crd/full/llmisvc/serving.kserve.io_llminferenceservices.yaml"
        crd = yaml.safe_load((UPSTREAM / path).read_text())
        (version,) = [one for one in crd["spec"]["versions"] if one["name"] == "v1alpha2"]

        def unknown(value, schema, where):
            if isinstance(value, list):
                return [bad for one in value for bad in unknown(one, schema["items"], where)]
            if isinstance(value, dict) and "properties" in schema:
                return [bad for name, one in value.items()
                        for bad in ([f"{where}.{name}"] if name not in schema["properties"] else
                                    unknown(one, schema["properties"][name], f"{where}.{name}"))]
            return []

        schema = version["schema"]["openAPIV3Schema"]
        service = recipe("kserve.yaml")
        self.assertEqual(unknown(service, schema, ""), [])
        service["spec"]["templat"] = service["spec"].pop("template")
        self.assertEqual(unknown(service, schema, ""), [".spec.templat"])


def main():
    global ROOT, UPSTREAM
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--root", "--bin", "--tools"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    parser.add_argument("--upstream", type=pathlib.Path)
    arguments = parser.parse_args()
    ROOT = containers_check.ROOT = arguments.root.resolve()
    containers_check.BIN = arguments.bin.resolve()
    containers_check.TOOLS = arguments.tools.resolve()
    UPSTREAM = arguments.upstream
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
