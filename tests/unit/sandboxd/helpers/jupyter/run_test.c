/* run_test.c - a kernel's messages become the frames of the run they belong to, in either order of its two ends. */
#include "sandboxd/helpers/jupyter/run.h"

#include "sandboxd/helpers/drivers/drivers.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static struct frames frames;

/* What was written since the last look, as one text. */
static char *told(void)
{
    off_t size = lseek(frames.fd, 0, SEEK_CUR);
    char *text = memory_new((size_t)size + 1);
    CHECK(pread(frames.fd, text, (size_t)size, 0) == size);
    CHECK(ftruncate(frames.fd, 0) == 0 && lseek(frames.fd, 0, SEEK_SET) == 0);
    return text;
}

static void check_told(const char *want)
{
    AUTO_FREE char *got = told();
    CHECK_TEXT(got, want);
}

static struct message message(const char *type, const char *parent, const char *content)
{
    struct message made = {.content = json_loads(content, 0, NULL)};
    CHECK(made.content != NULL);
    (void)snprintf(made.type, sizeof made.type, "%s", type);
    (void)snprintf(made.parent, sizeof made.parent, "%s", parent);
    made.transient = json_object_get(made.content, "transient");
    return made;
}

static void iopub(struct run *run, const char *type, const char *parent, const char *content)
{
    struct message made = message(type, parent, content);
    run_on_iopub(run, &made, &frames);
    message_done(&made);
}

static void reply(struct run *run, const char *type, const char *parent, const char *content)
{
    struct message made = message(type, parent, content);
    run_on_reply(run, &made, &frames);
    message_done(&made);
}

static void test_all_kinds(void)
{
    struct run run = {.is_active = false};
    run_begin(&run, "r1", "m1");
    iopub(&run, "status", "m1", "{\"execution_state\":\"busy\"}");
    check_told("");
    iopub(&run, "execute_input", "m1", "{\"execution_count\":7,\"code\":\"x\"}");
    check_told("{\"started\":{\"run\":\"r1\",\"count\":7}}\n");
    iopub(&run, "stream", "m1", "{\"name\":\"stdout\",\"text\":\"a\\n\"}");
    iopub(&run, "stream", "m1", "{\"name\":\"stderr\",\"text\":\"b\"}");
    check_told("{\"stdout\":{\"run\":\"r1\",\"text\":\"a\\n\"}}\n{\"stderr\":{\"run\":\"r1\",\"text\":\"b\"}}\n");
    iopub(&run, "display_data", "m1",
          "{\"data\":{\"text/plain\":\"p\"},\"metadata\":{\"m\":1},\"transient\":{\"display_id\":\"d\"}}");
    check_told(
        "{\"display\":{\"run\":\"r1\",\"data\":{\"text/plain\":\"p\"},\"metadata\":{\"m\":1},\"display_id\":\"d\"}}\n");
    iopub(&run, "update_display_data", "m1", "{\"data\":{},\"metadata\":{},\"transient\":{\"display_id\":\"d\"}}");
    check_told("{\"display\":{\"run\":\"r1\",\"data\":{},\"metadata\":{},\"display_id\":\"d\",\"update\":true}}\n");
    iopub(&run, "clear_output", "m1", "{\"wait\":true}");
    check_told("{\"clear\":{\"run\":\"r1\",\"wait\":true}}\n");
    iopub(&run, "execute_result", "m1", "{\"data\":{\"text/plain\":\"2\"},\"metadata\":{},\"execution_count\":7}");
    check_told("{\"result\":{\"run\":\"r1\",\"data\":{\"text/plain\":\"2\"},\"metadata\":{},\"count\":7}}\n");
    reply(&run, "execute_reply", "m1", "{\"status\":\"ok\",\"execution_count\":7}");
    CHECK(run.is_replied && !run.is_idle);
    iopub(&run, "status", "m1", "{\"execution_state\":\"idle\"}");
    CHECK(run.is_idle);
    run_end(&run, &frames);
    check_told("{\"done\":{\"run\":\"r1\",\"status\":\"ok\",\"count\":7}}\n");
    iopub(&run, "stream", "m1", "{\"name\":\"stdout\",\"text\":\"late\"}");
    check_told("{\"stdout\":{\"run\":\"r1\",\"text\":\"late\"}}\n");
    run_done(&run);
}

/* Others' output is nobody's; their ends, results and errors are not ours. */
static void test_others(void)
{
    struct run run = {.is_active = false};
    run_begin(&run, "r1", "m1");
    iopub(&run, "stream", "m0", "{\"name\":\"stdout\",\"text\":\"a\"}");
    iopub(&run, "stream", "", "{\"name\":\"stdout\",\"text\":\"b\"}");
    check_told("{\"stdout\":{\"run\":\"\",\"text\":\"a\"}}\n{\"stdout\":{\"run\":\"\",\"text\":\"b\"}}\n");
    iopub(&run, "status", "m0", "{\"execution_state\":\"idle\"}");
    iopub(&run, "error", "m0", "{\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[]}");
    iopub(&run, "execute_result", "m0", "{\"data\":{},\"execution_count\":1}");
    reply(&run, "execute_reply", "m0", "{\"status\":\"ok\"}");
    reply(&run, "kernel_info_reply", "m1", "{\"status\":\"ok\"}");
    CHECK(!run.is_idle && !run.is_replied);
    check_told("");
    run_done(&run);
}

static void end_with(const char *status_reply, bool interrupted, const char *want)
{
    struct run run = {.is_active = false};
    run_begin(&run, "r", "m");
    run.told_started = true;
    run.was_interrupted = interrupted;
    reply(&run, "execute_reply", "m", status_reply);
    run_end(&run, &frames);
    AUTO_FREE char *got = told();
    CHECK(strstr(got, want) != NULL);
    if (strstr(got, want) == NULL)
        (void)fprintf(stderr, "got %s for %s\n", got, status_reply);
    run_done(&run);
}

static void test_ends(void)
{
    end_with("{\"status\":\"error\",\"ename\":\"KeyboardInterrupt\"}", false, "\"status\":\"interrupted\"");
    end_with("{\"status\":\"error\",\"ename\":\"InterruptException\"}", true, "\"status\":\"interrupted\"");
    end_with("{\"status\":\"error\",\"ename\":\"InterruptException\"}", false, "\"status\":\"error\"");
    end_with("{\"status\":\"error\",\"ename\":\"ValueError\"}", true, "\"status\":\"error\"");
    end_with("{\"status\":\"aborted\"}", false, "\"status\":\"interrupted\"");
    end_with("{\"status\":7}", false, "\"status\":\"error\"");
    end_with("{\"status\":\"ok\",\"execution_count\":-5}", false, "\"count\":0");
    end_with("{\"status\":\"ok\",\"execution_count\":1e300}", false, "\"count\":0");
    end_with("{\"status\":\"ok\",\"payload\":[{\"source\":\"page\",\"data\":{\"text/plain\":\"help\"}}]}", false,
             "{\"display\":{\"run\":\"r\",\"data\":{\"text/plain\":\"help\"}");
    /* said in the reply alone */
    end_with("{\"status\":\"error\",\"ename\":\"<class 'E'>\",\"evalue\":\"v\",\"traceback\":[\"\\u001b[31ma\\nb\"]}",
             false, "{\"error\":{\"run\":\"r\",\"name\":\"E\",\"value\":\"v\",\"traceback\":[\"a\",\"b\"]}}");
}

static void test_stdin(void)
{
    struct run run = {.is_active = false};
    run_begin(&run, "r", "m");
    run_refuse_stdin(&run, &frames);
    run_refuse_stdin(&run, &frames);
    iopub(&run, "error", "m", "{\"ename\":\"KeyboardInterrupt\",\"evalue\":\"\",\"traceback\":[]}");
    reply(&run, "execute_reply", "m", "{\"status\":\"error\",\"ename\":\"KeyboardInterrupt\"}");
    run_end(&run, &frames);
    AUTO_FREE char *got = told();
    CHECK(strstr(got, "StdinNotSupported") != NULL && strstr(got, "KeyboardInterrupt") == NULL);
    CHECK(strstr(got, "\"status\":\"error\"") != NULL);
    run_done(&run);
    struct run other = {.is_active = false};
    run_begin(&other, "r", "m");
    iopub(&other, "error", "m",
          "{\"ename\":\"RuntimeError\",\"evalue\":\"This frontend does not support input requests\"}");
    AUTO_FREE char *said = told();
    CHECK(strstr(said, "StdinNotSupported") != NULL);
    run_done(&other);
}

/* No line is over the frame's bound, and what was left out is named. */
static void test_too_large(void)
{
    struct run run = {.is_active = false};
    AUTO_FREE char *much = memory_new(DRIVER_FRAME_MAX + 1);
    memset(much, 'x', DRIVER_FRAME_MAX);
    run_begin(&run, "r", "m");
    run.told_started = true;
    struct message made = {.type = "display_data", .parent = "m"};
    made.content = json_pack("{s:{s:s, s:s}}", "data", "text/plain", "small", "image/png", much);
    run_on_iopub(&run, &made, &frames);
    message_done(&made);
    check_told("{\"display\":{\"run\":\"r\",\"data\":{\"text/plain\":\"small\\n[left out, as all of it is more than "
               "the 16 MiB of one "
               "message: text/plain image/png]\"},\"metadata\":{}}}\n");
    made = (struct message){.type = "stream", .parent = "m"};
    made.content = json_pack("{s:s, s:s}", "name", "stdout", "text", much);
    run_on_iopub(&run, &made, &frames);
    message_done(&made);
    AUTO_FREE char *got = told();
    size_t lines = 0, bytes = 0;
    for (const char *at = got; *at; at++) {
        lines += *at == '\n';
        bytes += *at == 'x'; /* also that of "text" */
    }
    CHECK(lines == DRIVER_FRAME_MAX >> 20);
    CHECK(bytes == DRIVER_FRAME_MAX + lines);
    run_done(&run);
}

int main(void)
{
    frames.fd = memfd_create("frames", MFD_CLOEXEC);
    CHECK(frames.fd >= 0);
    test_all_kinds();
    test_others();
    test_ends();
    test_stdin();
    test_too_large();
    close(frames.fd);
    return check_done();
}
