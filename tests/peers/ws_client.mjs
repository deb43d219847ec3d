// ws_client.mjs - the npm package ws as a client of /ws: node ws_client.mjs URL TOKEN. Prints one JSON object of what it saw.
import WebSocket from "ws";

const [url, token] = process.argv.slice(2);
const seen = {};
setTimeout(() => fail("nothing more came"), 30000).unref();

function fail(why) {
    console.error(why, JSON.stringify(seen));
    process.exit(1);
}

// One session: `frames` are told as they come, `output` holds what stdout printed.
function open(options = {}, protocols = []) {
    const socket = new WebSocket(url, protocols, options);
    const waiting = [];
    const session = {socket, output: Buffer.alloc(0), frames: []};
    const look = () => {
        for (const wait of waiting.splice(0))
            if (!wait.test()) waiting.push(wait);
            else wait.resolve();
    };
    socket.on("message", (data, isBinary) => {
        if (isBinary) {
            session.output = Buffer.concat([session.output, data.subarray(1)]);
        } else {
            const frame = JSON.parse(data.toString());
            if (frame.type === "stdout")
                session.output = Buffer.concat([session.output, Buffer.from(frame.data ?? frame.data_b64,
                                                                            frame.data === undefined ? "base64" : "utf8")]);
            else session.frames.push(frame);
        }
        look();
    });
    socket.on("close", (code, reason) => {
        session.closed = {code, reason: reason.toString()};
        look();
    });
    socket.on("error", (err) => {
        session.error = err.message;
        look();
    });
    session.until = (test) => new Promise((resolve) => {
        waiting.push({test, resolve});
        look();
    });
    session.frame = async (type) => {
        await session.until(() => session.frames.some((frame) => frame.type === type));
        return session.frames.splice(session.frames.findIndex((frame) => frame.type === type), 1)[0];
    };
    session.tell = (type, members = {}) => socket.send(JSON.stringify({type, ...members}));
    session.prints = (text) => session.until(() => session.output.includes(text));
    return session;
}

// A terminal, typed into; ws offers compression, which is not taken.
const terminal = open({headers: {Authorization: "Bearer " + token}});
seen.scopes = (await terminal.frame("auth_ok")).scopes;
seen.extensions = terminal.socket.extensions;
terminal.tell("start", {argv: ["/bin/bash", "--norc", "-i"], cols: 91, rows: 17});
seen.started = await terminal.frame("started");
terminal.tell("stdin", {data: "stty size; echo pe''er\n"});
await terminal.prints("peer");
seen.terminal = terminal.output.toString();
const pong = new Promise((resolve) => terminal.socket.once("pong", (data) => resolve(data.toString())));
terminal.socket.ping("are you there");
seen.pong = await pong;
terminal.tell("stdin", {data: "exit 6\n"});
seen.exit = (await terminal.frame("exit")).exit_code;

// Bytes both ways, in messages of fragments.
const bytes = Buffer.alloc(900000, Buffer.from(Uint8Array.from({length: 251}, (_, n) => n)));
terminal.output = Buffer.alloc(0);
terminal.tell("start", {argv: ["/bin/cat"], tty: false, bin: true, ack: true});
await terminal.frame("started");
terminal.socket.send(Buffer.concat([Buffer.from([0]), bytes.subarray(0, 1000)]), {fin: false});
terminal.socket.send(bytes.subarray(1000, 500000), {fin: false});
terminal.socket.send(bytes.subarray(500000), {fin: true});
await terminal.until(() => terminal.output.length >= bytes.length);
seen.echoed = terminal.output.equals(bytes);
terminal.tell("eof");
seen.cat = (await terminal.frame("exit")).exit_code;
terminal.socket.close(1000, "done");
await terminal.until(() => terminal.closed);
seen.closed = terminal.closed;

// Refusals, in the head and in a frame.
const refused = open({headers: {Authorization: "Bearer nonsense"}});
await refused.until(() => refused.error);
seen.refused = refused.error;
const wrong = open();
wrong.socket.on("open", () => wrong.tell("auth", {token: "nonsense"}));
await wrong.until(() => wrong.closed);
seen.wrong = wrong.closed;
const protocol = open({}, ["parley.v1", "bearer." + token]);
await protocol.frame("auth_ok");
seen.protocol = protocol.socket.protocol;
protocol.socket.terminate();

console.log(JSON.stringify(seen));
process.exit(0);
