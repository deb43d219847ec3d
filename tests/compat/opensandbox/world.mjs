// What cases work with: connections of the SDK to the deployment, sandboxes that end with their case, one that all share.
import assert from "node:assert/strict";

export { assert };
export const IMAGE = "python:3.11-slim";

export class Bench {
  constructor(sdk, internal) {
    this.sdk = sdk;
    this.internal = internal;
    this.domain = process.env.PARLEY_DOMAIN;
    this.protocol = process.env.PARLEY_PROTOCOL;
    this.key = process.env.PARLEY_KEY;
    this.otherKey = process.env.PARLEY_OTHER_KEY;
    this.opened = [];
    this.kept = null;
  }

  /** A configuration; each object that takes it makes its own connections. */
  connection(more = {}) {
    return new this.sdk.ConnectionConfig({ domain: this.domain, protocol: this.protocol, apiKey: this.key, requestTimeoutSeconds: 60, ...more });
  }

  /** A sandbox that is killed when the case ends. */
  async create(more = {}) {
    const sandbox = await this.sdk.Sandbox.create({ connectionConfig: this.connection(), image: IMAGE, ...more });
    this.opened.push(sandbox);
    return sandbox;
  }

  /** The one of all cases that leave nothing behind which the next would meet. */
  async shared() {
    this.kept ??= await this.sdk.Sandbox.create({ connectionConfig: this.connection(), image: IMAGE });
    return this.kept;
  }

  manager(more = {}) {
    const manager = this.sdk.SandboxManager.create({ connectionConfig: this.connection(more) });
    this.opened.push({ kill: () => {}, close: () => manager.close() });
    return manager;
  }

  /** Something else that ends with the case. */
  later(act) {
    this.opened.push({ kill: act, close: () => {} });
  }

  async sweep() {
    for (const one of this.opened.splice(0).reverse()) {
      try {
        await one.kill();
      } catch (error) {
        if (error?.statusCode !== 404) throw error;
      } finally {
        await one.close();
      }
    }
  }

  async close() {
    await this.kept?.kill();
    await this.kept?.close();
  }

  /** A request of our own to the lifecycle server: the Response. */
  ask(method, path, body, headers = {}) {
    return fetch(`${this.protocol}://${this.domain}/v1${path}`, {
      method,
      headers: { "OPEN-SANDBOX-API-KEY": this.key, ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  }

  /** A request of our own to a port of the sandbox, with what its endpoint demands: the Response. */
  async askPort(sandbox, port, method, path, body, headers = {}) {
    const { endpoint, headers: demanded } = await sandbox.getEndpoint(port);
    return fetch(`${this.protocol}://${endpoint}${path}`, {
      method,
      headers: { ...demanded, ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  }

  execd(sandbox, method, path, body, headers) {
    return this.askPort(sandbox, 44772, method, path, body, headers);
  }
}

/** The error that act throws, which must be the SDK's for a reply of that status. */
export async function refused(bench, status, act, code) {
  let thrown = null;
  try {
    await act();
  } catch (error) {
    thrown = error;
  }
  assert.ok(thrown, `not refused; ${status} was expected`);
  assert.ok(thrown instanceof bench.sdk.SandboxApiException, `not a SandboxApiException: ${thrown.stack}`);
  assert.equal(thrown.statusCode, status, `${thrown.message} ${JSON.stringify(thrown.rawBody)}`);
  assert.ok(thrown.requestId, "the error names no request");
  if (code) assert.equal(thrown.error.code, code);
  return thrown;
}

/** Asks until it holds; the last answer. */
export async function until(look, holds, what = "it did not come") {
  const end = Date.now() + 30_000;
  for (;;) {
    const seen = await look();
    if (holds(seen)) return seen;
    assert.ok(Date.now() < end, `${what}: ${JSON.stringify(seen)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export const lines = (messages) => messages.map((message) => message.text);

/** Asserts the outcome of a foreground execution: exactly one of complete and error. */
export function succeeded(execution) {
  assert.equal(execution.error, undefined, JSON.stringify(execution.error));
  assert.ok(execution.complete, "no execution_complete");
  assert.ok(execution.complete.executionTimeMs >= 0);
  assert.ok(execution.id, "init had no id");
  return execution;
}

export function failedWith(execution, value) {
  assert.ok(execution.error, "no error event");
  assert.equal(execution.error.name, "CommandExecError");
  assert.equal(execution.error.value, String(value));
  assert.equal(execution.complete, undefined, "an execution_complete beside the error");
  return execution;
}
