"""Archives of images as `docker save` and OCI tools write them, and as nobody honest would."""
import gzip
import hashlib
import io
import json
import os
import platform
import tarfile

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def entry(name, data=None, kind=None, mode=None, uid=0, gid=0, link="", pax=None, size=None, device=(0, 0)):
    """One entry: a file of `data`, or what `kind` says: dir, symlink, link, fifo, char, block."""
    kinds = {"dir": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE, "link": tarfile.LNKTYPE, "fifo": tarfile.FIFOTYPE,
             "char": tarfile.CHRTYPE, "block": tarfile.BLKTYPE, "socket": b"s"}
    info = tarfile.TarInfo(name)
    info.type = kinds[kind] if kind else tarfile.REGTYPE
    info.mode = mode if mode is not None else 0o755 if kind == "dir" else 0o644
    info.uid, info.gid, info.linkname, info.mtime = uid, gid, link, 1600000000
    info.devmajor, info.devminor = device
    info.pax_headers = pax or {}
    data = data.encode() if isinstance(data, str) else data or b""
    info.size = len(data) if size is None else size
    return info, data


def tar(*entries):
    """A tar with exactly these names, also ones that tarfile would refuse or clean."""
    out = io.BytesIO()
    for info, data in entries:
        out.write(info.tobuf(tarfile.PAX_FORMAT))
        out.write(data + b"\0" * (-len(data) % 512))
    return out.getvalue() + b"\0" * 1024


def config(layers, **changes):
    """The image's configuration of uncompressed layers; `changes` go into its "config"."""
    return {"architecture": ARCHITECTURE, "os": "linux", "config": changes,
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha256(layer) for layer in layers]}}


def docker(layers, configuration=None, tag="made:1.0", members=None, manifest=None):
    """What `docker save` writes. `members` are put in the place of, or beside, what belongs there."""
    configuration = json.dumps(configuration or config(layers)).encode()
    name = sha256(configuration) + ".json"
    files = {name: configuration}
    for number, layer in enumerate(layers):
        files[f"{number}/layer.tar"] = layer
    files["manifest.json"] = manifest if manifest is not None else json.dumps(
        [{"Config": name, "RepoTags": [tag] if tag else None,
          "Layers": [f"{number}/layer.tar" for number in range(len(layers))]}]).encode()
    files.update(members or {})
    return tar(*[entry(name, data) if isinstance(data, bytes) else data for name, data in files.items() if data is not None])


class Oci:
    """An OCI layout: blobs by digest, then an index."""

    def __init__(self):
        self.files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def blob(self, data, media_type, **more):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        digest = sha256(data)
        self.files["blobs/sha256/" + digest] = data
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(data), **more}

    def image(self, layers, configuration=None, packed=None, **more):
        """A manifest's descriptor. `packed` turns a layer's bytes into those that are stored: gzip.compress."""
        suffix = "+gzip" if packed is gzip.compress else "+zstd" if packed else ""
        described = [self.blob(packed(layer) if packed else layer, LAYER + suffix) for layer in layers]
        return self.blob({"schemaVersion": 2, "config": self.blob(configuration or config(layers), CONFIG),
                          "layers": described}, MANIFEST, **more)

    def index(self, *descriptors):
        self.files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": descriptors}).encode()
        return self

    def tar(self):
        return tar(*[entry(name, data) for name, data in self.files.items()])

    def write(self, folder):
        for name, data in self.files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        return folder


def busybox():
    """The host's static busybox; None when there is none."""
    for path in ("/bin/busybox", "/usr/bin/busybox"):
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            continue
        if b"/lib64/ld-linux" not in data[:4096]:
            return data
    return None


def small_layer(*more):
    """A tree that commands can run in: busybox with the names it goes by."""
    names = ("sh cat ls id env echo mkdir rm sleep true false grep head tail wc sed pwd touch ln chmod uname hostname "
             "stat df mount dd cp mv test seq").split()
    return tar(entry("bin", kind="dir"), entry("bin/busybox", busybox(), mode=0o755),
               *[entry("bin/" + name, kind="symlink", link="busybox") for name in names],
               entry("etc", kind="dir"), entry("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nalice:x:1234:1235::/:/bin/sh\n"),
               *more)
