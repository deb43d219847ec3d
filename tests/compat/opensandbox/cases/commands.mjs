// Commands in the foreground and the background, and bash sessions.
import { request } from "node:http";
import { assert, failedWith, lines, refused, succeeded, until } from "../world.mjs";

export const cases = new Map();
const test = (title, run) => cases.set(title, run);

async function events(stream) {
  const seen = [];
  for await (const event of stream) seen.push(event);
  return seen;
}

test("a command says what it wrote and that it is complete", async (t) => {
  const execution = succeeded(await (await t.shared()).commands.run("echo one; echo two; echo bad >&2"));
  assert.deepEqual(lines(execution.logs.stdout), ["one", "two"]);
  assert.deepEqual(lines(execution.logs.stderr), ["bad"]);
  assert.equal(execution.exitCode, 0);
  assert.equal(execution.logs.stdout[0].isError, false);
  assert.equal(execution.logs.stderr[0].isError, true);
  assert.ok(Math.abs(execution.logs.stdout[0].timestamp - Date.now()) < 60_000);
});

test("handlers see each event in its order", async (t) => {
  const seen = [];
  await (await t.shared()).commands.run("echo out; sleep 0.1; echo err >&2", {}, {
    onInit: (e) => seen.push(["init", e.id.length > 0]), onStdout: (e) => seen.push(["stdout", e.text]),
    onStderr: (e) => seen.push(["stderr", e.text]), onExecutionComplete: (e) => seen.push(["complete", e.executionTimeMs >= 100]),
    onError: (e) => seen.push(["error", e.value]),
  });
  assert.deepEqual(seen, [["init", true], ["stdout", "out"], ["stderr", "err"], ["complete", true]]);
});

test("a failed command says its exit code and is not complete", async (t) => {
  const sandbox = await t.shared();
  for (const code of [1, 7, 126, 255]) {
    const execution = failedWith(await sandbox.commands.run(`echo before; exit ${code}`), code);
    assert.equal(execution.exitCode, code);
    assert.deepEqual(execution.error.traceback, [`exit status ${code}`]);
    assert.deepEqual(lines(execution.logs.stdout), ["before"]);
  }
  assert.equal((await sandbox.commands.run("no-such-command-here")).exitCode, 127);
});

test("a signal is minus one", async (t) => {
  const execution = failedWith(await (await t.shared()).commands.run("kill -KILL $$"), -1);
  assert.deepEqual(execution.error.traceback, ["signal: killed"]);
  assert.equal(execution.exitCode, -1);
});

test("lines are told as execd tells them", async (t) => {
  const sandbox = await t.shared();
  const wrote = async (text) => lines(succeeded(await sandbox.commands.run(`printf '${text}'`)).logs.stdout);
  assert.deepEqual(await wrote("a\\n\\nb\\n"), ["a", "\n", "b"]);
  assert.deepEqual(await wrote("a\\r\\nb\\rc"), ["a", "b", "c"]);
  assert.deepEqual(await wrote("no end"), ["no end"]);
  assert.deepEqual(await wrote("  spaces  \\n\\ttab\\n"), ["  spaces  ", "\ttab"]);
  assert.deepEqual(await wrote(""), []);
  assert.deepEqual(await wrote("gr\u00fc\u00dfe \u4f60\u597d\\n"), ["gr\u00fc\u00dfe \u4f60\u597d"]);
});

test("much output comes whole", async (t) => {
  const execution = succeeded(await (await t.shared()).commands.run("seq 1 20000"));
  assert.deepEqual(lines(execution.logs.stdout), Array.from({ length: 20000 }, (_, n) => String(n + 1)));
});

test("a line of a megabyte is one event", async (t) => {
  const execution = succeeded(await (await t.shared()).commands.run("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo after"));
  assert.equal(lines(execution.logs.stdout).join("").length, 1_000_005);
  assert.equal(lines(execution.logs.stdout).at(-1), "after");
});

test("folder and variables are the command's", async (t) => {
  const sandbox = await t.shared();
  const execution = succeeded(await sandbox.commands.run("pwd; echo $A-$B", { workingDirectory: "/usr/lib", envs: { A: "1", B: "two words" } }));
  assert.deepEqual(lines(execution.logs.stdout), ["/usr/lib", "1-two words"]);
  assert.deepEqual(lines(succeeded(await sandbox.commands.run("echo [$A]")).logs.stdout), ["[]"]);
  const home = lines(succeeded(await sandbox.commands.run("echo $HOME; cd; pwd")).logs.stdout);
  assert.deepEqual(lines(succeeded(await sandbox.commands.run("pwd", { workingDirectory: "~" })).logs.stdout), [home[1]]);
  assert.deepEqual(lines(succeeded(await sandbox.commands.run("pwd", { workingDirectory: "$HOME" })).logs.stdout), [home[1]]);
});

test("a folder that is not there is refused before anything runs", async (t) => {
  const sandbox = await t.shared();
  const error = await refused(t, 400, () => sandbox.commands.run("touch /tmp/ran", { workingDirectory: "/no/such" }));
  assert.ok(error.error.code.length > 0);
  failedWith(await sandbox.commands.run("test -e /tmp/ran"), 1);
});

test("an empty command and a group without user are refused", async (t) => {
  const sandbox = await t.shared();
  for (const body of [{ command: "" }, {}, { command: "true", gid: 1000 }, { command: 1 }]) {
    const reply = await t.execd(sandbox, "POST", "/command", body);
    const told = await reply.json();
    assert.equal(reply.status, 400, JSON.stringify(body));
    assert.ok(told.code && told.message, JSON.stringify(told));
    assert.match(reply.headers.get("content-type"), /^application\/json/);
  }
});

test("a command that takes too long is killed", async (t) => {
  const started = Date.now();
  const execution = failedWith(await (await t.shared()).commands.run("echo begun; sleep 60", { timeoutSeconds: 1 }), -1);
  assert.ok(Date.now() - started < 30_000);
  assert.deepEqual(lines(execution.logs.stdout), ["begun"]);
});

test("once: the stream is raw json with a blank line and a ping at once", async (t) => {
  const sandbox = await t.shared();
  const reply = await t.execd(sandbox, "POST", "/command", { command: "echo x" });
  assert.equal(reply.status, 200);
  assert.match(reply.headers.get("content-type"), /^text\/event-stream/);
  assert.equal(reply.headers.get("cache-control"), "no-cache");
  assert.equal(reply.headers.get("x-accel-buffering"), "no");
  const text = await reply.text();
  assert.ok(text.endsWith("\n\n"));
  const parts = text.slice(0, -2).split("\n\n").map((part) => JSON.parse(part));
  assert.deepEqual(parts.map((one) => one.type), ["init", "ping", "stdout", "execution_complete"]);
  assert.equal(parts[1].text, "pong");
  for (const part of parts) assert.ok(Number.isInteger(part.timestamp) && Math.abs(part.timestamp - Date.now()) < 60_000);
  assert.deepEqual(Object.keys(parts[2]).sort(), ["text", "timestamp", "type"]);
});

test("once: a quiet command is pinged", async (t) => {
  const seen = await events((await t.shared()).commands.runStream("sleep 4"));
  assert.ok(seen.filter((event) => event.type === "ping").length >= 2, JSON.stringify(seen));
});

test("output comes while the command runs", async (t) => {
  const sandbox = await t.shared();
  for await (const event of sandbox.commands.runStream("rm -f /tmp/go; echo ready; until test -e /tmp/go; do sleep 0.05; done; echo gone")) {
    if (event.type === "stdout" && event.text === "ready") succeeded(await sandbox.commands.run("touch /tmp/go"));
    if (event.type === "stdout") t.last = event.text;
  }
  assert.equal(t.last, "gone");
});

test("a background command has status and logs", async (t) => {
  const sandbox = await t.shared();
  const begun = Date.now();
  const execution = await sandbox.commands.run("echo first; sleep 1; echo second; echo third >&2; exit 3", { background: true });
  assert.ok(Date.now() - begun < 20_000);
  assert.ok(execution.id && execution.complete);
  const running = await sandbox.commands.getCommandStatus(execution.id);
  assert.equal(running.id, execution.id);
  assert.match(running.content, /^echo first; sleep 1/);
  assert.ok(running.startedAt instanceof Date);
  const done = await until(() => sandbox.commands.getCommandStatus(execution.id), (one) => one.running === false);
  assert.equal(done.exitCode, 3);
  assert.ok(done.finishedAt >= done.startedAt);
  const logs = await sandbox.commands.getBackgroundCommandLogs(execution.id);
  assert.equal(logs.content, "first\nsecond\nthird\n");
  assert.equal(logs.cursor, logs.content.length);
});

test("logs are followed by their cursor", async (t) => {
  const sandbox = await t.shared();
  const { id } = await sandbox.commands.run("for i in 1 2 3 4; do echo line $i; sleep 0.2; done", { background: true });
  let [cursor, text] = [undefined, ""];
  await until(async () => {
    const status = await sandbox.commands.getCommandStatus(id);
    const logs = await sandbox.commands.getBackgroundCommandLogs(id, cursor);
    cursor = logs.cursor;
    text += logs.content;
    return status;
  }, (status) => status.running === false);
  assert.equal(text, "line 1\nline 2\nline 3\nline 4\n");
  assert.equal((await sandbox.commands.getBackgroundCommandLogs(id, 7)).content, "line 2\nline 3\nline 4\n");
});

test("a command that was in the foreground has a status", async (t) => {
  const sandbox = await t.shared();
  const { id } = await sandbox.commands.run("exit 5");
  const status = await sandbox.commands.getCommandStatus(id);
  assert.equal(status.running, false);
  assert.equal(status.exitCode, 5);
  assert.equal(status.content, "exit 5");
});

test("a command that is not there", async (t) => {
  const sandbox = await t.shared();
  await refused(t, 404, () => sandbox.commands.getCommandStatus("none"), "INVALID_REQUEST_BODY");
  await refused(t, 404, () => sandbox.commands.getBackgroundCommandLogs("none"));
  await refused(t, 500, () => sandbox.commands.interrupt("none"));
});

test("interrupt ends a background command and its children", async (t) => {
  const sandbox = await t.shared();
  const { id } = await sandbox.commands.run("sh -c 'echo $$ > /tmp/child; exec sleep 300' & wait", { background: true });
  const child = (await until(() => sandbox.commands.run("cat /tmp/child"), (seen) => seen.exitCode === 0)).logs.stdout[0].text;
  await sandbox.commands.interrupt(id);
  const done = await until(() => sandbox.commands.getCommandStatus(id), (one) => one.running === false);
  assert.notEqual(done.exitCode, 0);
  await until(() => sandbox.commands.run(`kill -0 ${child}`), (seen) => seen.exitCode !== 0);
});

test("interrupt ends a foreground command and its stream", async (t) => {
  const sandbox = await t.shared();
  const execution = await sandbox.commands.run("echo begun; exec sleep 300", {}, {
    onStdout: () => {}, onInit: (init) => { setTimeout(() => sandbox.commands.interrupt(init.id).catch(() => {}), 300); },
  });
  assert.ok(execution.error, "no error event");
  assert.equal(execution.complete, undefined);
});

test("once: what ignores the term signal is killed", async (t) => {
  const sandbox = await t.shared();
  const { id } = await sandbox.commands.run("trap '' TERM; while :; do sleep 0.2; done", { background: true });
  await new Promise((resolve) => setTimeout(resolve, 300));
  await sandbox.commands.interrupt(id);
  await until(() => sandbox.commands.getCommandStatus(id), (one) => one.running === false);
});

test("once: a client that goes away stops no foreground command", async (t) => {
  const sandbox = await t.shared();
  const { endpoint, headers } = await sandbox.getEndpoint(44772);
  const body = JSON.stringify({ command: "echo begun; sleep 1; echo done > /tmp/survived" });
  await new Promise((resolve, reject) => {
    const gone = request(`http://${endpoint}/command`, { method: "POST", headers: { ...headers, "content-length": body.length } });
    gone.on("error", reject).on("response", (reply) => reply.on("error", () => {}).on("data", (part) => {
      if (String(part).includes("begun")) resolve(gone.destroy());
    }));
    gone.end(body);
  });
  await until(() => sandbox.commands.run("cat /tmp/survived"), (seen) => seen.exitCode === 0);
});

test("a command is root's where the sandbox may, and refused where not", async (t) => {
  const sandbox = await t.shared();
  const execution = await sandbox.commands.run("id -u", { uid: 0 });
  if (execution.error) assert.match(execution.error.value, /as root/); // it was not started: no number, no exit code
  else assert.deepEqual(lines(succeeded(execution).logs.stdout), ["0"]);
  assert.equal(execution.exitCode, execution.error ? null : 0);
});

test("many commands run at once", async (t) => {
  const sandbox = await t.shared();
  const all = await Promise.all(Array.from({ length: 12 }, (_, n) => sandbox.commands.run(`sleep 0.2; echo ${n}`)));
  assert.deepEqual(all.map((one) => lines(succeeded(one).logs.stdout)[0]), Array.from({ length: 12 }, (_, n) => String(n)));
});

test("a session keeps its folder and its variables", async (t) => {
  const sandbox = await t.shared();
  const id = await sandbox.commands.createSession({ workingDirectory: "/tmp" });
  t.later(() => sandbox.commands.deleteSession(id));
  const run = async (command, options) => lines(succeeded(await sandbox.commands.runInSession(id, command, options)).logs.stdout);
  assert.deepEqual(await run("pwd"), ["/tmp"]);
  assert.deepEqual(await run("export A=kept; B=too; mkdir -p inner; cd inner"), []);
  assert.deepEqual(await run("pwd; echo $A $B"), ["/tmp/inner", "kept too"]);
  assert.deepEqual(await run("pwd", { workingDirectory: "/usr" }), ["/usr"]);
  assert.deepEqual(await run("pwd"), ["/usr"]);
  assert.deepEqual(await run("echo out; echo err >&2; echo; echo last"), ["out", "err", "last"]);
});

test("a session's failure has its exit code and leaves the session", async (t) => {
  const sandbox = await t.shared();
  const id = await sandbox.commands.createSession();
  t.later(() => sandbox.commands.deleteSession(id));
  const failed = failedWith(await sandbox.commands.runInSession(id, "(exit 9)"), 9);
  assert.equal(failed.exitCode, 9);
  const execution = succeeded(await sandbox.commands.runInSession(id, "echo still here"));
  assert.equal(execution.exitCode, 0);
  assert.equal(execution.id, id);
  assert.deepEqual(lines(execution.logs.stdout), ["still here"]);
});

test("sessions are apart", async (t) => {
  const sandbox = await t.shared();
  const [one, other] = [await sandbox.commands.createSession(), await sandbox.commands.createSession()];
  assert.notEqual(one, other);
  for (const id of [one, other]) t.later(() => sandbox.commands.deleteSession(id));
  succeeded(await sandbox.commands.runInSession(one, "X=of-one; cd /"));
  assert.deepEqual(lines(succeeded(await sandbox.commands.runInSession(other, "echo [$X]")).logs.stdout), ["[]"]);
});

test("a session that is not there", async (t) => {
  const sandbox = await t.shared();
  await refused(t, 500, () => sandbox.commands.runInSession("none", "true"));
  await refused(t, 404, () => sandbox.commands.deleteSession("none"));
  const id = await sandbox.commands.createSession();
  await sandbox.commands.deleteSession(id);
  await refused(t, 500, () => sandbox.commands.runInSession(id, "true"));
  await refused(t, 400, () => sandbox.commands.createSession({ workingDirectory: "/no/such" }));
});

test("a session's command that takes too long ends", async (t) => {
  const sandbox = await t.shared();
  const id = await sandbox.commands.createSession();
  t.later(() => sandbox.commands.deleteSession(id).catch((error) => assert.equal(error.statusCode, 404)));
  const started = Date.now();
  await sandbox.commands.runInSession(id, "sleep 60", { timeoutSeconds: 1 });
  assert.ok(Date.now() - started < 30_000);
});
