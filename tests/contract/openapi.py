"""An OpenAPI 3.1 document as a judge: is it sound itself, which operation did a request meet, does the reply keep to it.

What OpenAPI 3.1 cannot say, the documents say in these fields:
  x-item-schema  beside the schema of a streamed media type: what each NDJSON line or SSE data is
  x-last         beside x-item-schema: the types after which nothing comes; without it the rules are those of an exec's events
  x-rest         of a path: its last parameter takes the rest, slashes too, and may be empty
  x-sealed       an operation whose 2xx only the other plane can get (the node link)
  x-status       in ErrorCode: the statuses that may come with each code
  x-retryable    in ErrorCode: the codes with "retryable": true
"""
import json
import re

import jsonschema
import yaml

METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
STRAY_STATUSES = (400, 401, 404, 405, 408, 431)
EARLY_STATUSES = (408, 431)  # said before it is known which operation is meant: the head or the body never came whole


class Broken(Exception):
    """The contract is broken; the sentence says how."""


class Operation:
    def __init__(self, method, path, item, takes_rest=False):
        self.method, self.path, self.item = method.upper(), path, item
        self.name = item.get("operationId")
        parts = ["[^/]+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{[^}]*\})", path) if part]
        self.pattern = re.compile("".join(parts[:-1] + [".*"] if takes_rest else parts), re.DOTALL)

    def __repr__(self):
        return f"{self.method} {self.path}"


def pointer_of(*parts):
    return "#/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in parts)


class Document:
    def __init__(self, path):
        with open(path, encoding="utf-8") as text:
            self.root = yaml.load(text, Loader=StrictLoader)
        self.resolver = jsonschema.RefResolver("", self.root)
        self.validators = {}
        self.operations = list(self.read_operations())
        self.passing = list(self.read_passing())
        self.codes = self.read_codes()

    def read_codes(self):
        return self.root["components"]["schemas"]["ErrorCode"]

    def read_operations(self):
        """One operation may stand below several bases (the servers): each is told with its whole path."""
        for path, item in self.root["paths"].items():
            for server in item.get("servers", self.root["servers"]):
                base = re.sub(r"^https?://[^/]*", "", server["url"]).rstrip("/")
                for method in METHODS:
                    if method in item:
                        whole = base if base and path == "/" else base + path  # of a base that is all of the address
                        yield Operation(method, whole, item[method], item.get("x-rest", False))

    def read_passing(self):
        """Paths of "x-any": any method, answered by somebody else, of whom this document says nothing."""
        for path, item in self.root["paths"].items():
            if "x-any" in item:
                for server in item.get("servers", self.root["servers"]):
                    yield re.sub(r"^https?://[^/]*", "", server["url"]).rstrip("/") + path

    def resolve(self, value):
        """Follows "$ref" of a response, header, parameter or body."""
        while isinstance(value, dict) and set(value) == {"$ref"}:
            value = self.resolver.resolve(value["$ref"])[1]
        return value

    def find(self, method, path):
        """The operation a request meets; HEAD is served by GET's."""
        method = "GET" if method == "HEAD" else method
        for operation in self.operations:
            if operation.method == method and operation.pattern.fullmatch(path):
                return operation
        return None

    def methods_at(self, path):
        found = {operation.method for operation in self.operations if operation.pattern.fullmatch(path)}
        return found | ({"HEAD"} if "GET" in found else set())

    def check(self, schema, value, where):
        """`value` against a schema of this document."""
        validator = self.validators.get(id(schema))
        if validator is None:
            validator = jsonschema.Draft202012Validator(schema, resolver=self.resolver)
            self.validators[id(schema)] = validator
        fault = jsonschema.exceptions.best_match(validator.iter_errors(value))
        if fault is not None:
            place = "/".join(str(step) for step in fault.absolute_path)
            raise Broken(f"{where}{': ' + place if place else ''}: {fault.message[:300]}")

    def check_event(self, schema, event, where):
        """As check, but told by the event's own type: oneOf alone names no culprit."""
        kind = event.get("type") if isinstance(event, dict) else None
        alternatives = self.resolve(schema)
        ref = alternatives.get("discriminator", {}).get("mapping", {}).get(kind)
        if ref is None:
            raise Broken(f"{where}: there is no event of type {kind!r}")
        self.check(self.resolver.resolve(ref)[1], event, f"{where} ({kind})")

    # ---- the document itself ----

    def faults(self):
        """Sentences about what is wrong with the document."""
        told = []
        if not re.fullmatch(r"3\.1\.\d+", str(self.root.get("openapi"))):
            told.append("openapi is not 3.1.x")
        told += [f"{field} is missing" for field in ("info", "servers", "paths", "components") if field not in self.root]
        lost, unused = self.ref_faults()
        told += lost + self.schema_faults()
        return told or unused + self.operation_faults() + self.example_faults()  # these stand on the ones before

    def each(self, value=None, *path):
        """Every object in the document, with its place."""
        value = self.root if value is None else value
        if isinstance(value, dict):
            yield path, value
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(inner, (dict, list)):
                yield from self.each(inner, *path, key)

    def ref_faults(self):
        """References that lead nowhere, and components that nothing refers to."""
        lost, used = [], set()
        for path, value in self.each():
            refs = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            refs += value["mapping"].values() if path[-1:] == ("discriminator",) else []
            for ref in refs:
                used.add(ref)
                try:
                    self.resolver.resolve(ref)
                except jsonschema.RefResolutionError:
                    lost.append(f"{pointer_of(*path)}: {ref} leads nowhere")
        unused = [f"components/{kind}/{name} is used by nobody" for kind, values in self.root["components"].items()
                  for name in values if kind != "securitySchemes" and pointer_of("components", kind, name) not in used]
        return lost, unused

    def operation_faults(self):
        told, names = [], {}
        schemes = self.root["components"].get("securitySchemes", {})
        for operation in self.operations:
            names.setdefault(operation.name, set()).add(id(operation.item))
            for field in ("operationId", "summary", "tags", "responses", "security"):
                if field not in operation.item:
                    told.append(f"{operation}: {field} is missing")
            for status in operation.item.get("responses", {}):
                if not re.fullmatch(r"[1-5]\d\d|default", str(status)) or not isinstance(status, str):
                    told.append(f"{operation}: response {status!r} is no status in quotes")
            if not any(str(status).startswith(("101", "2", "501")) for status in operation.item.get("responses", {})):
                told.append(f"{operation}: no reply of success")
            told += [f"{operation}: security scheme {name} is not there" for needed in operation.item.get("security", [])
                     for name in needed if name not in schemes]
            told += self.parameter_faults(operation)
        told += [f"operationId {name} is used twice" for name, items in names.items() if len(items) > 1]
        return told

    def parameters(self, operation):
        """Those of the operation, of its path and of its base."""
        found = [self.resolve(p) for p in operation.item.get("parameters", [])]
        for path, item in self.root["paths"].items():
            if any(inner is operation.item for inner in item.values()):
                found += [self.resolve(p) for p in item.get("parameters", [])]
                servers = item.get("servers", self.root["servers"])
                found += [{"name": name, "in": "path", "required": True}
                          for server in servers for name in server.get("variables", {})]
        return found

    def parameter_faults(self, operation):
        parameters = self.parameters(operation)
        declared = {p["name"] for p in parameters if p["in"] == "path" and p.get("required")}
        written = set(re.findall(r"\{([^}]*)\}", operation.path))
        told = [f"{operation}: path parameter {name} is not declared" for name in sorted(written - declared)]
        return told + [f"{operation}: parameter {p['name']} has no schema" for p in operation.item.get("parameters", [])
                       if "schema" not in self.resolve(p)]

    def schemas(self):
        """Every schema: the components, and those of parameters, headers, bodies and replies."""
        for name, schema in self.root["components"]["schemas"].items():
            yield ("components", "schemas", name), schema
        for path, value in self.each():
            if path[:2] != ("components", "schemas"):
                for field in ("schema", "x-item-schema"):
                    if isinstance(value.get(field), dict):
                        yield (*path, field), value[field]

    def schema_faults(self):
        told = []
        for path, schema in self.schemas():
            try:
                jsonschema.Draft202012Validator.check_schema(schema)
            except jsonschema.SchemaError as fault:
                told.append(f"{pointer_of(*path)}: {fault.message[:200]}")
            for inner_path, inner in self.each(schema, *path):
                if inner.get("type") == "object" and "additionalProperties" not in inner and "properties" in inner:
                    told.append(f"{pointer_of(*inner_path)}: additionalProperties is not said")
        return told

    def example_faults(self):
        """Every media type, header and parameter has an example, and it keeps to its schema."""
        told = []
        for path, value in self.each():
            if "schema" not in value or path[:2] == ("components", "schemas"):
                continue
            examples = [value["example"]] if "example" in value else \
                [inner["value"] for inner in value.get("examples", {}).values()]
            if not examples and value.get("required") is not False and "x-no-example" not in value:
                told.append(f"{pointer_of(*path)}: no example")
            for example in examples:
                try:
                    self.check(value["schema"], example, "example")
                    if "x-item-schema" in value:
                        self.check_stream(path[-1], value, example, cut=False)
                except Broken as fault:
                    told.append(f"{pointer_of(*path)}: {fault}")
        return told

    # ---- a reply ----

    def judge(self, reply):
        """Raises Broken, or returns the operation met (None: no route) by one recorded reply."""
        operation = self.find(reply["method"], reply["path"])
        if operation is None or reply["status"] in EARLY_STATUSES:
            self.judge_stray(reply)
            return None
        responses = operation.item["responses"]
        response = self.resolve(responses.get(str(reply["status"]), responses.get("default")))
        if response is None:
            raise Broken(f"{operation}: status {reply['status']} is not in the document: {reply['body'][:200]}")
        where = f"{operation} {reply['status']}"
        self.judge_headers(response.get("headers", {}), reply, where)
        self.judge_body(response.get("content", {}), reply, where)
        return operation

    def judge_stray(self, reply):
        """What no operation serves: a refusal with the error object."""
        where = f"{reply['method']} {reply['path'][:80]} {reply['status']} (no operation)"
        if reply["status"] not in STRAY_STATUSES:
            raise Broken(f"{where}: only {STRAY_STATUSES} may come from outside the table of routes")
        self.judge_headers(self.root["components"]["responses"]["NotFound"]["headers"], reply, where)
        self.judge_body(self.root["components"]["responses"]["NotFound"]["content"], reply, where)
        if reply["status"] == 405:
            allowed = {method.strip() for method in reply["headers"].get("allow", "").split(",")}
            if allowed != self.methods_at(reply["path"]):
                raise Broken(f"{where}: Allow is {sorted(allowed)}, the document has {sorted(self.methods_at(reply['path']))}")

    def judge_headers(self, headers, reply, where):
        for name, header in headers.items():
            header, value = self.resolve(header), reply["headers"].get(name.lower())
            if value is None:
                if header.get("required"):
                    raise Broken(f"{where}: the header {name} is missing")
                continue
            typed = int(value) if header["schema"].get("type") == "integer" and value.isdigit() else value
            self.check(header["schema"], typed, f"{where}: header {name}")

    def judge_body(self, content, reply, where):
        if not content or reply["method"] == "HEAD":
            if reply["body"]:
                raise Broken(f"{where}: a body where there is none: {reply['body'][:100]}")
            return
        kind = reply["type"].split(";")[0].strip().lower()
        media = content.get(kind)
        if media is None:
            raise Broken(f"{where}: content type {kind or 'none'}, not one of {', '.join(content)}")
        if "x-item-schema" in media:
            self.check_stream(kind, media, reply["body"], reply["cut"], where)
        elif kind == "application/json" and not reply["cut"]:
            value = parse(reply["body"], where)
            self.check(media["schema"], value, where)
            if isinstance(value, dict) and set(value) == {"error"}:
                self.check_error(value["error"], reply, where)

    def check_error(self, error, reply, where):
        code = error["code"]
        if reply["status"] not in self.codes["x-status"][code]:
            raise Broken(f"{where}: code {code} does not come with status {reply['status']}")
        if error["retryable"] != (code in self.codes["x-retryable"]):
            raise Broken(f"{where}: code {code} with retryable {error['retryable']}")
        if error["request_id"] != reply["headers"].get("x-request-id"):
            raise Broken(f"{where}: request_id is not the header X-Request-ID")

    def check_stream(self, kind, media, body, cut, where="example"):
        """Each event, their order, and that no byte is missing or doubled between them. `cut`: the record ends early."""
        position, ended = {}, False
        events = sse_events(body, cut, where) if kind == "text/event-stream" else ndjson_events(body, cut, where)
        for number, event in enumerate(events):
            here = f"{where}: event {number}"
            self.check_event(media["x-item-schema"], event, here)
            if ended:
                raise Broken(f"{here} comes after the last one")
            if "x-last" in media:
                ended = event["type"] in media["x-last"]
                continue
            if (event["type"] == "started") != (number == 0) and event["type"] != "error":
                raise Broken(f"{here} is {event['type']}: started is the first, and only the first")
            ended = event["type"] in ("exit", "error")
            check_offset(position, event, here)


class Foreign(Document):
    """What clients of others ask, in their words: refusals are theirs, a stream is JSON with an empty line after each event.

      x-may-be-empty  of a response: it may have no body
      x-last          the types of the last event
      x-after-error   beside it: an error may have others after it
    """

    def read_codes(self):
        return None

    def example_faults(self):
        return [fault for fault in super().example_faults() if not fault.endswith(": no example")]

    def judge_stray(self, reply):
        where = f"{reply['method']} {reply['path'][:80]} {reply['status']} (no operation)"
        if reply["status"] < 400:
            raise Broken(f"{where}: only refusals may come from outside the table of routes")
        if "x-request-id" not in reply["headers"]:
            raise Broken(f"{where}: the header X-Request-ID is missing")

    def judge_body(self, content, reply, where):
        operation = self.find(reply["method"], reply["path"])
        if not reply["body"] and operation.item["responses"].get(str(reply["status"]), {}).get("x-may-be-empty"):
            return
        super().judge_body(content, reply, where)

    def check_error(self, error, reply, where):
        pass  # its schema says all

    def check_stream(self, kind, media, body, cut, where="example"):
        blocks = body.split("\n\n")
        if blocks.pop() and not cut:
            raise Broken(f"{where}: the last event does not end")
        events = [parse(block, where) for block in blocks]
        for number, event in enumerate(events):
            here = f"{where}: event {number}"
            if "\n" in blocks[number]:
                raise Broken(f"{here} is not one line")
            self.check(media["x-item-schema"], event, here)
            if (event["type"] == "init") != (number == 0) or (event["type"] != "ping" and number == 1):
                raise Broken(f"{here} is {event['type']}: init is the first, ping the second")
            ends = event["type"] in media["x-last"] and not (event["type"] == "error" and "x-after-error" in media)
            if number + 1 < len(events) and ends:
                raise Broken(f"{where}: event {number + 1} comes after the last one")
        if not cut and (not events or events[-1]["type"] not in media["x-last"]):
            raise Broken(f"{where}: it ends without {' or '.join(media['x-last'])}")


def check_offset(position, event, where):
    """Offsets count the stream's bytes: each event begins where the one before ended."""
    if event["type"] == "gap":
        stream, start, end = event["stream"], event["from"], event["to"]
    elif event["type"] in ("stdout", "stderr"):
        stream, start = event["type"], event["offset"]
        text = event.get("data")
        # Four letters of base64 are three bytes, less one for each '='.
        coded = event.get("data_b64", "")
        end = start + (len(text.encode()) if text is not None else len(coded) // 4 * 3 - coded.count("="))
    else:
        return
    if start != position.get(stream, start):
        raise Broken(f"{where}: {stream} goes on at {start}, but {position[stream]} bytes were told")
    position[stream] = end


class StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice."""


def construct_mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", node.start_mark)
    return loader.construct_mapping(node, deep=True)


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, construct_mapping)


def parse(text, where):
    def once(pairs):
        if len(dict(pairs)) != len(pairs):
            raise Broken(f"{where}: a key is given twice")
        return dict(pairs)
    try:
        return json.loads(text, object_pairs_hook=once)
    except ValueError as fault:
        raise Broken(f"{where}: no JSON: {fault}: {text[:100]!r}") from None


def ndjson_events(body, cut, where):
    lines = body.split("\n")
    if lines.pop() and not cut:
        raise Broken(f"{where}: the last line does not end")
    return [parse(line, where) for line in lines]


def sse_events(body, cut, where):
    blocks = body.split("\n\n")
    if blocks.pop() and not cut:
        raise Broken(f"{where}: the last event does not end")
    events = []
    for block in blocks:
        lines = [line.split(": ", 1) for line in block.split("\n") if not line.startswith(":")]
        if [line[0] for line in lines] != ["event", "data"]:
            raise Broken(f"{where}: an SSE event is not one event: and one data: line: {block[:100]!r}")
        events.append(parse(lines[1][1], where))
        if not isinstance(events[-1], dict) or events[-1].get("type") != lines[0][1]:
            raise Broken(f"{where}: the event's name is {lines[0][1]}, its type another")
    return events
