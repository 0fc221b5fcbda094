"""Writes a container image as files, by the OCI image layout, from the tar of a root directory.

The image has one layer. With it comes its bill of materials, as an artifact that refers to it
(`subject`), so that registries and scanners find it. The same root makes the same files.

    settings(dockerfile)                      what the last stage of a Dockerfile says of the start
    write(layer, folder, ...)                 oci-layout, index.json, blobs/sha256/
"""

import gzip
import hashlib
import json
import re
import shlex

LAYOUT = "application/vnd.oci.image"
SECOND = 1_000_000_000  # healthchecks count in nanoseconds


def _nanoseconds(text):
    number, unit = re.fullmatch(r"(\d+)([sm])", text).groups()
    return int(number) * {"s": 1, "m": 60}[unit] * SECOND


def settings(dockerfile):
    """Returns the `config` of an image that starts as the Dockerfile's does."""
    text = re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE).replace("\\\n", " ")
    last = text[text.rindex("\nFROM "):]
    said = {word: rest.strip() for word, rest in re.findall(r"^([A-Z]+) (.*)$", last, re.MULTILINE)}
    options, _, command = said["HEALTHCHECK"].partition("CMD ")
    check = dict(word[2:].split("=") for word in shlex.split(options))
    return {"User": said["USER"], "ExposedPorts": {f"{said['EXPOSE']}/tcp": {}},
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": json.loads(said["CMD"]),
            "Healthcheck": {"Test": ["CMD", *json.loads(command)],
                            "Interval": _nanoseconds(check["interval"]),
                            "Timeout": _nanoseconds(check["timeout"]),
                            "StartPeriod": _nanoseconds(check["start-period"])}}


class _Layout:
    def __init__(self, folder):
        self.blobs = folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)

    def add(self, data, media_type, **more):
        """Keeps the bytes. Returns their descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data), **more}

    def add_json(self, value, media_type, **more):
        return self.add(json.dumps(value, sort_keys=True).encode(), media_type, **more)


def write(layer, folder, *, config, created, version, architecture, sbom):
    """Writes the layout. layer: the path of a tar; created: as 2026-11-30T00:00:00Z; sbom: bytes.
    Returns the image's digest."""
    layout = _Layout(folder)
    plain = layer.read_bytes()
    packed = gzip.compress(plain, compresslevel=9, mtime=0)
    labels = {"org.opencontainers.image.title": "kvkeep",
              "org.opencontainers.image.version": version,
              "org.opencontainers.image.licenses": "Apache-2.0"}
    whole = {"created": created, "architecture": architecture, "os": "linux",
             "config": {**config, "Labels": labels},
             "rootfs": {"type": "layers",
                        "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
             "history": [{"created": created, "created_by": "tools/release"}]}
    manifest = {"schemaVersion": 2, "mediaType": f"{LAYOUT}.manifest.v1+json",
                "config": layout.add_json(whole, f"{LAYOUT}.config.v1+json"),
                "layers": [layout.add(packed, f"{LAYOUT}.layer.v1.tar+gzip")],
                "annotations": labels}
    image = layout.add_json(manifest, manifest["mediaType"])
    bill = "application/vnd.cyclonedx+json"
    artifact = {"schemaVersion": 2, "mediaType": f"{LAYOUT}.manifest.v1+json", "artifactType": bill,
                "config": layout.add(b"{}", "application/vnd.oci.empty.v1+json"),
                "layers": [layout.add(sbom, bill)], "subject": image}
    index = {"schemaVersion": 2, "mediaType": f"{LAYOUT}.index.v1+json", "manifests": [
        {**image, "platform": {"os": "linux", "architecture": architecture},
         "annotations": {"org.opencontainers.image.ref.name": version}},
        layout.add_json(artifact, artifact["mediaType"], artifactType=bill)]}
    (folder / "index.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')
    return image["digest"]
