// Faults that are planted in replies, each with a case that must see it: the cases can fail.
const json = (change) => (reply) => ({ ...reply, body: JSON.stringify(change(JSON.parse(reply.body))) });
const text = (change) => (reply) => ({ ...reply, body: change(reply.body) });
const without = (name) => (reply) => ({ ...reply, headers: Object.fromEntries(Object.entries(reply.headers).filter(([key]) => key !== name)) });
const event = (type) => `{"type":"${type}","timestamp":${Date.now()}}\n\n`;

export const plants = {
  "a total that is one too many": {
    of: "the list is filtered and paged", at: /^GET .*\/v1\/sandboxes\?/,
    change: json((list) => ({ ...list, pagination: { ...list.pagination, totalItems: list.pagination.totalItems + 1 } })),
  },
  "a null where a field is left out": {
    of: "no timeout is manual cleanup", at: /^GET .*\/v1\/sandboxes\/[^/]+$/, change: json((one) => ({ ...one, expiresAt: null })),
  },
  "an error without a request id": {
    of: "the error carries the request id that was sent", at: /^GET .*\/v1\/sandboxes\/none$/, change: without("x-request-id"),
  },
  "an error with another code": {
    of: "the error carries the request id that was sent", at: /^GET .*\/v1\/sandboxes\/none$/, change: json((told) => ({ ...told, code: "GENERAL::UNKNOWN_ERROR" })),
  },
  "an error without a body": {
    of: "a command that is not there", at: /^GET .*\/command\/status\//, change: (reply) => ({ ...reply, body: "", headers: { ...reply.headers, "content-length": "0" } }),
  },
  "no blank line between events": {
    of: "once: the stream is raw json with a blank line and a ping at once", at: /^POST .*\/command$/, change: text((body) => body.replaceAll("\n\n", "\n")),
  },
  "an execution_complete beside the error": {
    of: "a failed command says its exit code and is not complete", at: /^POST .*\/command$/, change: text((body) => body + event("execution_complete")),
  },
  "a lost line of output": {
    of: "much output comes whole", at: /^POST .*\/command$/, change: text((body) => body.replace(/\{[^\n]*"text":"777"[^\n]*\}\n\n/, "")),
  },
  "a mode that is a number of bits": {
    of: "modes are decimal digits", at: /^GET .*\/files\/info/, change: text((body) => body.replaceAll('"mode":755', '"mode":493')),
  },
  "a whole file for a range": {
    of: "a range is read", at: /^GET .*\/files\/download/, change: (reply) => ({ ...reply, status: reply.status === 206 ? 200 : reply.status }),
  },
  "a result under one key alone": {
    of: "python gives a result, its count and its output", at: /^POST .*\/code$/, change: text((body) => body.replace(/"text":"42",?/, "")),
  },
  "a token at the end of the address": {
    of: "an endpoint has no scheme and ends with its port", at: /\/endpoints\//, change: json((told) => ({ ...told, endpoint: told.endpoint + "/token" })),
  },
};
