/* node_test.c - JavaScript and TypeScript as contexts. */
#include "tests/unit/sandboxd/helpers/drivers/driver_rig.h"

static void test_values(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"let x = 1; const y = 2; x + y", "r[3]=ok"},
        {"let x = 'again'; const y = 3; x + y", "r['again3']=ok"},
        {"_", "r['again3']=ok"},
        {"undefined", "=ok"},
        {"await new Promise(r => setTimeout(() => r({a: 1}), 5))", "r[{ a: 1 }]=ok"},
        {"function f(n) {\n  return n * 2\n}\nf(4)", "r[8]=ok"},
        {"import fs, {readFileSync as read} from 'fs'\nimport * as os from 'node:os'\ntypeof fs.writeFileSync + typeof "
         "read + typeof os.cpus",
         "r['functionfunctionfunction']=ok"},
        {"(await import('path')).join('a', \"import('b')\")", "r[\"a/import('b')\"]=ok"},
        {"require('path').sep", "r['/']=ok"},
        {"display({'text/html': '<b>'}); display([1])", "d[text/html ]d[text/plain application/json ]=ok"},
        {"[NaN, 10n, Symbol('s'), new Map([[1, 2]])]", "~r[[ NaN, 10n, Symbol(s), Map(1) { 1 => 2 } ]]=ok"},
        {"const o = {}; o.o = o; o", "~r[<ref *1> { o: [Circular *1] }]=ok"},
        {"({a: 1e30, b: 2 ** 64, c: '\\ud800'})", "~r[|=ok"},
        {"({get [Symbol.toStringTag]() { throw new Error('no') }})", "~r[|=ok"},
        {"typeof process + typeof Buffer + typeof setTimeout + typeof fetch", "r['objectfunctionfunctionfunction']=ok"},
        {"// a comment", "=ok"},
    };
    RIG_CELLS(rig, cells);
}

static void test_order(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"console.log('a'); console.error('b'); require('child_process').execSync('echo c', {stdio: 'inherit'}); "
         "console.log('d')",
         "o[a\n]e[b\n]o[c\nd\n]=ok"},
        {"process.stdout.write(Buffer.from([0xc3])); process.stdout.write(Buffer.from([0xa9])); "
         "process.stdout.write('\\ud800\\0'); 0",
         "o[\xC3\xA9\xEF\xBF\xBD"
         "0]r[0]=ok"},
        {"require('child_process').execSync('head -c 3000000 /dev/zero', {stdio: 'inherit'}); 1", "~o[000"},
        {"require('child_process').execSync('ls /proc/self/fd').toString().trim().split('\\n').every(n => n < 5 || n > "
         "9)",
         "r[true]=ok"},
        {"console.log('x'.repeat(200000)); 2", "~o[xxx"},
        {"setTimeout(() => { throw new Error('later') }, 1); await new Promise(r => setTimeout(r, 30)); 'on'",
         "~e[Uncaught |Error: later|r['on']=ok"},
        {"Promise.reject(new Error('nobody')); await new Promise(r => setTimeout(r, 5)); 'on'", "~nobody|r['on']=ok"},
    };
    RIG_CELLS(rig, cells);
}

static void test_errors(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"throw new TypeError('bad')", "x[TypeError: bad]=error"},
        {"nosuch", "x[ReferenceError: nosuch is not defined]=error"},
        {"let z = ;", "~x[SyntaxError: |=error"},
        {"throw 5", "~x[number: 5]=error"},
        {"throw null", "~x[object: null]=error"},
        {"await Promise.reject(new RangeError('later'))", "x[RangeError: later]=error"},
        {"process.stdin.read()", "~x[StdinNotSupported: |=error"},
        {"function deep() { deep() }\ndeep()", "~x[RangeError: |=error"},
        {"console.log('{\"done\":{\"run\":\"x\"}}')", "o[{\"done\":{\"run\":\"x\"}}\n]=ok"},
    };
    RIG_CELLS(rig, cells);
    rig->keep = "error";
    (void)rig_run(rig, "function g() {\n  null.x\n}\ng()");
    char *all = json_dumps(json_object_get(rig->last, "traceback"), JSON_COMPACT);
    CHECK(all && strstr(all, "  null.x") != NULL && strstr(all, "at g (cell_") != NULL);
    CHECK(all && strstr(all, "parley") == NULL && strstr(all, "node:") == NULL);
    free(all);
}

static void test_interrupts(struct rig *rig)
{
    CHECK(rig_matches(rig_interrupt(rig, "console.log('go'); for (;;) {}"), "~x[KeyboardInterrupt: |=interrupted"));
    CHECK(rig_matches(rig_interrupt(rig, "console.log('go'); await new Promise(() => {})"),
                      "~x[KeyboardInterrupt: |=interrupted"));
    (void)kill(-rig->pid, SIGINT);
    CHECK_TEXT(rig_run(rig, "'alive'"), "r['alive']=ok");
}

static void test_typescript(void)
{
    static const struct rig_cell cells[] = {
        {"interface P { x: number }\nconst p: P = {x: 1}\np", "r[{ x: 1 }]=ok"},
        {"enum E { A, B }\nE.B", "r[1]=ok"},
        {"const p: number = 3; p as any", "r[3]=ok"},
        {"import * as os from 'os'", "=ok"},
        {"typeof os.cpus", "r['function']=ok"},
        {"const twice = <T,>(x: T): T[] => [x, x]; twice<string>('a')", "r[[ 'a', 'a' ]]=ok"},
        {"throw new RangeError('no')", "x[RangeError: no]=error"},
    };
    struct rig rig;
    rig_start(&rig, "typescript", NULL);
    json_t *frame = rig_frame(&rig);
    bool is_there = json_object_get(frame, "ready") != NULL;
    const char *why = json_string_value(json_object_get(json_object_get(frame, "failed"), "message"));
    CHECK(is_there || (why && strstr(why, "TypeScript") != NULL));
    json_decref(frame);
    if (is_there)
        RIG_CELLS(&rig, cells);
    CHECK(rig_end(&rig) == (is_there ? 0 : 1));
}

int main(void)
{
    if (access("/usr/bin/node", X_OK) != 0 && access("/usr/local/bin/node", X_OK) != 0)
        check_skip("no node");
    signal(SIGPIPE, SIG_IGN);
    struct rig rig;
    rig_start(&rig, "javascript", NULL);
    rig_ready(&rig, "javascript");
    test_values(&rig);
    test_order(&rig);
    test_errors(&rig);
    test_interrupts(&rig);
    CHECK_TEXT(rig_run(&rig, "process.exit(4)"), "x[Exit: the code ended its interpreter with exit status 4]=error");
    CHECK(rig_end(&rig) == 4);
    test_typescript();
    return check_done();
}
