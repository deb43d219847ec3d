/* watch_test.c - what is told of a folder that changes. */
#include "tests/unit/sandboxd/helpers/files/tree_rig.h"

static char letter(const struct files_record *record)
{
    static const char LETTERS[] = "?CMDROG";
    return record->kind == FILES_EVENT ? LETTERS[record->event] : 'E';
}

/* "C path D/ path R path<from" of all so far. */
static char *in_text(const struct answer *answer)
{
    char *all = memory_string("");
    for (size_t i = 0; i < answer->count; i++) {
        const struct got *got = &answer->all[i];
        bool is_move = got->record.event == FILES_MOVED;
        char *longer =
            memory_printf("%s%s%c%s %s%s%s", all, i ? " " : "", letter(&got->record), got->record.is_folder ? "/" : "",
                          got->path, is_move ? "<" : "", is_move ? got->text : "");
        free(all);
        all = longer;
    }
    return all;
}

/* Until it is what is wanted (or seconds have gone), and then a while for what is not. */
static void check_events(struct rig *rig, int line, const char *want)
{
    struct answer answer = {0};
    char *all = in_text(&answer);
    while (answer.end.kind == 0 && rig_more(rig, &answer, strcmp(all, want) == 0 ? 150 : 5000)) {
        free(all);
        all = in_text(&answer);
    }
    if (strcmp(all, want) != 0)
        (void)fprintf(stderr, "line %d:\n", line);
    CHECK_TEXT(all, want);
    free(all);
    answer_done(&answer);
}

#define CHECK_EVENTS(rig, want) check_events(rig, __LINE__, want)

/* Starts to watch and waits for the entry that says so. */
static void begin(struct rig *rig, const char *root, const char *path, uint32_t flags)
{
    rig_stop(rig);
    rig_start(rig, 0);
    struct files_request request = {.operation = FILES_WATCH, .root = root, .path = path, .flags = flags};
    rig_send(rig, &request, -1);
    struct answer answer = {0};
    CHECK(rig_more(rig, &answer, 5000) && answer.count == 1 && answer.all[0].record.kind == FILES_ENTRY);
    CHECK_TEXT(answer.count ? answer.all[0].path : NULL, "");
    answer_done(&answer);
}

static void append(const struct rig *rig, const char *path, const char *text)
{
    int fd = openat(rig->root, path, O_WRONLY | O_APPEND);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void test_folder(struct rig *rig)
{
    rig_folder(rig, "w");
    rig_folder(rig, "w/sub");
    rig_file(rig, "w/a", "a");
    begin(rig, "", "/w", 0);
    rig_file(rig, "w/b", "b");
    CHECK_EVENTS(rig, "C b");
    for (int i = 0; i < 20; i++)
        append(rig, "w/b", "more");
    CHECK_EVENTS(rig, "M b");
    CHECK(unlinkat(rig->root, "w/b", 0) == 0);
    rig_file(rig, "w/sub/unseen", "1");
    CHECK_EVENTS(rig, "D b");
    CHECK(renameat(rig->root, "w/a", rig->root, "w/c") == 0);
    CHECK_EVENTS(rig, "R c<a");
    CHECK(renameat(rig->root, "w/c", rig->root, "away") == 0);
    CHECK_EVENTS(rig, "D c");
    CHECK(renameat(rig->root, "away", rig->root, "w/back") == 0);
    CHECK_EVENTS(rig, "C back");
    CHECK(fchmodat(rig->root, "w/back", 0600, 0) == 0);
    CHECK_EVENTS(rig, "M back");
    rig_folder(rig, "w/new");
    CHECK_EVENTS(rig, "C/ new");
    rig_file(rig, "w/new/unseen", "1");
    CHECK_EVENTS(rig, "");
}

static void test_recursive(struct rig *rig)
{
    rig_folder(rig, "r");
    rig_folder(rig, "r/s");
    rig_folder(rig, "r/s/t");
    rig_folder(rig, "outside");
    rig_folder(rig, "outside/o");
    rig_file(rig, "outside/o/f", "f");
    CHECK(symlinkat("../outside", rig->root, "r/link") == 0);
    begin(rig, "", "/r", FILES_RECURSIVE);
    rig_file(rig, "r/s/t/f", "f");
    CHECK_EVENTS(rig, "C s/t/f");
    rig_file(rig, "outside/o/g", "through a symlink nothing is seen");
    CHECK_EVENTS(rig, "");
    rig_folder(rig, "r/n");
    rig_folder(rig, "r/n/m");
    rig_file(rig, "r/n/m/f", "f");
    CHECK_EVENTS(rig, "C/ n C/ n/m C n/m/f");
    append(rig, "r/n/m/f", "x");
    CHECK_EVENTS(rig, "M n/m/f");
    /* A folder that is moved keeps being watched, by its new name. */
    CHECK(renameat(rig->root, "r/n", rig->root, "r/s/moved") == 0);
    CHECK_EVENTS(rig, "R/ s/moved<n");
    append(rig, "r/s/moved/m/f", "x");
    CHECK_EVENTS(rig, "M s/moved/m/f");
    /* Out of what is watched it is not seen any more. */
    CHECK(renameat(rig->root, "r/s/moved", rig->root, "outside/moved") == 0);
    CHECK_EVENTS(rig, "D/ s/moved");
    append(rig, "outside/moved/m/f", "x");
    CHECK_EVENTS(rig, "");
    /* And into it, with all that is in it. */
    CHECK(renameat(rig->root, "outside/moved", rig->root, "r/in") == 0);
    CHECK_EVENTS(rig, "C/ in C/ in/m C in/m/f");
    append(rig, "r/in/m/f", "x");
    CHECK_EVENTS(rig, "M in/m/f");
    CHECK(unlinkat(rig->root, "r/in/m/f", 0) == 0 && unlinkat(rig->root, "r/in/m", AT_REMOVEDIR) == 0);
    CHECK_EVENTS(rig, "D in/m/f D/ in/m");
}

static void test_gone(struct rig *rig)
{
    rig_folder(rig, "g");
    begin(rig, "", "/g", FILES_RECURSIVE);
    rig_file(rig, "g/x", "");
    CHECK(unlinkat(rig->root, "g/x", 0) == 0 && unlinkat(rig->root, "g", AT_REMOVEDIR) == 0);
    struct answer answer = {0};
    while (answer.end.kind == 0 && rig_more(rig, &answer, 5000))
        ;
    CHECK(answer.end.kind == FILES_DONE && answer.count == 3);
    CHECK(answer.count == 3 && answer.all[2].record.event == FILES_GONE && answer.all[2].record.is_folder);
    answer_done(&answer);
    rig_folder(rig, "g");
    begin(rig, "", "/g", 0);
    CHECK(renameat(rig->root, "g", rig->root, "g2") == 0);
    CHECK_EVENTS(rig, "G/ ");
    begin(rig, "", "/g2", 0);
    rig_stop(rig);
    rig_start(rig, 0);
    struct files_request request = {.operation = FILES_WATCH, .path = "/none"};
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_NOT_FOUND, "No such file");
}

static void test_file(struct rig *rig)
{
    rig_file(rig, "file", "1");
    begin(rig, "", "/file", FILES_RECURSIVE);
    append(rig, "file", "2");
    CHECK_EVENTS(rig, "M ");
    int held = openat(rig->root, "file", O_RDONLY); /* somebody has it open: it is gone all the same */
    CHECK(unlinkat(rig->root, "file", 0) == 0);
    CHECK_EVENTS(rig, "G ");
    close(held);
}

static void test_scope(struct rig *rig)
{
    rig_folder(rig, "in");
    CHECK(symlinkat("../outside", rig->root, "in/out") == 0);
    struct files_request request = {.operation = FILES_WATCH, .root = "/in", .path = "/in/out"};
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_FORBIDDEN, "outside");
    begin(rig, "/in", "/in", FILES_RECURSIVE);
    rig_folder(rig, "in/x");
    rig_file(rig, "in/x/y", "");
    CHECK_EVENTS(rig, "C/ x C x/y");
}

/* More events than the kernel keeps while the helper does not run: an overflow is told, and new folders are watched. */
static void test_overflow(struct rig *rig)
{
    char text[32] = "";
    int limit = open("/proc/sys/fs/inotify/max_queued_events", O_RDONLY);
    CHECK(limit >= 0 && read(limit, text, sizeof text - 1) > 0);
    close(limit);
    int count = atoi(text) + 1000;
    if (count > 200000)
        return;
    rig_folder(rig, "o");
    begin(rig, "", "/o", FILES_RECURSIVE);
    CHECK(kill(rig->pid, SIGSTOP) == 0);
    for (int i = 0; i < count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "o/%d", i % 2);
        CHECK((i % 4 < 2 ? mkdirat(rig->root, name, 0755) : unlinkat(rig->root, name, AT_REMOVEDIR)) == 0);
    }
    rig_folder(rig, "o/last");
    CHECK(kill(rig->pid, SIGCONT) == 0);
    struct answer answer = {0};
    size_t overflows = 0;
    while (rig_more(rig, &answer, 1000))
        ;
    for (size_t i = 0; i < answer.count; i++)
        overflows += answer.all[i].record.event == FILES_OVERFLOW;
    CHECK(overflows > 0);
    answer_done(&answer);
    rig_file(rig, "o/last/f", "");
    CHECK_EVENTS(rig, "C last/f");
}

static void test_too_many(struct rig *rig)
{
    rig_folder(rig, "many");
    for (int i = 0; i < 8191; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "many/%d", i);
        if (mkdirat(rig->root, name, 0755) < 0)
            check_failures++;
    }
    begin(rig, "", "/many", FILES_RECURSIVE);
    rig_folder(rig, "many/straw");
    struct answer answer = {0};
    while (answer.end.kind == 0 && rig_more(rig, &answer, 5000))
        ;
    check_error(&answer.end, ERROR_NO_CAPACITY, "8192");
    CHECK(answer.count == 1); /* what was seen is told before */
    answer_done(&answer);
}

/* While files come and go in all places at once, what is there in the end was told as created last. */
static void test_busy(struct rig *rig)
{
    rig_folder(rig, "b");
    begin(rig, "", "/b", FILES_RECURSIVE);
    for (int i = 0; i < 200; i++) {
        char folder[64], path[128];
        (void)snprintf(folder, sizeof folder, "b/%d", i);
        rig_folder(rig, folder);
        (void)snprintf(path, sizeof path, "%s/sub", folder);
        rig_folder(rig, path);
        (void)snprintf(path, sizeof path, "%s/sub/f", folder);
        rig_file(rig, path, "");
    }
    struct answer answer = {0};
    while (rig_more(rig, &answer, 500))
        ;
    for (int i = 0; i < 200; i++) {
        char want[64];
        bool is_told = false;
        (void)snprintf(want, sizeof want, "%d/sub/f", i);
        for (size_t j = 0; j < answer.count; j++)
            is_told = is_told || (answer.all[j].record.event == FILES_CREATED && strcmp(answer.all[j].path, want) == 0);
        check_failures += !is_told;
    }
    answer_done(&answer);
}

int main(void)
{
    struct rig rig;
    rig_open(&rig);
    test_folder(&rig);
    test_recursive(&rig);
    test_gone(&rig);
    test_file(&rig);
    test_scope(&rig);
    test_overflow(&rig);
    test_busy(&rig);
    test_too_many(&rig);
    rig_close(&rig);
    return check_done();
}
