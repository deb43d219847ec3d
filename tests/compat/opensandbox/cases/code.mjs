// Code on kernels: the SDK has no code interpreter of its own in this package, so it is driven over the wire, with the SDK's
// reader of streams.
import { assert, lines } from "../world.mjs";

export const cases = new Map();
const test = (title, run) => cases.set(title, run);

/** Runs code as a code interpreter's client does; the SDK's Execution and the events. */
async function run(t, sandbox, code, context, handlers) {
  const execution = { logs: { stdout: [], stderr: [] }, result: [] };
  const dispatcher = new t.sdk.ExecutionEventDispatcher(execution, handlers);
  const reply = await t.execd(sandbox, "POST", "/code", { code, ...(context ? { context } : {}) });
  assert.equal(reply.status, 200, reply.status === 200 ? "" : await reply.text());
  const events = (await reply.text()).split("\n\n").filter(Boolean).map((part) => JSON.parse(part));
  for (const event of events) await dispatcher.dispatch(event);
  return { execution, events };
}
async function context(t, sandbox, language, more = {}) {
  const reply = await t.execd(sandbox, "POST", "/code/context", { language, ...more });
  const made = await reply.json();
  assert.equal(reply.status, 200, JSON.stringify(made));
  assert.equal(made.language, language);
  t.later(() => t.execd(sandbox, "DELETE", `/code/contexts/${made.id}`));
  return made;
}

test("python gives a result, its count and its output", async (t) => {
  const sandbox = await t.shared();
  const python = await context(t, sandbox, "python");
  const first = await run(t, sandbox, "x = 40\nprint('out')\nx + 2", python);
  assert.equal(lines(first.execution.logs.stdout).join("").trim(), "out");
  assert.equal(first.execution.result[0].text, "42");
  assert.equal(first.execution.id, python.id);
  assert.equal(first.execution.executionCount, 1);
  assert.ok(first.execution.complete);
  const { results } = first.events.find((event) => event.type === "result");
  assert.equal(results.text, "42");
  assert.equal(results["text/plain"], "42");
  for (const value of Object.values(results)) assert.equal(typeof value, "string");
  const second = await run(t, sandbox, "x * 2", python);
  assert.equal(second.execution.result[0].text, "80");
  assert.equal(second.execution.executionCount, 2);
});

test("a python error has name, value and traceback, and then is complete", async (t) => {
  const sandbox = await t.shared();
  const { execution, events } = await run(t, sandbox, "print('before')\nnot_defined", { language: "python" });
  assert.equal(execution.error.name, "NameError");
  assert.match(execution.error.value, /not_defined/);
  assert.ok(execution.error.traceback.length > 0);
  assert.deepEqual(events.map((event) => event.type).slice(-2), ["error", "execution_complete"]);
});

test("a default context of a language keeps its state", async (t) => {
  const sandbox = await t.shared();
  await run(t, sandbox, "kept = 'yes'", { language: "python" });
  assert.equal((await run(t, sandbox, "kept", { language: "python" })).execution.result[0].text, "'yes'");
});

test("once: contexts are listed, shown and deleted", async (t) => {
  const sandbox = await t.shared();
  const made = await context(t, sandbox, "python");
  const all = await (await t.execd(sandbox, "GET", "/code/contexts")).json();
  assert.ok(all.some((one) => one.id === made.id && one.language === "python"));
  const some = await (await t.execd(sandbox, "GET", "/code/contexts?language=bash")).json();
  assert.ok(some.every((one) => one.language === "bash"));
  assert.deepEqual(await (await t.execd(sandbox, "GET", `/code/contexts/${made.id}`)).json(), made);
  const gone = await t.execd(sandbox, "DELETE", `/code/contexts/${made.id}`);
  assert.equal(gone.status, 200);
  assert.equal(gone.headers.get("content-length"), "0");
  for (const method of ["GET", "DELETE"]) {
    const reply = await t.execd(sandbox, method, `/code/contexts/${made.id}`);
    assert.equal(reply.status, 404);
    assert.equal((await reply.json()).code, "CONTEXT_NOT_FOUND");
  }
});

test("once: contexts of one language are deleted together", async (t) => {
  const sandbox = await t.create();
  for (const language of ["bash", "bash"]) assert.equal((await t.execd(sandbox, "POST", "/code/context", { language })).status, 200);
  assert.equal((await t.execd(sandbox, "DELETE", "/code/contexts?language=bash")).status, 200);
  assert.deepEqual(await (await t.execd(sandbox, "GET", "/code/contexts?language=bash")).json(), []);
  assert.equal((await t.execd(sandbox, "DELETE", "/code/contexts")).status, 400);
});

test("bash code keeps its state and says its exit code", async (t) => {
  const sandbox = await t.shared();
  const bash = await context(t, sandbox, "bash");
  await run(t, sandbox, "A=kept; cd /usr", bash);
  const second = await run(t, sandbox, "echo $A $PWD", bash);
  assert.equal(lines(second.execution.logs.stdout).join("").trim(), "kept /usr");
  assert.ok(second.execution.complete);
  const failed = await run(t, sandbox, "(exit 4)", bash);
  assert.equal(failed.execution.error.value, "4");
});

test("code of no language is a command", async (t) => {
  const sandbox = await t.shared();
  const { execution } = await run(t, sandbox, "echo plain");
  assert.deepEqual(lines(execution.logs.stdout), ["plain"]);
  assert.ok(execution.complete);
});

test("once: javascript and typescript run", async (t) => {
  const sandbox = await t.shared();
  for (const [language, code] of [["javascript", "console.log([1, 2].map((x) => x * 2).join())"], ["typescript", "const xs: number[] = [1, 2]; console.log(xs.map((x) => x * 2).join())"]]) {
    const { execution } = await run(t, sandbox, code, { language });
    assert.equal(lines(execution.logs.stdout).join("").trim(), "2,4", language);
    assert.equal(execution.error, undefined);
  }
});

test("once: a language that is not there is a clear error", async (t) => {
  const sandbox = await t.shared();
  for (const language of ["cobol", ""]) {
    const reply = await t.execd(sandbox, "POST", "/code/context", { language });
    assert.ok([400, 500].includes(reply.status), `${language}: ${reply.status}`);
    const told = await reply.json();
    assert.ok(told.code && told.message.length > 5, JSON.stringify(told));
  }
});

test("once: a context that is not there and one that is busy", async (t) => {
  const sandbox = await t.shared();
  const reply = await t.execd(sandbox, "POST", "/code", { code: "1", context: { id: "none" } });
  assert.equal(reply.status, 500);
  assert.ok((await reply.json()).message);
  const python = await context(t, sandbox, "python");
  const long = t.execd(sandbox, "POST", "/code", { code: "import time\nprint('on', flush=True)\ntime.sleep(60)", context: python });
  const stream = (await long).body.getReader();
  let seen = "";
  while (!seen.includes('"on')) seen += new TextDecoder().decode((await stream.read()).value);
  const second = await t.execd(sandbox, "POST", "/code", { code: "1", context: python });
  assert.equal(second.status, 500);
  assert.match((await second.json()).message, /busy/);
  const interrupted = await t.execd(sandbox, "DELETE", `/code?id=${python.id}`);
  assert.equal(interrupted.status, 200);
  for (let part = await stream.read(); !part.done; part = await stream.read()) seen += new TextDecoder().decode(part.value);
  assert.match(seen, /KeyboardInterrupt/);
  const after = await run(t, sandbox, "1 + 1", python);
  assert.equal(after.execution.result[0].text, "2");
  assert.equal((await t.execd(sandbox, "DELETE", "/code?id=none")).status, 500);
});

test("once: a context begins in its folder", async (t) => {
  const sandbox = await t.shared();
  const python = await context(t, sandbox, "python", { cwd: "/usr/lib" });
  assert.equal((await run(t, sandbox, "import os; os.getcwd()", python)).execution.result[0].text, "'/usr/lib'");
});

test("once: metrics are watched a line a second", async (t) => {
  const sandbox = await t.shared();
  const gone = new AbortController();
  const { endpoint, headers } = await sandbox.getEndpoint(44772);
  const reply = await fetch(`${t.protocol}://${endpoint}/metrics/watch`, { headers, signal: gone.signal });
  assert.match(reply.headers.get("content-type"), /^text\/event-stream/);
  let seen = "";
  for await (const part of reply.body) {
    seen += new TextDecoder().decode(part);
    if (seen.split("\n").length > 3) break;
  }
  gone.abort();
  const rows = seen.split("\n").slice(0, 3).map((line) => JSON.parse(line));
  assert.ok(rows.every((row) => row.mem_total_mib > 0 && row.cpu_count > 0));
  assert.ok(rows[1].timestamp - rows[0].timestamp > 500 && rows[2].timestamp > rows[1].timestamp);
});
