"""Certificates of a fleet's nodes for measurements on one machine, made by openssl."""

import subprocess


def _openssl(directory, *words):
    done = subprocess.run(["openssl", *map(str, words)], cwd=directory, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"openssl {words[0]}: {done.stderr.strip()}")


def make_certificates(directory, names):
    """Writes ca.pem, and NODE.pem and NODE.key for each node. names: {node: its DNS name}."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    _openssl(directory, "req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days",
             "2", "-subj", "/CN=lab", "-addext", "keyUsage=critical,keyCertSign,digitalSignature")
    for node, name in names.items():
        (directory / f"{node}.ext").write_text(f"subjectAltName=DNS:{name}\n")
        _openssl(directory, "req", *new_key, "-keyout", f"{node}.key", "-out", f"{node}.csr",
                 "-subj", f"/CN={node}")
        _openssl(directory, "x509", "-req", "-in", f"{node}.csr", "-CA", "ca.pem", "-CAkey",
                 "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{node}.ext", "-out",
                 f"{node}.pem")
