// Answers what the SDK asks, at once, and does nothing: what a series takes against it is the client's own part (the SDK, node,
// two ends of a loopback connection). Prints its port.
import { createServer } from "node:http";

const now = () => new Date().toISOString();
const made = { id: "idle", status: { state: "Running" }, createdAt: now(), entrypoint: ["tail"], expiresAt: now() };
const event = (type, more = {}) => JSON.stringify({ type, timestamp: Date.now(), ...more }) + "\n\n";
const zeros = new Map();

function json(reply, status, value) {
  const text = JSON.stringify(value);
  reply.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) }).end(text);
}

function stream(reply, ...events) {
  reply.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" }).end(events.join(""));
}

function download(reply, size) {
  if (!zeros.has(size)) zeros.set(size, Buffer.alloc(size));
  reply.writeHead(200, { "content-type": "application/octet-stream", "content-length": size }).end(zeros.get(size));
}

function answer(request, reply) {
  const url = new URL(request.url, "http://idle");
  const at = (method, path) => request.method === method && url.pathname.endsWith(path);
  if (at("POST", "/v1/sandboxes")) return json(reply, 202, made);
  if (url.pathname.includes("/endpoints/")) return json(reply, 200, { endpoint: request.headers.host + "/port", headers: { "X-EXECD-ACCESS-TOKEN": "x" } });
  if (at("GET", "/files/download")) return download(reply, Number(url.searchParams.get("path").match(/(\d+)$/)[1]));
  if (at("POST", "/command")) return stream(reply, event("init", { text: "c" }), event("ping", { text: "pong" }), event("execution_complete", { execution_time: 1 }));
  if (at("POST", "/code")) return stream(reply, event("init", { text: "c" }), event("ping", { text: "pong" }), event("result", { results: { text: "2", "text/plain": "2" } }), event("execution_complete", { execution_time: 1 }));
  if (request.method === "DELETE") return reply.writeHead(204).end();
  return reply.writeHead(200, { "content-length": 0 }).end();
}

const server = createServer((request, reply) => {
  request.on("data", () => {}).on("end", () => answer(request, reply));
});
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
