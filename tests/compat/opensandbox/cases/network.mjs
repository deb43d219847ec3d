// Endpoints of ports, the server's proxy, and the policy of what leaves.
import { assert, lines, refused, succeeded, until } from "../world.mjs";

export const cases = new Map();
const test = (title, run) => cases.set(title, run);
const SERVE = "python3 -m http.server --directory /tmp/site";

async function serving(t, port) {
  const sandbox = await t.shared();
  await sandbox.files.writeFiles([{ path: "/tmp/site/index.html", data: "the page" }]);
  const { id } = await sandbox.commands.run(`exec ${SERVE} ${port}`, { background: true });
  t.later(() => sandbox.commands.interrupt(id));
  await until(() => sandbox.commands.run(`python3 -c "import socket; socket.create_connection(('127.0.0.1', ${port}))"`), (seen) => seen.exitCode === 0);
  return sandbox;
}

test("an endpoint has no scheme and ends with its port", async (t) => {
  const sandbox = await t.shared();
  for (const port of [44772, 18080, 8080, 3000]) {
    const { endpoint, headers } = await sandbox.getEndpoint(port);
    assert.match(endpoint, new RegExp(`^[^/]+:\\d+/.*/${port}$`));
    assert.ok(headers["X-EXECD-ACCESS-TOKEN"], JSON.stringify(headers));
    assert.ok(!endpoint.includes(headers["X-EXECD-ACCESS-TOKEN"]), "the token is in the path too");
    assert.equal(await sandbox.getEndpointUrl(port), `${t.protocol}://${endpoint}`);
  }
  await refused(t, 400, () => sandbox.getEndpoint(0));
  await refused(t, 400, () => sandbox.getEndpoint(65536));
});

test("a server in the sandbox is reached by its endpoint", async (t) => {
  const sandbox = await serving(t, 3001);
  const { endpoint, headers } = await sandbox.getEndpoint(3001);
  const reply = await fetch(`${t.protocol}://${endpoint}/index.html`, { headers });
  assert.equal(reply.status, 200);
  assert.equal(await reply.text(), "the page");
  assert.equal((await fetch(`${t.protocol}://${endpoint}/index.html`)).status, 401);
  const execd = await t.execd(sandbox, "GET", "/proxy/3001/index.html");
  assert.equal(await execd.text(), "the page");
});

test("the header of execd opens every port", async (t) => {
  const sandbox = await serving(t, 3002);
  const { headers } = await sandbox.getEndpoint(44772);
  const { endpoint } = await sandbox.getEndpoint(3002);
  assert.equal(await (await fetch(`${t.protocol}://${endpoint}/index.html`, { headers })).text(), "the page");
  const own = await sandbox.getEndpoint(3002);
  const { endpoint: execd } = await sandbox.getEndpoint(44772);
  for (const path of ["/files/info?path=/tmp", "/command/status/none", "/code/contexts"]) {
    assert.equal((await fetch(`${t.protocol}://${execd}${path}`, { headers: own.headers })).status, 403, `a port's token opens ${path}`);
  }
});

test("a signed endpoint ends when it was asked to", async (t) => {
  const sandbox = await t.shared();
  const { endpoint, headers } = await sandbox.getSignedEndpoint(44772, Math.floor(Date.now() / 1000) + 2);
  assert.equal((await fetch(`${t.protocol}://${endpoint}/metrics`, { headers })).status, 200);
  await until(() => fetch(`${t.protocol}://${endpoint}/metrics`, { headers }), (reply) => reply.status === 401);
  await refused(t, 400, () => sandbox.getSignedEndpoint(44772, Math.floor(Date.now() / 1000) - 5));
});

test("a whole url carries its token when asked", async (t) => {
  const sandbox = await serving(t, 3003);
  for (const [port, path] of [[44772, "/metrics"], [3003, "/index.html"]]) {
    const told = await (await t.ask("GET", `/sandboxes/${sandbox.id}/endpoints/${port}?capability_url=true`)).json();
    assert.match(told.endpoint, new RegExp(`/${port}$`));
    assert.equal((await fetch(`${t.protocol}://${told.endpoint}${path}`)).status, 200);
    const broken = told.endpoint.replace(/\/c\/(.)/, (_, first) => `/c/${first === "A" ? "B" : "A"}`);
    assert.equal((await fetch(`${t.protocol}://${broken}${path}`)).status, 401);
  }
});

test("everything works through the server's proxy", async (t) => {
  const sandbox = await t.create({ connectionConfig: t.connection({ useServerProxy: true }) });
  const { endpoint } = await sandbox.getEndpoint(44772);
  assert.ok(endpoint.startsWith(t.domain + "/"), endpoint);
  assert.match(endpoint, /\/sandboxes\/[^/]+\/proxy\/44772$/);
  const execution = succeeded(await sandbox.commands.run("echo through; sleep 1; echo again"));
  assert.deepEqual(lines(execution.logs.stdout), ["through", "again"]);
  await sandbox.files.writeFiles([{ path: "/tmp/proxied", data: new Blob([new Uint8Array(3_000_000)]).stream() }]);
  assert.equal((await sandbox.files.readBytes("/tmp/proxied")).length, 3_000_000);
  await refused(t, 404, () => sandbox.files.readFile("/tmp/none"));
});

test("once: the server's proxy is bound to the owner", async (t) => {
  const sandbox = await t.shared();
  const url = `${t.protocol}://${t.domain}/v1/sandboxes/${sandbox.id}/proxy/44772/metrics`;
  const status = async (headers) => (await fetch(url, { headers })).status;
  assert.equal(await status({ "OPEN-SANDBOX-API-KEY": t.key }), 200);
  assert.equal(await status({ "X-EXECD-ACCESS-TOKEN": t.key }), 200);
  assert.equal(await status({}), 401);
  assert.equal(await status({ "OPEN-SANDBOX-API-KEY": "wrong" }), 401);
  assert.equal(await status({ "OPEN-SANDBOX-API-KEY": t.otherKey }), 404);
  const { headers } = await sandbox.getEndpoint(44772);
  assert.equal(await status(headers), 200);
  const other = await t.create();
  assert.ok([401, 403, 404].includes(await status((await other.getEndpoint(44772)).headers)));
});

test("the policy of what leaves is shown and patched", async (t) => {
  const sandbox = await t.create({ networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.org" }] } });
  assert.deepEqual(await sandbox.getEgressPolicy(), { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.org" }] });
  await sandbox.patchEgressRules([{ action: "allow", target: "*.github.com" }, { action: "deny", target: "pypi.org" }]);
  const policy = await sandbox.getEgressPolicy();
  const rules = Object.fromEntries(policy.egress.map((rule) => [rule.target, rule.action]));
  assert.deepEqual(rules, { "*.github.com": "allow", "pypi.org": "deny" });
  assert.equal(policy.defaultAction, "deny");
  const reply = await t.askPort(sandbox, 18080, "DELETE", "/policy", ["pypi.org", "none.example"]);
  assert.equal(reply.status, 200);
  const told = await reply.json();
  assert.deepEqual(told.policy.egress, [{ action: "allow", target: "*.github.com" }]);
  assert.ok(told.status && told.mode && told.enforcementMode, JSON.stringify(told));
});

test("since 0.1.11: rules are deleted by target", async (t) => {
  const sandbox = await t.create({ networkPolicy: { egress: [{ action: "allow", target: "pypi.org" }, { action: "allow", target: "npmjs.org" }] } });
  await sandbox.deleteEgressRules(["pypi.org"]);
  assert.deepEqual(await sandbox.getEgressPolicy(), { defaultAction: "deny", egress: [{ action: "allow", target: "npmjs.org" }] });
});

test("a policy that cannot be is refused in plain text", async (t) => {
  const sandbox = await t.shared();
  assert.equal((await sandbox.getEgressPolicy()).defaultAction, "deny");
  for (const [method, body] of [["PATCH", [{ action: "maybe", target: "a.example" }]], ["PATCH", {}], ["DELETE", "x"], ["PUT", { defaultAction: 1 }]]) {
    const reply = await t.askPort(sandbox, 18080, method, "/policy", body);
    assert.equal(reply.status, 400, `${method} ${JSON.stringify(body)}`);
    assert.match(reply.headers.get("content-type"), /^text\/plain/);
    assert.ok((await reply.text()).length > 5);
  }
  assert.equal((await t.askPort(sandbox, 18080, "GET", "/healthz")).status, 200);
});

test("the vault of credentials is not there", async (t) => {
  const sandbox = await t.shared();
  for (const [method, path] of [["GET", "/credential-vault"], ["POST", "/credential-vault"], ["GET", "/credential-vault/credentials"]]) {
    const reply = await t.askPort(sandbox, 18080, method, path, method === "POST" ? { credentials: [], bindings: [] } : undefined);
    assert.ok([404, 412, 501].includes(reply.status), `${method} ${path}: ${reply.status}`);
    assert.ok((await reply.text()).length > 5);
  }
});

test("diagnostics tell logs and events", async (t) => {
  const sandbox = await t.create({ entrypoint: ["sh", "-c", "echo from the entrypoint; exec tail -f /dev/null"] });
  const logs = await until(async () => (await t.ask("GET", `/sandboxes/${sandbox.id}/diagnostics/logs?scope=container`)).json(), (told) => /from the entrypoint/.test(told.content ?? ""));
  assert.equal(logs.sandboxId, sandbox.id);
  assert.deepEqual([logs.kind, logs.scope, logs.delivery, logs.truncated], ["logs", "container", "inline", false]);
  const events = await (await t.ask("GET", `/sandboxes/${sandbox.id}/diagnostics/events?scope=lifecycle`)).json();
  assert.equal(events.kind, "events");
  assert.ok(events.content.length > 0);
  const plain = await t.ask("GET", `/sandboxes/${sandbox.id}/diagnostics/logs`);
  assert.match(plain.headers.get("content-type"), /^text\/plain/);
  assert.equal(plain.headers.get("deprecation"), "true");
  assert.match(await plain.text(), /from the entrypoint/);
  assert.equal((await t.ask("GET", `/sandboxes/none/diagnostics/logs?scope=all`)).status, 404);
});

test("health is open and a create's report is taken", async (t) => {
  for (const path of ["/health", "/v1/health"]) {
    const reply = await fetch(`${t.protocol}://${t.domain}${path}`);
    assert.deepEqual([reply.status, await reply.json()], [200, { status: "healthy" }]);
  }
  const reply = await t.ask("POST", "/metrics/events", { eventType: "sandbox.create", createDurationMs: 5, success: true });
  assert.equal(reply.status, 204);
  const bare = await fetch(`${t.protocol}://${t.domain}/sandboxes?pageSize=1`, { headers: { "OPEN-SANDBOX-API-KEY": t.key } });
  assert.ok((await bare.json()).pagination, "without /v1 it is not the lifecycle API");
});
