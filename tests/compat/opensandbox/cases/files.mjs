// Files and folders.
import { assert, lines, refused, succeeded } from "../world.mjs";

export const cases = new Map();
const test = (title, run) => cases.set(title, run);
let number = 0;

/** A folder of the case's own in the shared sandbox. */
async function place(t) {
  const sandbox = await t.shared();
  const folder = `/tmp/files-${process.pid}-${++number}`;
  await sandbox.files.createDirectories([{ path: folder, mode: 755 }]);
  return [sandbox, folder, sandbox.files];
}
const bytes = (size) => Uint8Array.from({ length: size }, (_, n) => (n * 7 + (n >> 8)) & 255);
async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return new Uint8Array(Buffer.concat(parts));
}
const modes = async (sandbox, path) => lines(succeeded(await sandbox.commands.run(`stat -c %a ${path}`)).logs.stdout)[0];

test("what is written is read", async (t) => {
  const [sandbox, folder, files] = await place(t);
  await files.writeFiles([{ path: `${folder}/a.txt`, data: "first\n" }, { path: `${folder}/b.bin`, data: bytes(70_000) },
    { path: `${folder}/empty` }, { path: `${folder}/blob`, data: new Blob(["of a blob"]) }, { path: `${folder}/buffer`, data: bytes(9).buffer }]);
  assert.equal(await files.readFile(`${folder}/a.txt`), "first\n");
  assert.deepEqual(await files.readBytes(`${folder}/b.bin`), bytes(70_000));
  assert.equal(await files.readFile(`${folder}/empty`), "");
  assert.equal(await files.readFile(`${folder}/blob`), "of a blob");
  assert.deepEqual(await files.readBytes(`${folder}/buffer`), bytes(9));
  assert.deepEqual(lines(succeeded(await sandbox.commands.run(`cat ${folder}/a.txt`)).logs.stdout), ["first"]);
});

test("writing makes the folders above and replaces", async (t) => {
  const [, folder, files] = await place(t);
  await files.writeFiles([{ path: `${folder}/x/y/z.txt`, data: "longer than the next" }]);
  await files.writeFiles([{ path: `${folder}/x/y/z.txt`, data: "short" }]);
  assert.equal(await files.readFile(`${folder}/x/y/z.txt`), "short");
});

test("a stream is uploaded in chunks", async (t) => {
  const [, folder, files] = await place(t);
  async function* slowly() {
    for (let n = 0; n < 20; n++) {
      yield bytes(50_000);
      if (n % 5 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  await files.writeFiles([{ path: `${folder}/streamed`, data: slowly() }]);
  const read = await collect(files.readBytesStream(`${folder}/streamed`));
  assert.equal(read.length, 1_000_000);
  assert.deepEqual(read.slice(950_000), bytes(50_000));
  await files.writeFiles([{ path: `${folder}/web`, data: new Blob(["as a web stream"]).stream() }]);
  assert.equal(await files.readFile(`${folder}/web`), "as a web stream");
});

test("modes are decimal digits", async (t) => {
  const [sandbox, folder, files] = await place(t);
  await files.writeFiles([{ path: `${folder}/run`, data: "x", mode: 755 }, { path: `${folder}/mine`, data: "x", mode: 600 }]);
  assert.equal(await modes(sandbox, `${folder}/run`), "755");
  assert.equal(await modes(sandbox, `${folder}/mine`), "600");
  const info = await files.getFileInfo([`${folder}/run`, `${folder}/mine`]);
  assert.equal(info[`${folder}/run`].mode, 755);
  assert.equal(info[`${folder}/mine`].mode, 600);
  await files.setPermissions([{ path: `${folder}/mine`, mode: 644 }, { path: `${folder}/run`, mode: 700 }]);
  assert.equal(await modes(sandbox, `${folder}/mine`), "644");
  assert.equal(await modes(sandbox, `${folder}/run`), "700");
});

test("owner and group are set by name", async (t) => {
  const [sandbox, folder, files] = await place(t);
  const [user, group] = lines(succeeded(await sandbox.commands.run("id -un; id -gn")).logs.stdout);
  await files.writeFiles([{ path: `${folder}/f`, data: "x", owner: user, group }, { path: `${folder}/g`, data: "x", owner: "no-such-user", group: "no-such-group" }]);
  await files.setPermissions([{ path: `${folder}/f`, mode: 600, owner: user, group }]);
  const info = await files.getFileInfo([`${folder}/f`]);
  assert.deepEqual([info[`${folder}/f`].owner, info[`${folder}/f`].group, info[`${folder}/f`].mode], [user, group, 600]);
});

test("facts of a file", async (t) => {
  const [sandbox, folder, files] = await place(t);
  await files.writeFiles([{ path: `${folder}/f`, data: "12345", mode: 640 }]);
  succeeded(await sandbox.commands.run(`ln -s f ${folder}/l; mkdir ${folder}/d; mkfifo ${folder}/p`));
  const info = await files.getFileInfo(["f", "l", "d", "p"].map((name) => `${folder}/${name}`));
  const f = info[`${folder}/f`];
  assert.equal(f.path, `${folder}/f`);
  assert.equal(f.size, 5);
  assert.ok(Math.abs(f.modifiedAt - Date.now()) < 120_000 && Math.abs(f.createdAt - Date.now()) < 120_000);
  const [user, group] = lines(succeeded(await sandbox.commands.run("id -un; id -gn")).logs.stdout);
  assert.equal(f.owner, user);
  assert.equal(f.group, group);
  const raw = await (await t.execd(sandbox, "GET", `/files/info?${["f", "l", "d", "p"].map((name) => `path=${folder}/${name}`).join("&")}`)).json();
  assert.deepEqual(["f", "l", "d", "p"].map((name) => raw[`${folder}/${name}`].type), ["file", "symlink", "directory", "other"]);
});

test("one missing file is a 404 for all", async (t) => {
  const [, folder, files] = await place(t);
  await files.writeFiles([{ path: `${folder}/is`, data: "x" }]);
  await refused(t, 404, () => files.getFileInfo([`${folder}/is`, `${folder}/is-not`]), "FILE_NOT_FOUND");
});

test("reading what is not there is refused", async (t) => {
  const [, folder, files] = await place(t);
  await refused(t, 404, () => files.readFile(`${folder}/none`));
  await refused(t, 404, () => collect(files.readBytesStream(`${folder}/none`)));
});

test("a range is read", async (t) => {
  const [sandbox, folder, files] = await place(t);
  const path = `${folder}/r`;
  await files.writeFiles([{ path, data: "0123456789" }]);
  for (const [range, expected] of [["bytes=0-3", "0123"], ["bytes=4-", "456789"], ["bytes=-2", "89"], ["bytes=8-100", "89"], ["bytes=0-0,5-6", "0"]]) {
    assert.equal(await files.readFile(path, { range }), expected, range);
  }
  const get = (range) => t.execd(sandbox, "GET", `/files/download?path=${path}`, undefined, range ? { Range: range } : {});
  const part = await get("bytes=2-4");
  assert.equal(part.status, 206);
  assert.equal(part.headers.get("content-range"), "bytes 2-4/10");
  assert.equal(part.headers.get("content-length"), "3");
  const whole = await get();
  assert.equal(whole.status, 200);
  assert.equal(whole.headers.get("accept-ranges"), "bytes");
  assert.match(whole.headers.get("content-disposition"), /^attachment/);
  assert.match(whole.headers.get("content-type"), /^application\/octet-stream/);
  assert.equal(await whole.text(), "0123456789");
  const past = await get("bytes=10-");
  assert.equal(past.status, 416);
  assert.equal(past.headers.get("content-range"), "bytes */10");
  const malformed = await get("bytes=b-a");
  assert.equal(malformed.status, 416);
  assert.equal((await malformed.json()).code, "UNKNOWN");
});

test("since 0.1.11: lines are read by offset and limit", async (t) => {
  const [sandbox, folder, files] = await place(t);
  const path = `${folder}/lines`;
  await files.writeFiles([{ path, data: "one\r\ntwo\nthree\nfour\n" }]);
  assert.equal(await files.readFile(path, { offset: 2, limit: 2 }), "two\nthree");
  assert.equal(await files.readFile(path, { limit: 1 }), "one");
  assert.equal(await files.readFile(path, { offset: 4 }), "four");
  await refused(t, 400, () => files.readFile(path, { offset: 0 }));
  await refused(t, 400, () => files.readFile(path, { limit: 0 }));
  await refused(t, 400, () => files.readFile(path, { offset: 1, range: "bytes=0-1" }));
  const reply = await t.execd(sandbox, "GET", `/files/download?path=${path}&offset=1`);
  assert.match(reply.headers.get("content-type"), /^text\/plain/);
});

test("search goes by the base name", async (t) => {
  const [, folder, files] = await place(t);
  await files.writeFiles(["a.py", "sub/b.py", "sub/deep/c.py", "sub/d.txt"].map((name) => ({ path: `${folder}/${name}`, data: name })));
  const found = async (pattern) => (await files.search({ path: folder, pattern })).map((one) => one.path.slice(folder.length + 1)).sort();
  assert.deepEqual(await found("*.py"), ["a.py", "sub/b.py", "sub/deep/c.py"]);
  assert.deepEqual(await found("?.txt"), ["sub/d.txt"]);
  assert.deepEqual(await found("sub"), [], "a folder is no file");
  assert.equal((await found(undefined)).length, 4);
  const [one] = await files.search({ path: folder, pattern: "d.txt" });
  assert.equal(one.size, 9);
  assert.ok(one.modifiedAt instanceof Date);
  await refused(t, 404, () => files.search({ path: `${folder}/none`, pattern: "*" }));
});

test("text is replaced everywhere", async (t) => {
  const [, folder, files] = await place(t);
  await files.writeFiles([{ path: `${folder}/1`, data: "a.b a.b axb", mode: 640 }, { path: `${folder}/2`, data: "none" }]);
  await files.replaceContents([{ path: `${folder}/1`, oldContent: "a.b", newContent: "c" }]);
  assert.equal(await files.readFile(`${folder}/1`), "c c axb");
  assert.equal((await files.getFileInfo([`${folder}/1`]))[`${folder}/1`].mode, 640);
  await refused(t, 400, () => files.replaceContents([{ path: `${folder}/1`, oldContent: "", newContent: "x" }]));
  await assert.rejects(() => files.replaceContents([{ path: `${folder}/none`, oldContent: "x", newContent: "y" }]), { statusCode: 404 });
});

test("since 0.1.11: replacements are counted", async (t) => {
  const [, folder, files] = await place(t);
  await files.writeFiles([{ path: `${folder}/1`, data: "x x x" }, { path: `${folder}/2`, data: "none" }]);
  const counts = await files.replaceContentsDetailed([{ path: `${folder}/1`, oldContent: "x", newContent: "yy" }, { path: `${folder}/2`, oldContent: "x", newContent: "y" }]);
  assert.deepEqual(counts.sort((a, b) => a.path.localeCompare(b.path)), [{ path: `${folder}/1`, replacedCount: 3 }, { path: `${folder}/2`, replacedCount: 0 }]);
});

test("files are moved", async (t) => {
  const [, folder, files] = await place(t);
  await files.writeFiles([{ path: `${folder}/from`, data: "moved" }, { path: `${folder}/other`, data: "stays" }]);
  await files.moveFiles([{ src: `${folder}/from`, dest: `${folder}/new/to` }]);
  assert.equal(await files.readFile(`${folder}/new/to`), "moved");
  await refused(t, 404, () => files.moveFiles([{ src: `${folder}/from`, dest: `${folder}/x` }]));
  await refused(t, 500, () => files.moveFiles([{ src: `${folder}/new/to`, dest: `${folder}/other` }]));
  assert.equal(await files.readFile(`${folder}/other`), "stays");
});

test("files are deleted and a missing one is fine", async (t) => {
  const [, folder, files] = await place(t);
  await files.writeFiles([{ path: `${folder}/1`, data: "x" }, { path: `${folder}/2`, data: "x" }]);
  await files.deleteFiles([`${folder}/1`, `${folder}/2`, `${folder}/none`]);
  await refused(t, 404, () => files.getFileInfo([`${folder}/1`]));
  await refused(t, 500, () => files.deleteFiles([folder]));
});

test("folders are made and deleted", async (t) => {
  const [sandbox, folder, files] = await place(t);
  await files.createDirectories([{ path: `${folder}/a/b`, mode: 700 }, { path: `${folder}/c` }]);
  assert.equal(await modes(sandbox, `${folder}/a/b`), "700");
  assert.equal(await modes(sandbox, `${folder}/c`), "755");
  await files.createDirectories([{ path: `${folder}/a/b`, mode: 700 }]);
  await files.writeFiles([{ path: `${folder}/a/b/f`, data: "x" }]);
  await files.deleteDirectories([`${folder}/a`]);
  await refused(t, 404, () => files.getFileInfo([`${folder}/a`]));
});

test("since 0.1.11: a folder is listed", async (t) => {
  const [sandbox, folder, files] = await place(t);
  await files.writeFiles(["b", "a", "sub/x", "sub/deep/y"].map((name) => ({ path: `${folder}/${name}`, data: name })));
  succeeded(await sandbox.commands.run(`ln -s sub ${folder}/link`));
  const listed = async (depth) => (await files.listDirectory({ path: folder, depth })).map((one) => [one.path.slice(folder.length + 1), one.type]);
  assert.deepEqual(await listed(undefined), [["a", "file"], ["b", "file"], ["link", "symlink"], ["sub", "directory"]]);
  assert.deepEqual((await listed(2)).map(([name]) => name), ["a", "b", "link", "sub", "sub/deep", "sub/x"]);
  assert.equal((await listed(3)).length, 7);
  assert.deepEqual(await listed(0), []);
  await refused(t, 404, () => files.listDirectory({ path: `${folder}/none` }));
  await refused(t, 400, () => files.listDirectory({ path: `${folder}/a` }));
  await refused(t, 400, () => files.listDirectory({ path: `${folder}/link` }));
});

test("a name with everything in it", async (t) => {
  const [sandbox, folder, files] = await place(t);
  const path = `${folder}/gr\u00fc\u00dfe & 50% + #1?.txt`;
  await files.writeFiles([{ path, data: "odd" }]);
  assert.equal(await files.readFile(path), "odd");
  assert.equal((await files.getFileInfo([path]))[path].size, 3);
  const reply = await t.execd(sandbox, "GET", `/files/download?path=${encodeURIComponent(path)}`);
  assert.match(reply.headers.get("content-disposition"), /filename\*=UTF-8''/i);
  await files.deleteFiles([path]);
});

test("what the user of the sandbox may not is refused", async (t) => {
  const sandbox = await t.shared();
  if (lines((await sandbox.commands.run("id -u")).logs.stdout)[0] === "0") return;
  await assert.rejects(() => sandbox.files.writeFiles([{ path: "/proc/sys/kernel/hostname", data: "x" }]), (error) => error.statusCode >= 400);
  await assert.rejects(() => sandbox.files.readFile("/etc/shadow"), (error) => error.statusCode >= 400);
});

test("once: ten megabytes go up and come down", async (t) => {
  const [, folder, files] = await place(t);
  const data = bytes(10_000_000);
  await files.writeFiles([{ path: `${folder}/ten`, data }]);
  assert.ok(Buffer.from(await files.readBytes(`${folder}/ten`)).equals(Buffer.from(data)));
});
