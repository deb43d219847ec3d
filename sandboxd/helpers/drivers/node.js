// node.js - JavaScript and TypeScript in a process of node, beside host/node.c. A cell is evaluated as in the consoles of
// browsers (V8's REPL mode, by way of the inspector, which opens no port): let and const may come again, await stands at
// the top. Frames go to the control pipe; the host passes on what lies in the pipes of stdout and stderr before each.
(function (require, load) {
    "use strict";
    const fs = require("fs"), path = require("path"), util = require("util"), vm = require("vm");
    const childProcess = require("child_process"), events = require("events"), moduleLoader = require("module");
    const REQUESTS = 4, CONTROL = 5, CODE = 6, ACKNOWLEDGED = 7;
    const FRAME_MAX = 15 * 1024 * 1024, TEXT_MAX = 1024 * 1024, JSON_MAX = 1024 * 1024, PIECE = 65536, MIMES_MAX = 64, ID_MAX = 1000;
    const NO_STDIN = "this code runs where nobody can type: put the value into a variable, pass it in the environment, " +
        "or start the program as a process, which has a stdin";
    const HOOK = Symbol("parley");
    const [language, mode, ...programArguments] = process.argv.slice(1);
    const exitNow = process.reallyExit.bind(process);

    // -- out

    function write(fd, bytes) {
        for (let at = 0; at < bytes.length;) {
            try {
                at += fs.writeSync(fd, bytes, at);
            } catch (error) {
                if (error.code !== "EAGAIN" && error.code !== "EINTR")
                    exitNow(1);
            }
        }
    }

    let run = {id: "", silent: false, count: 0, settle: null};
    function frame(kind, body) {
        let line = toLine(kind, body);
        if (line.length > FRAME_MAX)
            line = toLine("stderr", {run: run.id, text: `[left out: ${kind} of ${line.length} bytes, and a frame holds 16 MiB]\n`});
        write(CONTROL, line);
    }

    function toLine(kind, body) {
        const json = JSON.stringify({[kind]: body}, readable);
        return Buffer.from(json.replace(/\\(?:\\|ud[89a-f][0-9a-f]{2})/g, found => found.length > 2 ? "\ufffd" : found) + "\n");
    }

    // What readers of JSON refuse: half a surrogate pair (of names toLine takes care), an integer beyond 64 bits.
    function readable(_key, value) {
        if (typeof value === "string")
            return /[\ud800-\udfff]/.test(value) ? Buffer.from(value).toString() : value;
        return typeof value === "number" && Number.isInteger(value) && Math.abs(value) >= 2 ** 63 ? String(value) : value;
    }

    function text(kind, content) {
        for (let at = 0, to; at < content.length; at = to) {
            to = at + PIECE;
            if ((content.charCodeAt(to - 1) & 0xfc00) === 0xd800)
                to++; // not between the halves of a pair
            frame(kind, {run: run.id, text: content.slice(at, to)});
        }
    }

    function replaceWrite(stream, kind) {
        const decoder = new (require("string_decoder").StringDecoder)("utf8");
        stream.write = function (chunk, encoding, callback) {
            if (typeof encoding === "function")
                [encoding, callback] = [undefined, encoding];
            if (typeof chunk !== "string" && !(chunk instanceof Uint8Array))
                throw new TypeError("the \"chunk\" argument must be a string, a Buffer or a Uint8Array");
            const bytes = typeof chunk === "string" ? chunk : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
            const content = typeof bytes === "string" ? (encoding && !/^utf-?8$/i.test(encoding) ?
                decoder.write(Buffer.from(bytes, encoding)) : bytes) : decoder.write(bytes);
            if (content)
                text(kind, content);
            if (callback)
                process.nextTick(callback);
            return true;
        };
        stream.end = function () { return stream; };
    }

    // What was said so far is out before a child writes to our stdout.
    function synchronize() {
        frame("sync", {});
        const byte = Buffer.alloc(1);
        for (;;) {
            try {
                fs.readSync(ACKNOWLEDGED, byte, 0, 1, null);
                return;
            } catch (error) {
                if (error.code !== "EAGAIN" && error.code !== "EINTR")
                    return;
            }
        }
    }

    function replaceSpawn() {
        for (const [owner, name] of [[childProcess.ChildProcess.prototype, "spawn"], [childProcess, "spawnSync"],
            [childProcess, "execFileSync"], [childProcess, "execSync"]]) {
            const original = owner[name];
            owner[name] = function (...given) {
                synchronize();
                return original.apply(this, given);
            };
        }
        moduleLoader.syncBuiltinESMExports();
    }

    // -- values

    function inspect(value) {
        let shown;
        try {
            shown = util.inspect(value, {depth: 4, maxArrayLength: 200, maxStringLength: TEXT_MAX, breakLength: 100});
        } catch (error) {
            shown = "[cannot be shown: " + describe(error) + "]";
        }
        return shown.length > TEXT_MAX ? shown.slice(0, TEXT_MAX) + "\n... (" + shown.length + " characters)" : shown;
    }

    function describe(error) {
        try {
            return String(error && error.message !== undefined ? error.message : error);
        } catch {
            return "";
        }
    }

    function isPlain(value) {
        if (Array.isArray(value))
            return true;
        const prototype = value !== null && typeof value === "object" ? Object.getPrototypeOf(value) : undefined;
        return prototype === Object.prototype || prototype === null;
    }

    function toBundle(value) {
        const data = {"text/plain": inspect(value)};
        try {
            const json = isPlain(value) ? JSON.stringify(value) : undefined;
            if (json !== undefined && json.length <= JSON_MAX && (json.match(/[,:]/g) || []).length < 50000 && !/"(?:[^"\\]|\\.)*\\u0000(?:[^"\\]|\\.)*":/.test(json))
                data["application/json"] = JSON.parse(json);
        } catch {
            // cyclic, or holds what JSON cannot
        }
        return data;
    }

    function isBundle(value) {
        return isPlain(value) && !Array.isArray(value) && Object.keys(value).length > 0 &&
            Object.keys(value).every(key => /^[a-z]+\/[\w.+-]+$/.test(key));
    }

    function display(value, {raw = isBundle(value), metadata = {}, displayId, update = false} = {}) {
        let data = raw ? {...value} : toBundle(value);
        for (const [mime, item] of Object.entries(data)) {
            if (item instanceof Uint8Array)
                data[mime] = Buffer.from(item).toString("base64");
        }
        const forms = Object.keys(data).length;
        if (forms > MIMES_MAX)
            data = {"text/plain": `[left out: ${forms} forms of a value, and a bundle has at most ${MIMES_MAX}]`};
        const body = {run: run.id, data, metadata: isPlain(metadata) && !Array.isArray(metadata) ? metadata : {}};
        if (displayId !== undefined)
            body.display_id = String(displayId).slice(0, ID_MAX);
        if (update)
            body.update = true;
        frame("display", body);
    }

    // -- errors

    function isOurs(line) {
        return /<parley>|node:inspector|node:vm|node:internal|\[eval\]|at new Promise \(<anonymous>\)$/.test(line);
    }

    function traceback(error, at) {
        const stack = error instanceof Error || util.types.isNativeError(error) ? String(error.stack) : "Uncaught " + inspect(error);
        const lines = stack.split("\n").filter(line => !/^\s+at /.test(line) || !isOurs(line));
        const place = /\bcell_(\d+):(\d+):(\d+)/.exec(at || stack);
        const source = place && sources.get(Number(place[1]));
        const shown = source && source[Number(place[2]) - 1];
        return (shown === undefined || shown === null ? [] : [place[0], shown, ""]).concat(lines).slice(0, 200);
    }

    // `at`: where the cell has it, which a SyntaxError does not say itself.
    function tellError(error, at) {
        const isError = error instanceof Error || util.types.isNativeError(error);
        let name = "Error";
        try {
            name = isError ? String(error.name) : typeof error;
        } catch {
            // a getter that throws
        }
        frame("error", {run: run.id, name, value: isError ? describe(error) : inspect(error), traceback: traceback(error, at)});
    }

    // -- code

    const sources = new Map(); // of the last cells, for tracebacks

    // Positions where code begins and strings, templates and comments do not.
    function* codeSpans(code) {
        const skip = /\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)|'(?:\\[^]|[^'\\\n])*'?|"(?:\\[^]|[^"\\\n])*"?|`(?:\\[^]|[^`\\])*`?/g;
        let from = 0;
        for (const found of code.matchAll(skip)) {
            yield [from, found.index];
            from = found.index + found[0].length;
        }
        yield [from, code.length];
    }

    // Scripts have no import: the statement becomes await import(), and import() ours, which knows the work folder.
    function replaceImports(code) {
        const statement = /^([ \t]*)import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s*|\{([^}]*)\}\s*)?(?:from\s*)?(['"][^'"\n]+['"])[ \t]*;?/gm;
        code = code.replace(statement, (all, indent, name, space, names, from) => {
            const parts = [];
            if (space)
                parts.push(`${space}`);
            const picked = (names || "").split(",").map(item => item.trim()).filter(Boolean).map(item => item.replace(/\s+as\s+/, ": "));
            if (name)
                picked.unshift(`default: ${name}`);
            if (!space)
                return picked.length ? `${indent}const {${picked.join(", ")}} = await import(${from});` : `${indent}await import(${from});`;
            return `${indent}const ${space} = await import(${from});` + (name ? ` const {default: ${name}} = ${space};` : "");
        });
        let changed = "", end = 0;
        for (const [from, to] of codeSpans(code)) {
            changed += code.slice(end, from) + code.slice(from, to).replace(/(?<![\w$.])import(?=\s*\()/g, "__import");
            end = to;
        }
        return changed + code.slice(end);
    }

    function importFrom(specifier) {
        specifier = String(specifier);
        if (/^\.{0,2}\//.test(specifier))
            return load(require("url").pathToFileURL(path.resolve(specifier)).href);
        try {
            const resolved = globalThis.require.resolve(specifier);
            return load(path.isAbsolute(resolved) ? require("url").pathToFileURL(resolved).href : resolved);
        } catch {
            return load(specifier);
        }
    }

    let compileTypes = null;

    function findTypeScript() {
        const places = [process.cwd(), "/usr/share/nodejs", "/usr/local/lib/node_modules", "/usr/lib/node_modules"];
        for (const place of places) {
            try {
                const compiler = require(moduleLoader.createRequire(place + "/").resolve(
                    place.endsWith("node_modules") || place === "/usr/share/nodejs" ? place + "/typescript" : "typescript"));
                return (code, name, isModule) => compiler.transpileModule(code, {fileName: name, compilerOptions: {
                    target: compiler.ScriptTarget.ES2022, isolatedModules: true, sourceMap: false, inlineSourceMap: false,
                    module: isModule ? compiler.ModuleKind.CommonJS : compiler.ModuleKind.ESNext, esModuleInterop: true,
                    ...(Number(compiler.versionMajorMinor) >= 5 ? {verbatimModuleSyntax: !isModule} : {preserveValueImports: !isModule})}})
                    .outputText.replace(/^export \{\};\n?/m, "");
            } catch {
                // not there
            }
        }
        if (typeof moduleLoader.stripTypeScriptTypes !== "function")
            return null;
        return code => moduleLoader.stripTypeScriptTypes(code, {mode: "transform"});
    }

    // -- a run

    let session = null;

    function post(method, parameters) {
        return new Promise((resolve, reject) => session.post(method, parameters, (error, reply) => error ? reject(error) : resolve(reply)));
    }

    async function valueOf(remote) {
        if (remote.unserializableValue !== undefined)
            return (0, eval)(remote.unserializableValue);
        if (remote.objectId === undefined)
            return remote.value;
        let held;
        globalThis[HOOK] = value => { held = value; };
        await post("Runtime.callFunctionOn", {objectId: remote.objectId, arguments: [{objectId: remote.objectId}],
            functionDeclaration: `function (value) { globalThis[Object.getOwnPropertySymbols(globalThis).find(s => s.description === "parley")](value) }`});
        return held;
    }

    let evaluation = null; // set, then started from within vm, whose breakOnSigint ends code that never awaits
    globalThis[Symbol.for("parley.evaluate")] = () => evaluation();
    const guarded = new vm.Script(`globalThis[Symbol.for("parley.evaluate")]()`, {filename: "<parley>"});

    function evaluate(code) {
        return new Promise((resolve, reject) => {
            evaluation = () => session.post("Runtime.evaluate", {expression: code, replMode: true, objectGroup: "cell"},
                (error, reply) => error ? reject(error) : resolve(reply));
            try {
                guarded.runInThisContext({breakOnSigint: true});
            } catch (error) {
                reject(error);
            }
        });
    }

    async function outcomeOf(code) {
        const name = "cell_" + run.count;
        if (run.cwd)
            process.chdir(run.cwd);
        sources.set(run.count, code.split("\n"));
        sources.delete(run.count - 100);
        if (language === "typescript")
            code = compileTypes(code, name + ".ts", false);
        const reply = await evaluate(replaceImports(code) + "\n//# sourceURL=" + name);
        if (reply.exceptionDetails) {
            const details = reply.exceptionDetails, error = await valueOf(details.exception || reply.result);
            tellError(error, error instanceof SyntaxError ? `${name}:${details.lineNumber + 1}:${details.columnNumber + 1}` : null);
            return "error";
        }
        const value = await valueOf(reply.result);
        globalThis._ = value;
        if (value !== undefined && !run.silent) {
            let data = toBundle(value);
            if (JSON.stringify(data).length > FRAME_MAX)
                data = {"text/plain": data["text/plain"]};
            frame("result", {run: run.id, count: run.count, data, metadata: {}});
        }
        return "ok";
    }

    function interrupted() {
        frame("error", {run: run.id, name: "KeyboardInterrupt", value: "interrupted", traceback: ["KeyboardInterrupt"]});
        return "interrupted";
    }

    async function runCell(request) {
        const code = Buffer.alloc(request.size);
        fs.readSync(CODE, code, 0, request.size, 0);
        run = {...request, settle: null};
        const stopped = new Promise(resolve => { run.settle = resolve; });
        const outcome = outcomeOf(code.toString()).catch(error => {
            if (error && error.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED")
                return interrupted();
            tellError(error);
            return "error";
        });
        const status = await Promise.race([outcome, stopped.then(interrupted)]);
        run.settle = null;
        session.post("Runtime.releaseObjectGroup", {objectGroup: "cell"});
        frame("done", {run: run.id, status, count: run.count});
    }

    // -- the start

    function refuseStdin() {
        Object.defineProperty(process, "stdin", {configurable: true, get() {
            throw Object.assign(new Error(NO_STDIN), {name: "StdinNotSupported"});
        }});
    }

    function makeGlobals() {
        const here = moduleLoader.createRequire(process.cwd() + "/");
        const define = (name, value) => Object.defineProperty(globalThis, name, {value, writable: true, configurable: true, enumerable: false});
        define("require", here);
        define("module", {exports: {}});
        define("exports", globalThis.module.exports);
        define("display", display);
        define("clearOutput", (wait = false) => frame("clear", {run: run.id, wait: Boolean(wait)}));
        define("__import", importFrom);
        define(HOOK, null);
    }

    function tellUncaught(error) {
        text("stderr", "Uncaught " + traceback(error).join("\n") + "\n");
    }

    function serve() {
        const socket = fs.createReadStream(null, {fd: REQUESTS, encoding: "utf8"});
        let waiting = "";
        socket.on("data", piece => {
            waiting += piece;
            for (let end = waiting.indexOf("\n"); end >= 0; end = waiting.indexOf("\n")) {
                const line = waiting.slice(0, end);
                waiting = waiting.slice(end + 1);
                runCell(JSON.parse(line));
            }
        });
        socket.on("end", () => process.exit());
    }

    function startContext() {
        if (language === "typescript" && (compileTypes = findTypeScript()) === null) {
            frame("failed", {message: "this template has no TypeScript: no typescript module, and node " +
                process.versions.node + " cannot strip types itself"});
            exitNow(1);
        }
        session = new (require("inspector").Session)();
        session.connect();
        replaceWrite(process.stdout, "stdout");
        replaceWrite(process.stderr, "stderr");
        replaceSpawn();
        refuseStdin();
        makeGlobals();
        process.on("SIGINT", () => run.settle && run.settle());
        process.on("uncaughtException", tellUncaught);
        process.on("unhandledRejection", tellUncaught);
        process.argv.length = 1;
        frame("ready", {language, version: process.versions.node, implementation: "node " + process.versions.node});
        serve();
    }

    // A TypeScript file as a program of its own.
    function runScript() {
        const file = path.resolve(programArguments[0]);
        compileTypes = findTypeScript();
        if (compileTypes === null) {
            process.stderr.write("this template has no TypeScript: no typescript module, and node " + process.versions.node +
                " cannot strip types itself\n");
            process.exit(1);
        }
        process.argv = [process.argv[0], file, ...programArguments.slice(1)];
        moduleLoader._extensions[".ts"] = (module, name) => module._compile(compileTypes(fs.readFileSync(name, "utf8"), name, true), name);
        const main = new moduleLoader(file, null);
        main.filename = file;
        main.paths = moduleLoader._nodeModulePaths(path.dirname(file));
        process.mainModule = main;
        main.id = ".";
        moduleLoader._cache[file] = main;
        main._compile(compileTypes(fs.readFileSync(file, "utf8"), file, true), file);
        main.loaded = true;
    }

    events.defaultMaxListeners = 20;
    if (mode === "script")
        runScript();
    else
        startContext();
})
