// Keeps what every request got, a line of JSON each, for the checks of types_test.py; what has no end or is large is cut.
import { appendFileSync } from "node:fs";

const KEPT_MAX = 256 * 1024;
let planted = null;

/** From now on the replies that the plant is about (plants.mjs) are changed; null: none. */
export function plant(one) {
  planted = one;
}

/** Puts itself before the fetch that the SDK takes when it is loaded. */
export function record(path) {
  const plain = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const reply = await plain(input, init);
    const method = init?.method ?? (input instanceof Request ? input.method : "GET");
    const url = input instanceof Request ? input.url : String(input);
    if (planted?.at.test(`${method} ${url}`)) return changed(reply);
    const row = { method, url, status: reply.status, headers: Object.fromEntries(reply.headers) };
    if (!reply.body || url.endsWith("/watch")) { // which is without end: one half of a tee cannot be left
      keep(path, { ...row, body: reply.body ? null : "" });
      return reply;
    }
    const [theirs, ours] = reply.body.tee();
    read(ours).then((body) => keep(path, { ...row, body }), () => {});
    return new Proxy(reply, { get: (of, key) => shown(of, key, theirs) });
  };
}

async function changed(reply) {
  const { body, status, headers } = planted.change({ status: reply.status, headers: Object.fromEntries(reply.headers), body: await reply.text() });
  return new Response(status === 204 ? null : body, { status, headers });
}

function shown(reply, key, body) {
  if (key === "body") return body;
  const bodies = ["text", "json", "arrayBuffer", "blob", "bytes"];
  if (bodies.includes(key)) return () => new Response(body, { headers: reply.headers })[key]();
  const value = reply[key];
  return typeof value === "function" ? value.bind(reply) : value;
}

async function read(body) {
  const parts = [];
  let size = 0;
  for await (const part of body) {
    if (size < KEPT_MAX) parts.push(part);
    size += part.length;
  }
  return size > KEPT_MAX ? null : new TextDecoder().decode(Buffer.concat(parts));
}

function keep(path, row) {
  if (path) appendFileSync(path, JSON.stringify(row) + "\n");
}
