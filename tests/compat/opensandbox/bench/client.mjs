// Series through the SDK, each act in turn against each of the domains: node client.mjs MODULES TIMES LARGE_TIMES DOMAIN KEY ...
// Prints {act: [seconds of the first domain, of the second ...]}.
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, times, largeTimes, ...places] = process.argv.slice(2);
const { ConnectionConfig, Sandbox } = await import(pathToFileURL(join(modules, "opensandbox-0.1.11/dist/index.js")));
const MB = 1_000_000;

class Place {
  constructor(domain, key) {
    this.config = new ConnectionConfig({ domain, apiKey: key, requestTimeoutSeconds: 120, disableMetrics: true }).withTransportIfMissing();
  }

  create() {
    return Sandbox.create({ connectionConfig: this.config, image: "python:3.11" });
  }

  async begin() {
    this.sandbox = await this.create();
    const { endpoint, headers } = await this.sandbox.getEndpoint(44772);
    this.code = [`http://${endpoint}/code`, { ...headers, "content-type": "application/json" }];
  }

  async true(sandbox = this.sandbox) {
    const done = await sandbox.commands.run("true");
    if (done.exitCode !== 0) throw new Error(JSON.stringify(done));
  }

  async cell() {
    const reply = await this.config.sseFetch(this.code[0], { method: "POST", headers: this.code[1],
      body: JSON.stringify({ code: "1+1", context: { language: "python" } }) });
    const text = await reply.text();
    if (!text.includes('"text/plain":"2"')) throw new Error(text);
  }

  async up(size) {
    await this.sandbox.files.writeFiles([{ path: `/tmp/bench-${size}`, data: data(size) }]);
  }

  async down(size) {
    let seen = 0;
    for await (const part of this.sandbox.files.readBytesStream(`/tmp/bench-${size}`)) seen += part.length;
    if (seen !== size) throw new Error(`${seen} bytes, not ${size}`);
  }
}

const kept = new Map();
function data(size) {
  if (!kept.has(size)) kept.set(size, new Uint8Array(size).map((_, n) => n * 31));
  return kept.get(size);
}

const all = [];
for (let at = 0; at < places.length; at += 2) all.push(new Place(places[at], places[at + 1]));
const series = {};

async function timed(name, place, act) {
  const began = performance.now();
  const result = await act(place);
  ((series[name] ??= all.map(() => []))[all.indexOf(place)]).push((performance.now() - began) / 1e3);
  return result;
}

async function turns(name, count, act, after = () => {}) {
  for (let n = 0; n < count; n++) for (const place of all) await after(await timed(name, place, act));
}

for (const place of all) {
  await place.begin();
  for (let n = 0; n < 3; n++) await Promise.all([place.true(), place.cell(), place.up(MB)]);
  await place.up(100 * MB);
}
await turns("create and first command", times, async (place) => {
  const sandbox = await place.create();
  await place.true(sandbox);
  return sandbox;
}, (sandbox) => sandbox.kill());
await turns("true", times, (place) => place.true());
await turns("python cell", times, (place) => place.cell());
for (const [size, name, count] of [[MB, "1 MB", times], [100 * MB, "100 MB", largeTimes]]) {
  await turns(`${name} up`, count, (place) => place.up(size));
  await turns(`${name} down`, count, (place) => place.down(size));
}
for (const place of all) await place.sandbox.kill();
console.log(JSON.stringify(series));
process.exit(0);
