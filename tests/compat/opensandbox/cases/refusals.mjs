// What is refused, as the SDK's error types show it.
import { IMAGE, assert, refused, until } from "../world.mjs";

export const cases = new Map();
const test = (title, run) => cases.set(title, run);

test("no key and a wrong key are told apart", async (t) => {
  for (const [apiKey, code] of [["", "MISSING_API_KEY"], ["pk_wrong", "INVALID_API_KEY"]]) {
    const manager = t.manager({ apiKey });
    const error = await refused(t, 401, () => manager.listSandboxInfos(), code);
    assert.ok(error.message.length > 0);
    await refused(t, 401, () => t.sdk.Sandbox.create({ connectionConfig: t.connection({ apiKey }), image: IMAGE }), code);
  }
});

test("the error carries the request id that was sent", async (t) => {
  const manager = t.manager({ headers: { "X-Request-ID": "mine-42" } });
  const error = await refused(t, 404, () => manager.getSandboxInfo("none"), "DOCKER::SANDBOX_NOT_FOUND");
  assert.equal(error.requestId, "mine-42");
  assert.ok(error.message.length > 0);
  assert.equal(error.rawBody.code, "DOCKER::SANDBOX_NOT_FOUND");
  assert.equal(error.name, "SandboxApiException");
});

test("what another principal has does not exist", async (t) => {
  const sandbox = await t.create();
  const other = t.manager({ apiKey: t.otherKey });
  await refused(t, 404, () => other.getSandboxInfo(sandbox.id));
  await refused(t, 404, () => other.killSandbox(sandbox.id));
  await refused(t, 404, () => other.pauseSandbox(sandbox.id));
  await refused(t, 404, () => other.renewSandbox(sandbox.id, 600));
  await refused(t, 404, () => other.patchSandboxMetadata(sandbox.id, { a: "b" }));
  await refused(t, 404, () => other.createSnapshot(sandbox.id));
  await refused(t, 404, () => t.sdk.Sandbox.connect({ sandboxId: sandbox.id, connectionConfig: t.connection({ apiKey: t.otherKey }) }));
  assert.ok((await other.listSandboxInfos({ pageSize: 200 })).items.every((one) => one.id !== sandbox.id));
  assert.equal(await sandbox.isHealthy(), true);
});

const bodies = {
  "a timeout under a minute": { timeoutSeconds: 59 },
  "a negative timeout": { timeoutSeconds: -1 },
  "an image that is no name": { image: "" },
  "a snapshot that is not there": { image: undefined, snapshotId: "none" },
  "a label's name": { metadata: { "no label!": "x" } },
  "a label's value": { metadata: { key: "x".repeat(64) } },
  "a reserved label": { metadata: { "opensandbox.io/x": "y" } },
  "a graphics card": { resource: { cpu: "1", memory: "256Mi", gpu: "1" } },
  "a quantity": { resource: { cpu: "much", memory: "256Mi" } },
  "another system": { platform: { os: "windows", arch: "amd64" } },
  "a volume of a bucket": { volumes: [{ name: "b", mountPath: "/b", ossfs: { bucket: "b", endpoint: "e", accessKeyId: "i", accessKeySecret: "s" } }] },
  "a mount that is no path": { volumes: [{ name: "b", mountPath: "b", pvc: { claimName: "compat-b" } }] },
  "a folder of the host that is not allowed": { volumes: [{ name: "h", mountPath: "/h", host: { path: "/etc" } }] },
  "an action of no network": { networkPolicy: { defaultAction: "maybe" } },
  "a target of no network": { networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "not a name" }] } },
  "an empty entrypoint": { entrypoint: [] },
  "a variable's name": { env: { "NO-NAME": "x" } },
};
for (const [what, more] of Object.entries(bodies)) {
  test(`create refuses: ${what}`, async (t) => {
    const before = (await t.manager().listSandboxInfos({ pageSize: 1 })).pagination.totalItems;
    const status = what === "a snapshot that is not there" ? 404 : 400;
    const error = await refused(t, status, () => t.create(more));
    assert.match(error.error.code, /^[A-Z]+::[A-Z_]+$/);
    assert.ok(error.message.length > 10, error.message);
    await until(() => t.manager().listSandboxInfos({ pageSize: 1 }), (list) => list.pagination.totalItems <= before);
  });
}

test("what the body lacks is named", async (t) => {
  for (const [body, word] of [[{}, /image/], [{ image: { uri: IMAGE }, snapshotId: "x", resourceLimits: {} }, /image|snapshotId/],
    [{ image: { uri: IMAGE }, entrypoint: "tail", resourceLimits: {} }, /entrypoint/], [{ image: IMAGE, resourceLimits: {} }, /image/]]) {
    const reply = await t.ask("POST", "/sandboxes", body);
    const told = await reply.json();
    assert.equal(reply.status, 400, JSON.stringify(told));
    assert.match(told.message, word);
    assert.ok(told.code && reply.headers.get("x-request-id"));
  }
});

test("once: what is not served is refused, not passed over", async (t) => {
  const whole = { image: { uri: IMAGE }, entrypoint: ["tail", "-f", "/dev/null"], resourceLimits: { cpu: "1", memory: "256Mi" } };
  for (const [more, status] of [[{ credentialProxy: { enabled: true }, networkPolicy: { defaultAction: "deny" } }, 400],
    [{ extensions: { poolRef: "warm" } }, 501], [{ extensions: { "access.renew.extend.seconds": "600" } }, 400]]) {
    const reply = await t.ask("POST", "/sandboxes", { ...whole, ...more });
    const told = await reply.json();
    assert.equal(reply.status, status, JSON.stringify([more, told]));
    assert.ok(told.code && told.message.length > 10, JSON.stringify(told));
  }
  const sandbox = await t.shared();
  for (const path of ["/v1/isolated/capabilities", "/v1/isolated/sessions"]) {
    const reply = await t.execd(sandbox, "GET", path);
    assert.equal(reply.status, 404);
    assert.ok((await reply.json()).message);
  }
});

test("once: pools are not there", async (t) => {
  for (const [method, path] of [["GET", "/pools"], ["POST", "/pools"], ["GET", "/pools/x"], ["PUT", "/pools/x"], ["DELETE", "/pools/x"]]) {
    const reply = await t.ask(method, path, method === "POST" || method === "PUT" ? {} : undefined);
    assert.equal(reply.status, 501, `${method} ${path}`);
    assert.equal((await reply.json()).code, "KUBERNETES::POOL_NOT_SUPPORTED");
  }
});

test("a sandbox that never gets healthy is a readiness timeout and is killed", async (t) => {
  const before = (await t.manager().listSandboxInfos({ pageSize: 200 })).items.map((one) => one.id);
  await assert.rejects(() => t.create({ readyTimeoutSeconds: 0.5, healthCheck: () => false }), (error) => {
    assert.ok(error instanceof t.sdk.SandboxReadyTimeoutException, error.stack);
    assert.equal(error.error.code, "READY_TIMEOUT");
    return true;
  });
  await until(() => t.manager().listSandboxInfos({ pageSize: 200 }), (list) => list.items.every((one) => before.includes(one.id)));
});

test("the data plane refuses without its token", async (t) => {
  const sandbox = await t.shared();
  const { endpoint } = await sandbox.getEndpoint(44772);
  for (const headers of [{}, { "X-EXECD-ACCESS-TOKEN": "wrong" }, { "OPEN-SANDBOX-API-KEY": t.key }]) {
    for (const [method, path] of [["GET", "/metrics"], ["POST", "/command"], ["GET", "/files/info?path=/etc/passwd"]]) {
      const reply = await fetch(`${t.protocol}://${endpoint}${path}`, { method, headers });
      assert.equal(reply.status, 401, `${method} ${path} ${JSON.stringify(Object.keys(headers))}`);
      assert.match((await reply.json()).error, /^Unauthorized/);
      assert.ok(reply.headers.get("x-request-id"));
    }
  }
});

test("a token of one sandbox opens no other", async (t) => {
  const [one, other] = [await t.create(), await t.shared()];
  const { headers } = await one.getEndpoint(44772);
  const { endpoint } = await other.getEndpoint(44772);
  const reply = await fetch(`${t.protocol}://${endpoint}/metrics`, { headers });
  assert.ok([401, 403, 404].includes(reply.status), `${reply.status}`);
});
