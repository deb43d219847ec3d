// Runs cases by name with one version of the SDK: node driver.mjs MODULES PACKAGE, where MODULES is a folder node_modules.
// Takes a line of JSON for each on stdin, {"name"} or {"plant"}, and answers a line {"failed": text|null}. What it needs to know
// of the deployment stands in the environment: PARLEY_DOMAIN, PARLEY_PROTOCOL, PARLEY_KEY, PARLEY_OTHER_KEY, PARLEY_COMPAT_REPLIES.
import { readdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { plants } from "./plants.mjs";
import { plant, record } from "./record.mjs";
import { Bench } from "./world.mjs";

const [modules, name] = process.argv.slice(2);
record(process.env.PARLEY_COMPAT_REPLIES);
const sdk = await import(pathToFileURL(join(modules, name, "dist/index.js")));
const internal = await import(pathToFileURL(join(modules, name, "dist/internal.js")));
const folder = new URL("./cases/", import.meta.url);
const all = new Map();
for (const file of readdirSync(folder)) {
  for (const [title, run] of (await import(new URL(file, folder))).cases) all.set(title, run);
}

const bench = new Bench(sdk, internal);
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const name = asked.name ?? plants[asked.plant]?.of;
  plant(plants[asked.plant] ?? null);
  let failed = null;
  try {
    if (!all.has(name)) throw new Error(`there is no case ${name}`);
    await all.get(name)(bench);
  } catch (error) {
    failed = describe(error);
  }
  plant(null);
  try {
    await bench.sweep();
  } catch (error) {
    failed ??= "afterwards: " + describe(error);
  }
  process.stdout.write(JSON.stringify({ failed }) + "\n");
}
await bench.close();
process.exit(0); // a stream that a case left open keeps nothing waiting

function describe(error) {
  const more = ["statusCode", "rawBody", "requestId", "error"].filter((key) => error?.[key] !== undefined)
    .map((key) => `${key}=${JSON.stringify(error[key])}`).join(" ");
  return `${error?.stack ?? error} ${more}${error?.cause ? `\ncause: ${error.cause?.stack ?? error.cause}` : ""}`;
}
