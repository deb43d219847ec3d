"""parley-sandboxd template, on a state folder of its own."""
import json
import os
import shutil
import subprocess
import tempfile

from .deployment import BIN


class Store:
    def __init__(self, state=None):
        """`state`: a deployment's folder rather than one of its own."""
        self.folder = tempfile.mkdtemp(prefix="parley-templates-")
        self.state = state or self.folder + "/state"
        self.templates = self.state + "/sandboxd/templates"

    def close(self):
        shutil.rmtree(self.folder)

    def run(self, *words, data=None, timeout=120):
        return subprocess.run([BIN + "/parley-sandboxd", "template", *words, "--state", self.state], input=data,
                              stdin=subprocess.DEVNULL if data is None else None, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout)

    def put(self, archive):
        """A file of the archive's bytes; the name is always the same, so that nothing is taken from it."""
        path = self.folder + "/archive.tar"
        with open(path, "wb") as file:
            file.write(archive)
        return path

    def take(self, archive, *words, name="made", **options):
        """Imports what must be good; its description."""
        done = self.run("import", self.put(archive), "--json", *(["--name", name] if name else []), *words, **options)
        assert done.returncode == 0, (done.returncode, done.stderr.decode("utf-8", "replace"))
        return json.loads(done.stdout)

    def refuse(self, archive, *words, **options):
        """Imports what must be refused; the sentence."""
        done = self.run("import", self.put(archive), "--json", "--name", "bad", "--quiet", *words, **options)
        assert done.returncode == 1, (done.returncode, done.stderr.decode("utf-8", "replace"))
        return json.loads(done.stdout)["error"]["message"]

    def rootfs(self, name="made"):
        return os.path.join(self.templates, os.readlink(os.path.join(self.templates, name)), "rootfs")

    def entries(self):
        """All names in the store, hidden ones too."""
        return sorted(os.listdir(self.templates)) if os.path.isdir(self.templates) else []
