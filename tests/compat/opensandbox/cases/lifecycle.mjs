// Create, look, list, renew, patch, pause, resume, kill: what Sandbox and SandboxManager do.
import { IMAGE, assert, lines, refused, succeeded, until } from "../world.mjs";

export const cases = new Map();
const test = (title, run) => cases.set(title, run);
const unique = (() => { let n = 0; return () => `c${process.pid}-${++n}`; })();

test("a sandbox is created running and is healthy", async (t) => {
  const sandbox = await t.create({ metadata: { project: "compat" } });
  assert.ok(sandbox.id);
  assert.equal(await sandbox.isHealthy(), true);
  const info = await sandbox.getInfo();
  assert.equal(info.id, sandbox.id);
  assert.equal(info.status.state, "Running");
  assert.equal(info.image.uri, IMAGE);
  assert.deepEqual(info.metadata, { project: "compat" });
  assert.deepEqual(info.entrypoint, ["tail", "-f", "/dev/null"]);
  assert.ok(info.createdAt instanceof Date && Math.abs(info.createdAt - Date.now()) < 120_000, `${info.createdAt}`);
  assert.ok(Math.abs(info.expiresAt - info.createdAt - 600_000) < 5000, `${info.expiresAt} ${info.createdAt}`);
});

test("domain and key of the environment are enough", async (t) => {
  process.env.OPEN_SANDBOX_DOMAIN = t.domain;
  process.env.OPEN_SANDBOX_API_KEY = t.key;
  try {
    const sandbox = await t.sdk.Sandbox.create({ image: IMAGE, connectionConfig: { protocol: t.protocol } });
    t.later(() => sandbox.kill());
    succeeded(await sandbox.commands.run("true"));
  } finally {
    delete process.env.OPEN_SANDBOX_DOMAIN;
    delete process.env.OPEN_SANDBOX_API_KEY;
  }
});

test("the reply to create says running and names no image", async (t) => {
  const reply = await t.ask("POST", "/sandboxes", {
    image: { uri: IMAGE }, entrypoint: ["tail", "-f", "/dev/null"], timeout: 120, resourceLimits: { cpu: "500m", memory: "256Mi" },
  });
  const made = await reply.json();
  t.later(() => t.ask("DELETE", `/sandboxes/${made.id}`));
  assert.equal(reply.status, 202, JSON.stringify(made));
  assert.equal(made.status.state, "Running");
  assert.deepEqual(made.entrypoint, ["tail", "-f", "/dev/null"]);
  assert.ok(!("image" in made));
  assert.equal(reply.headers.get("location"), `/v1/sandboxes/${made.id}`);
  assert.ok(reply.headers.get("x-request-id"));
  for (const [key, value] of Object.entries(made)) assert.notEqual(value, null, `${key} is null, which is left out`);
});

test("no timeout is manual cleanup", async (t) => {
  const sandbox = await t.create({ timeoutSeconds: null });
  assert.equal((await sandbox.getInfo()).expiresAt, null);
  const raw = await (await t.ask("GET", `/sandboxes/${sandbox.id}`)).json();
  assert.ok(!("expiresAt" in raw), JSON.stringify(raw));
  await refused(t, 409, () => sandbox.renew(600));
});

test("renew moves the end", async (t) => {
  const sandbox = await t.create({ timeoutSeconds: 120 });
  const before = await sandbox.getInfo();
  const wanted = Date.now() + 1_800_000;
  const renewed = await sandbox.renew(1800);
  assert.ok(Math.abs(renewed.expiresAt - wanted) < 30_000, `${renewed.expiresAt}`);
  const after = await sandbox.getInfo();
  assert.ok(after.expiresAt > before.expiresAt);
  assert.ok(Math.abs(after.expiresAt - renewed.expiresAt) < 2000);
  succeeded(await sandbox.commands.run("true"));
});

test("renew into the past is refused", async (t) => {
  const sandbox = await t.shared();
  await refused(t, 400, () => sandbox.renew(-60));
  await refused(t, 400, () => sandbox.sandboxes.renewSandboxExpiration(sandbox.id, { expiresAt: "tomorrow" }));
});

test("expiry times of every form of RFC 3339 are read", async (t) => {
  const sandbox = await t.create();
  for (const minutes of [-120, 0, 330]) {
    const at = new Date(Math.floor((Date.now() + 3_600_000) / 1000) * 1000);
    const local = new Date(at.getTime() + minutes * 60_000).toISOString().replace("Z", "").replace(".000", ".123456");
    const sign = minutes < 0 ? "-" : "+";
    const zone = `${sign}${String(Math.trunc(Math.abs(minutes) / 60)).padStart(2, "0")}:${String(Math.abs(minutes) % 60).padStart(2, "0")}`;
    const renewed = await sandbox.sandboxes.renewSandboxExpiration(sandbox.id, { expiresAt: local + zone });
    assert.ok(Math.abs(renewed.expiresAt - at) < 1000, `${local}${zone} became ${renewed.expiresAt.toISOString()}`);
  }
});

test("connect finds it again", async (t) => {
  const sandbox = await t.create();
  await sandbox.files.writeFiles([{ path: "/tmp/connected.txt", data: "same" }]);
  const again = await t.sdk.Sandbox.connect({ sandboxId: sandbox.id, connectionConfig: t.connection() });
  t.later(() => again.close());
  assert.equal(await again.files.readFile("/tmp/connected.txt"), "same");
  assert.deepEqual(lines(succeeded(await again.commands.run("cat /tmp/connected.txt")).logs.stdout), ["same"]);
});

test("metadata is patched by key", async (t) => {
  const sandbox = await t.create({ metadata: { keep: "1", drop: "2" } });
  const info = await sandbox.patchMetadata({ drop: null, added: "3" });
  assert.equal(info.id, sandbox.id);
  assert.deepEqual(info.metadata, { keep: "1", added: "3" });
  assert.deepEqual((await sandbox.getInfo()).metadata, { keep: "1", added: "3" });
  await refused(t, 400, () => sandbox.patchMetadata({ "opensandbox.io/mine": "x" }));
  await refused(t, 400, () => sandbox.patchMetadata({ "not a label!": "x" }));
  await refused(t, 400, () => sandbox.patchMetadata({ key: "not a value!" }));
  assert.deepEqual((await sandbox.getInfo()).metadata, { keep: "1", added: "3" });
});

test("pause and resume keep files and processes", async (t) => {
  const sandbox = await t.create();
  const background = await sandbox.commands.run("sleep 300", { background: true });
  await sandbox.files.writeFiles([{ path: "/tmp/kept", data: "kept" }]);
  await sandbox.pause();
  await until(() => sandbox.getInfo(), (info) => info.status.state === "Paused");
  const manager = t.manager();
  await refused(t, 409, () => manager.pauseSandbox(sandbox.id));
  for (let n = 0; n < 3; n++) assert.equal(await sandbox.isHealthy(), false, "healthy while it is paused");
  assert.equal((await sandbox.getInfo()).status.state, "Paused", "the health check woke it");
  const resumed = await sandbox.resume(); // which has the connections of the first
  assert.equal(await resumed.isHealthy(), true);
  assert.equal((await resumed.getInfo()).status.state, "Running");
  assert.equal(await resumed.files.readFile("/tmp/kept"), "kept");
  assert.equal((await resumed.commands.getCommandStatus(background.id)).running, true);
  await refused(t, 409, () => manager.resumeSandbox(sandbox.id));
});

test("a paused one is listed as paused and resumed by its id", async (t) => {
  const sandbox = await t.create({ metadata: { run: unique() } });
  const { metadata } = await sandbox.getInfo();
  const manager = t.manager();
  await manager.pauseSandbox(sandbox.id);
  await until(() => manager.getSandboxInfo(sandbox.id), (info) => info.status.state === "Paused");
  assert.deepEqual((await manager.listSandboxInfos({ metadata, states: ["Paused"] })).items.map((one) => one.id), [sandbox.id]);
  assert.deepEqual((await manager.listSandboxInfos({ metadata, states: ["Running"] })).items, []);
  const resumed = await t.sdk.Sandbox.resume({ sandboxId: sandbox.id, connectionConfig: t.connection() });
  t.later(() => resumed.close());
  succeeded(await resumed.commands.run("true"));
});

test("the list is filtered and paged", async (t) => {
  const run = unique();
  const made = [];
  for (const tier of ["a", "b", "a"]) made.push(await t.create({ metadata: { run, tier } }));
  const manager = t.manager();
  const all = await manager.listSandboxInfos({ metadata: { run } });
  assert.deepEqual(all.items.map((one) => one.id), made.map((one) => one.id).reverse(), "not newest first");
  assert.deepEqual(all.pagination, { page: 1, pageSize: 20, totalItems: 3, totalPages: 1, hasNextPage: false });
  const some = await manager.listSandboxInfos({ metadata: { run, tier: "a" }, states: ["running", "PAUSED"] });
  assert.deepEqual(some.items.map((one) => one.id), [made[2].id, made[0].id]);
  const first = await manager.listSandboxInfos({ metadata: { run }, page: 1, pageSize: 2 });
  assert.deepEqual(first.items.map((one) => one.id), [made[2].id, made[1].id]);
  assert.deepEqual(first.pagination, { page: 1, pageSize: 2, totalItems: 3, totalPages: 2, hasNextPage: true });
  const second = await manager.listSandboxInfos({ metadata: { run }, page: 2, pageSize: 2 });
  assert.deepEqual(second.items.map((one) => one.id), [made[0].id]);
  assert.equal(second.pagination.hasNextPage, false);
  assert.deepEqual((await manager.listSandboxInfos({ metadata: { run: "none-" + run } })).items, []);
});

test("a list that cannot be is refused", async (t) => {
  const manager = t.manager();
  await refused(t, 400, () => manager.listSandboxInfos({ page: 0 }));
  await refused(t, 400, () => manager.listSandboxInfos({ pageSize: 201 }));
  const reply = await t.ask("GET", "/sandboxes?metadata=novalue");
  assert.equal(reply.status, 400, await reply.text());
});

test("kill ends it for everyone", async (t) => {
  const sandbox = await t.create();
  const manager = t.manager();
  await sandbox.kill();
  await refused(t, 404, () => sandbox.getInfo(), "DOCKER::SANDBOX_NOT_FOUND");
  await refused(t, 404, () => manager.killSandbox(sandbox.id));
  await refused(t, 404, () => manager.pauseSandbox(sandbox.id));
  await refused(t, 404, () => manager.resumeSandbox(sandbox.id));
  await refused(t, 404, () => sandbox.renew(600));
  await refused(t, 404, () => sandbox.patchMetadata({ a: "b" }));
  await refused(t, 404, () => t.sdk.Sandbox.connect({ sandboxId: sandbox.id, connectionConfig: t.connection() }));
  await until(() => sandbox.isHealthy(), (healthy) => healthy === false);
  const listed = (await manager.listSandboxInfos({ pageSize: 200 })).items;
  assert.ok(listed.every((one) => one.id !== sandbox.id));
});

test("the manager renews, patches and kills", async (t) => {
  const sandbox = await t.create();
  const manager = t.manager();
  await manager.renewSandbox(sandbox.id, 3000);
  assert.ok(Math.abs((await manager.getSandboxInfo(sandbox.id)).expiresAt - Date.now() - 3_000_000) < 30_000);
  assert.deepEqual((await manager.patchSandboxMetadata(sandbox.id, { by: "manager" })).metadata, { by: "manager" });
  await manager.killSandbox(sandbox.id);
  await refused(t, 404, () => manager.getSandboxInfo(sandbox.id));
});

test("the environment reaches commands", async (t) => {
  const sandbox = await t.create({ env: { GREETING: "hello there" } });
  assert.deepEqual(lines(succeeded(await sandbox.commands.run("echo $GREETING")).logs.stdout), ["hello there"]);
});

test("the entrypoint runs in the sandbox", async (t) => {
  const sandbox = await t.create({ entrypoint: ["sh", "-c", "echo $MARK > /tmp/entered; exec tail -f /dev/null"], env: { MARK: "entry" } });
  await until(() => sandbox.commands.run("cat /tmp/entered"), (seen) => lines(seen.logs.stdout)[0] === "entry");
  assert.deepEqual((await sandbox.getInfo()).entrypoint, ["sh", "-c", "echo $MARK > /tmp/entered; exec tail -f /dev/null"]);
});

test("resource limits are the sandbox's", async (t) => {
  const sandbox = await t.create({ resource: { cpu: "500m", memory: "300Mi" } });
  const metrics = await sandbox.getMetrics();
  assert.ok(Math.abs(metrics.memoryTotalMiB - 300) < 1, `${metrics.memoryTotalMiB}`);
  assert.equal(metrics.cpuCount, 0.5);
});

test("metrics are of now", async (t) => {
  const sandbox = await t.shared();
  const metrics = await sandbox.getMetrics();
  assert.ok(metrics.cpuCount > 0 && metrics.memoryTotalMiB > 0, JSON.stringify(metrics));
  assert.ok(metrics.memoryUsedMiB >= 0 && metrics.memoryUsedMiB < metrics.memoryTotalMiB, JSON.stringify(metrics));
  assert.ok(metrics.cpuUsedPercentage >= 0 && metrics.cpuUsedPercentage <= 100, JSON.stringify(metrics));
  assert.ok(Math.abs(metrics.timestamp - Date.now()) < 60_000, `${metrics.timestamp}`);
});

test("snapshots are made, listed, restored and deleted", async (t) => {
  const sandbox = await t.create();
  const manager = t.manager();
  await sandbox.files.writeFiles([{ path: "/workspace/before.txt", data: "before" }]);
  const made = await manager.createSnapshot(sandbox.id, { name: "first" });
  assert.equal(made.sandboxId, sandbox.id);
  assert.equal(made.name, "first");
  assert.ok(made.createdAt instanceof Date);
  const ready = await until(() => manager.getSnapshot(made.id), (one) => one.status.state !== "Creating");
  assert.equal(ready.status.state, "Ready");
  const listed = await manager.listSnapshots({ sandboxId: sandbox.id, states: ["Ready"] });
  assert.deepEqual(listed.items.map((one) => one.id), [made.id]);
  assert.equal(listed.pagination.totalItems, 1);
  await sandbox.files.writeFiles([{ path: "/workspace/before.txt", data: "after" }]);
  const restored = await t.create({ image: undefined, snapshotId: made.id });
  assert.equal(await restored.files.readFile("/workspace/before.txt"), "before");
  assert.equal((await restored.getInfo()).snapshotId, made.id);
  await restored.kill();
  await manager.deleteSnapshot(made.id);
  await refused(t, 404, () => manager.getSnapshot(made.id));
  await refused(t, 404, () => manager.deleteSnapshot(made.id));
  assert.deepEqual((await manager.listSnapshots({ sandboxId: sandbox.id })).items, []);
});

test("named volumes are shared between sandboxes", async (t) => {
  const claimName = unique();
  const volumes = (more) => [{ name: "data", mountPath: "/data", pvc: { claimName }, ...more }];
  const one = await t.create({ volumes: volumes() });
  await one.files.writeFiles([{ path: "/data/note", data: "from one" }]);
  await one.kill();
  const other = await t.create({ volumes: volumes({ readOnly: true }) });
  assert.equal(await other.files.readFile("/data/note"), "from one");
  assert.notEqual((await other.commands.run("touch /data/mine")).exitCode, 0);
});

test("platform and extensions are taken", async (t) => {
  const arch = { x64: "amd64", arm64: "arm64" }[process.arch];
  const sandbox = await t.create({ platform: { os: "linux", arch }, secureAccess: true, extensions: { "opensandbox.extensions.note": "x" } });
  succeeded(await sandbox.commands.run("true"));
});
