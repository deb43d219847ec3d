/* execd_folder.c - one operation of the file helper. */
#include "sandboxd/dialects/execd/execd_folder.h"

#include "sandboxd/dialects/native/files/files_request.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/sandbox/files.h"
#include "shared/base/memory.h"

#include <string.h>

struct folder {
    uint64_t request; /* its number */
    char *path;
    bool is_folder;
    execd_folder_next *next;
    void *cookie;
};

static void finish(struct folder *folder, const struct error *err)
{
    struct http_request *request = http_request_find(loop_current(), folder->request);
    folder->next(request, folder->cookie, err);
    free(folder->path);
    free(folder);
}

static void on_record(void *cookie, const struct files_record *record, int descriptor UNUSED)
{
    struct folder *folder = cookie;
    if (record->kind == FILES_ENTRY)
        folder->is_folder = record->type == FILES_FOLDER;
}

static void on_over(void *cookie, const struct files_record *done UNUSED, const struct error *err)
{
    struct folder *folder = cookie;
    struct error wrong = {0};
    bool is_wrong =
        err && (err->kind == ERROR_NOT_FOUND || err->kind == ERROR_CONFLICT || err->kind == ERROR_FORBIDDEN);
    if (err && !is_wrong)
        wrong = *err;
    else if (err || !folder->is_folder)
        error_set(&wrong, ERROR_INVALID, "cwd: %.200s is no folder of the sandbox%s%.200s", folder->path,
                  err ? ": " : "", err ? err->message : "");
    finish(folder, wrong.kind == ERROR_NONE ? NULL : &wrong);
}

static void on_unrecorded(void *cookie)
{
    struct folder *folder = cookie;
    struct error err = {0};
    error_set(&err, ERROR_DISK_FULL, "it could not be recorded, and is not done");
    finish(folder, &err);
}

static bool record(const struct http_request *request, const struct files_request *asked)
{
    struct error err = {0};
    AUTO_FREE char *detail = files_request_detail(asked, "parents=1");
    return plane_audit(request, &err, "mkdir", "%s", detail);
}

void execd_folder(struct http_request *request, const char *path, bool makes, execd_folder_next *next, void *cookie)
{
    static const struct files_events EVENTS = {.record = on_record, .over = on_over};
    struct folder *folder = memory_new(sizeof *folder);
    *folder = (struct folder){http_request_number(request), memory_string(path), false, next, cookie};
    struct files_request asked = {.operation = FILES_STAT,
                                  .flags = FILES_FOLLOW,
                                  .root = "",
                                  .path = folder->path,
                                  .to_root = "",
                                  .to_path = "",
                                  .pattern = "",
                                  .glob = "",
                                  .upload = "",
                                  .owner = "",
                                  .group = ""};
    if (makes && strcmp(path, "/") != 0) {
        asked.operation = FILES_MKDIR;
        asked.flags = FILES_PARENTS;
        if (!record(request, &asked)) {
            loop_post(http_request_loop(request), on_unrecorded, folder);
            return;
        }
    }
    (void)!files_start(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, &asked, -1, &EVENTS,
                       folder);
}
