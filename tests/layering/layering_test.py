"""The rooms: programs use shared, shared uses base, nobody looks upwards or sideways; greps the includes."""
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

# A room may include from itself and from these; the longest matching row counts.
ALLOWED = {
    "shared/base": [],
    "shared/capability": ["shared/base"],
    "shared/http": ["shared/base"],
    "shared/trust": ["shared/base"],
    "shared/node_protocol": ["shared/base", "shared/trust", "shared/capability/keys.h"],
    "negotiator/ledger": ["shared/base", "shared/capability"],
    "negotiator/leasing/policy": ["negotiator/leasing", "negotiator/ledger", "shared/base", "shared/capability",
                                  "shared/node_protocol/egress_rule.h"],
    "negotiator/leasing": ["negotiator/ledger", "shared/base", "shared/capability"],
    "negotiator/leasing/keeping": ["negotiator/leasing", "negotiator/ledger", "shared/base", "shared/capability"],
    "negotiator/webhooks": ["negotiator/leasing/events", "negotiator/ledger", "shared/base", "shared/capability"],
    "negotiator/identity": ["negotiator/leasing/principal.h", "shared/base"],
    "negotiator/fleet": ["negotiator/ledger", "shared/base", "shared/capability", "shared/node_protocol"],
    "negotiator/passing": ["negotiator/leasing/principal.h", "negotiator/leasing/sandbox.h", "shared/base", "shared/capability"],
    "negotiator/dialects": ["negotiator/leasing", "negotiator/identity/identity.h", "negotiator/fleet", "negotiator/passing", "negotiator/webhooks", "negotiator/ledger", "shared/base", "shared/http",
                            "shared/capability", "shared/node_protocol"],
    "negotiator/dialects/opensandbox": ["negotiator/dialects", "negotiator/leasing", "negotiator/ledger", "negotiator/fleet", "negotiator/passing", "shared/base", "shared/http",
                                        "shared/capability",
                                        "shared/node_protocol"],
    "negotiator": ["negotiator", "shared"],
    "sandboxd/front_launcher": ["shared/base", "shared/capability", "shared/node_protocol/enrol.h"],
    "sandboxd/front_init": ["shared/base"],
    "sandboxd/front_files": ["shared/base"],
    "sandboxd/helpers": ["sandboxd/front_files", "shared/base"],
    "sandboxd/helpers/drivers": ["shared/base"],
    "sandboxd/helpers/jupyter": ["sandboxd/helpers/drivers/drivers.h", "shared/base"],
    "sandboxd/launcher_init": ["shared/base"],
    "sandboxd/launcher_egress": ["shared/base"],
    "sandboxd/launcher_guest": ["sandboxd/front_launcher", "shared/base", "shared/capability/keys.h"],
    "sandboxd/guest": ["sandboxd/launcher_guest", "sandboxd/launcher_init", "sandboxd/front_launcher", "sandboxd/isolation",
                       "sandboxd/front/front.h", "sandboxd/launcher/settings.h", "sandboxd/launcher/child_process.h", "shared/base", "shared/capability/keys.h"],
    "sandboxd/rootless": ["shared/base"],
    "sandboxd/isolation/guest/keeper": ["sandboxd/init/inherit.h", "sandboxd/init/cgroup.h", "sandboxd/launcher_init", "sandboxd/front_init", "shared/base"],
    "sandboxd/isolation": ["sandboxd/rootless", "shared/base", "sandboxd/init/inherit.h", "sandboxd/launcher_init"],
    "sandboxd/network": ["sandboxd/front_launcher/front_launcher.h", "shared/base", "shared/node_protocol/egress_rule.h"],
    "sandboxd/storage": ["shared/base", "sandboxd/init/inherit.h"],
    "sandboxd/templates": ["sandboxd/front_launcher/front_launcher.h", "sandboxd/front_launcher/env.h", "shared/base"],
    "sandboxd/init": ["sandboxd/launcher_init", "sandboxd/front_init", "sandboxd/front_files", "sandboxd/helpers", "shared/base"],
    "sandboxd/egress": ["sandboxd/launcher_egress", "shared/base", "shared/http/loop.h", "shared/node_protocol/egress_rule.h"],
    "sandboxd/evidence": ["shared/base"],
    "sandboxd/launcher": ["sandboxd/evidence", "sandboxd/isolation", "sandboxd/rootless", "sandboxd/launcher_egress", "sandboxd/launcher_guest", "sandboxd/network", "sandboxd/storage", "sandboxd/templates", "sandboxd/front_launcher", "shared/base",
                          "shared/capability",
                          "shared/node_protocol", "shared/trust"],
    "sandboxd/sandbox": ["sandboxd/front_launcher", "sandboxd/front_init", "sandboxd/front_files", "sandboxd/helpers/drivers", "shared/base",
                         "shared/capability", "shared/http/loop.h", "shared/node_protocol"],
    "sandboxd/journal": ["shared/base", "shared/capability"],
    "sandboxd/dialects": ["sandboxd/sandbox", "sandboxd/journal", "shared/base", "shared/http", "shared/capability", "shared/node_protocol"],
    "sandboxd/dialects/native": ["sandboxd/dialects/plane.h", "sandboxd/dialects/fields.h", "sandboxd/dialects/metrics_watch.h", "sandboxd/sandbox", "shared/base", "shared/http", "shared/capability"],
    "sandboxd/dialects/execd": ["sandboxd/dialects/plane.h", "sandboxd/dialects/fields.h", "sandboxd/dialects/metrics_watch.h", "sandboxd/dialects/native/files", "sandboxd/sandbox", "sandboxd/front_files",
                                "sandboxd/helpers/drivers", "shared/base", "shared/http", "shared/capability"],
    "sandboxd/dialects/execute": ["sandboxd/dialects/plane.h", "sandboxd/dialects/fields.h", "sandboxd/sandbox", "shared/base", "shared/http", "shared/capability"],
    "sandboxd/dialects/guest": ["sandboxd/dialects/plane.h", "sandboxd/dialects/execd/execd.h", "sandboxd/dialects/port_relay.h", "sandboxd/dialects/native/files/files_request.h",
                                "sandboxd/dialects/native/previews/previews.h", "sandboxd/sandbox", "shared/base", "shared/http", "shared/capability"],
    "sandboxd/dialects/native/files": ["sandboxd/dialects/plane.h", "sandboxd/dialects/fields.h", "sandboxd/dialects/native/events.h", "sandboxd/sandbox", "sandboxd/front_files",
                                       "shared/base", "shared/http", "shared/capability"],
    "sandboxd/dialects/native/kernels": ["sandboxd/dialects/native/files/files_request.h", "sandboxd/dialects/plane.h", "sandboxd/dialects/fields.h", "sandboxd/dialects/native/events.h", "sandboxd/sandbox",
                                         "sandboxd/helpers/drivers", "shared/base", "shared/http", "shared/capability"],
    "sandboxd/dialects/native/previews": ["sandboxd/dialects/plane.h", "sandboxd/dialects/port_relay.h", "sandboxd/sandbox", "shared/base", "shared/http", "shared/capability"],
    "sandboxd/dialects/native/ports": ["sandboxd/dialects/plane.h", "sandboxd/dialects/policy_relay.h", "sandboxd/dialects/fields.h", "sandboxd/dialects/native/events.h", "sandboxd/dialects/port_relay.h", "sandboxd/sandbox",
                                       "shared/base", "shared/http", "shared/capability"],
    "sandboxd/dialects/native/socket": ["sandboxd/dialects/plane.h", "sandboxd/dialects/fields.h", "sandboxd/dialects/native/events.h", "sandboxd/dialects/native/exec_request.h",
                                        "sandboxd/sandbox", "shared/base", "shared/http", "shared/capability"],
    "sandboxd/front": ["sandboxd/dialects", "sandboxd/helpers/drivers", "sandboxd/sandbox", "sandboxd/journal", "sandboxd/front_launcher", "sandboxd/front_init",
                       "sandboxd/launcher/settings.h", "shared"],
    "sandboxd": ["sandboxd", "shared"],
    "clients/c": ["shared/base", "shared/trust", "shared/capability"],
    "clients/cli": ["clients/c", "shared/base", "shared/trust", "shared/capability"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def room_of(path):
    matches = [room for room in ALLOWED if path.startswith(room + "/")]
    return max(matches, key=len) if matches else None


def sources():
    for top in ("shared", "negotiator", "sandboxd", "clients"):
        for folder, _, files in os.walk(os.path.join(ROOT, top)):
            for name in files:
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def wrong_includes(path, text):
    room = room_of(path)
    if room is None:
        return [f"{path}: stands in no room"]
    wrong = []
    for included in INCLUDE.findall(text):
        allowed = [room] + ALLOWED[room]
        if not any(included == a or included.startswith(a + "/") for a in allowed):
            wrong.append(f"{path} includes {included}: {room} may use only {', '.join(ALLOWED[room]) or 'itself'}")
    return wrong


class Layering(unittest.TestCase):
    def test_no_room_looks_upwards_or_sideways(self):
        wrong = []
        for path in sources():
            with open(os.path.join(ROOT, path)) as source:
                wrong += wrong_includes(path, source.read())
        self.assertEqual(wrong, [])

    def test_the_check_can_fail(self):
        self.assertTrue(wrong_includes("shared/base/x.c", '#include "negotiator/main.h"\n'))
        self.assertTrue(wrong_includes("sandboxd/dialects/x.c", '#include "sandboxd/launcher/slots.h"\n'))
        self.assertTrue(wrong_includes("elsewhere/x.c", ""))
        self.assertFalse(wrong_includes("shared/http/x.c", '#include "shared/base/fd.h"\n#include <h2o.h>\n'))

    def test_a_dialect_makes_no_system_call(self):
        calls = re.compile(r"\b(open|openat|unlink|fork|clone3|kill|mount|socket|connect|pipe2?|splice|ioctl|mmap)\s*\(")
        for path in sources():
            if "/dialects/" not in path or not path.endswith(".c"):
                continue
            with open(os.path.join(ROOT, path)) as source:
                text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(\\.|[^\"\\])*\"", "", source.read(), flags=re.S)
            self.assertEqual(calls.findall(text), [], path)

    def test_every_header_guards_itself_and_says_its_job(self):
        for path in sources():
            if not path.endswith(".h"):
                continue
            with open(os.path.join(ROOT, path)) as source:
                text = source.read()
            self.assertIn("#pragma once", text, path)
            self.assertTrue(text.startswith("/** " + os.path.basename(path)), path)

    def test_each_plane_lets_the_other_ones_settings_pass(self):
        """Both read STATE/config.json: a key that one does not know keeps it from starting."""
        rows, foreign = {}, {}
        for plane, path in (("negotiator", "negotiator/settings.c"), ("sandboxd", "sandboxd/launcher/settings.c")):
            with open(os.path.join(ROOT, path)) as source:
                text = source.read()
            rows[plane] = set(re.findall(r'^    \{"(\w+)", CONFIG_', text, re.M))
            foreign[plane] = set(re.findall(r'"(\w+)"', re.search(r"FOREIGN\[\] = \{(.*?)\};", text, re.S)[1]))
            self.assertIn("state", rows[plane])
        self.assertEqual(rows["negotiator"] - rows["sandboxd"], foreign["sandboxd"])
        self.assertEqual(rows["sandboxd"] - rows["negotiator"], foreign["negotiator"])


if __name__ == "__main__":
    unittest.main()
