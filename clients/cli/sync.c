/** sync.c - `parley sync`: makes a folder here and one in a sandbox alike, by what differs. */
#include "clients/cli/files_session.h"
#include "clients/cli/local_file.h"
#include "clients/cli/tree.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley sync [options] DIR [SANDBOX]:PATH\n"
    "       parley sync [options] [SANDBOX]:PATH DIR\n\n"
    "Makes the second folder like the first: copies what is missing there or differs in size, time or mode. What is\n"
    "only there stays, unless --delete. Links are copied as links; down here only those that stay in the folder.\n\n"
    "  --delete           remove what is only in the second\n"
    "  -n, --dry-run      only tell what would be done: + made, ~ replaced, - removed\n"
    "  --exclude PATTERN  leave out names or paths like this, both sides; repeatable\n" FILES_HELP;

/* What is to be done to the target for one path. */
enum deed { DEED_NONE, DEED_MAKE, DEED_REPLACE, DEED_REMOVE };

struct plan {
    enum deed *source_deeds; /* for each entry of the source: NONE, MAKE, REPLACE */
    bool *clears;            /* ... and whether something of another kind is in its way */
    enum deed *target_deeds; /* for each entry of the target: NONE, REMOVE */
    size_t made, replaced, removed, same, skipped;
};

struct sync {
    struct files_options files;
    bool deletes, is_dry, is_up;
    const char **excluded; /* NULL-ended */
    size_t excluded_count;
    char *local, *remote;
    struct tree source, target;
    struct plan plan;
    struct files_session session;
};

static bool is_same(const struct remote_entry *a, const struct remote_entry *b, unsigned mode_mask)
{
    if (a->kind == REMOTE_LINK)
        return text_equal(a->target, b->target);
    bool mode = (a->mode & mode_mask) == (b->mode & mode_mask);
    return a->kind == REMOTE_FOLDER || (mode && a->size == b->size && a->mtime_ns == b->mtime_ns);
}

static bool is_below_removed(const struct remote_entry *entry, const char *removed)
{
    size_t length = removed ? strlen(removed) : 0;
    return length && strncmp(entry->path, removed, length) == 0 && entry->path[length] == '/';
}

static void plan_pair(struct sync *sync, size_t from, size_t to)
{
    struct plan *plan = &sync->plan;
    const struct remote_entry *source = &sync->source.entries[from], *target = &sync->target.entries[to];
    bool is_other = source->kind != target->kind;
    if (!is_other && is_same(source, target, sync->is_up ? 0777U : local_file_mask())) {
        plan->same++;
        return;
    }
    /* Links and other kinds are not overwritten in place. */
    plan->clears[from] = is_other || source->kind == REMOTE_LINK;
    plan->source_deeds[from] = DEED_REPLACE;
    plan->replaced++;
}

/* Both are in one order: walks them as a merge. */
static void make_plan(struct sync *sync)
{
    struct plan *plan = &sync->plan;
    const struct tree *source = &sync->source, *target = &sync->target;
    plan->source_deeds = memory_array(source->count + 1, sizeof *plan->source_deeds);
    plan->clears = memory_array(source->count + 1, sizeof *plan->clears);
    plan->target_deeds = memory_array(target->count + 1, sizeof *plan->target_deeds);
    const char *removed = NULL;
    for (size_t from = 0, to = 0; from < source->count || to < target->count;) {
        int order = from == source->count ? 1
                    : to == target->count ? -1
                                          : tree_compare(source->entries[from].path, target->entries[to].path);
        if (order < 0) {
            const struct remote_entry *entry = &source->entries[from];
            bool leads_out = !sync->is_up && entry->kind == REMOTE_LINK && !tree_link_stays(entry->path, entry->target);
            plan->source_deeds[from++] = leads_out ? DEED_NONE : DEED_MAKE;
            plan->skipped += leads_out;
            plan->made += !leads_out;
        } else if (order > 0) {
            const struct remote_entry *entry = &target->entries[to++];
            if (sync->deletes && !is_below_removed(entry, removed) && !tree_holds_excluded(target, entry->path)) {
                removed = entry->path;
                plan->target_deeds[to - 1] = DEED_REMOVE;
                plan->removed++;
            }
        } else {
            plan_pair(sync, from++, to++);
        }
    }
}

/* A folder that gives way to something else takes with it what is only in there: only when told. */
static bool check_clears(const struct sync *sync, struct error *err)
{
    for (size_t from = 0, to = 0; from < sync->source.count; from++) {
        const char *path = sync->source.entries[from].path;
        if (!sync->plan.clears[from])
            continue;
        if (tree_holds_excluded(&sync->target, path))
            return error_set(err, ERROR_CONFLICT, "%.160s is a folder there and holds what --exclude leaves out", path);
        if (sync->deletes)
            continue;
        while (to < sync->target.count && tree_compare(sync->target.entries[to].path, path) < 0)
            to++;
        if (to < sync->target.count && sync->target.entries[to].kind == REMOTE_FOLDER &&
            tree_compare(sync->target.entries[to].path, path) == 0)
            return error_set(err, ERROR_CONFLICT, "%.160s is a folder there and none here; --delete removes it", path);
    }
    return true;
}

/* ---- doing it ---- */

static bool remove_at(struct sync *sync, int folder, const char *path, struct error *err)
{
    if (sync->is_up) {
        AUTO_FREE char *remote = files_name_join(sync->remote, path);
        return remote_files_remove(sync->session.files, remote, true, err) || err->kind == ERROR_NOT_FOUND;
    }
    const char *name;
    AUTO_FD int parent = local_file_parent(folder, path, &name, err);
    if (parent < 0)
        return false;
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return true;
    AUTO_FREE char *whole = files_name_join(sync->local, path);
    return errno == EISDIR ? fd_remove_tree(whole, err) : error_set_errno(err, ERROR_FORBIDDEN, "%.160s", path);
}

static bool clear_way(struct sync *sync, int folder, struct error *err)
{
    for (size_t i = 0; i < sync->target.count; i++) {
        if (sync->plan.target_deeds[i] == DEED_REMOVE && !remove_at(sync, folder, sync->target.entries[i].path, err))
            return false;
    }
    for (size_t i = 0; i < sync->source.count; i++) {
        if (sync->plan.clears[i] && !remove_at(sync, folder, sync->source.entries[i].path, err))
            return false;
    }
    return true;
}

/* All that is new as one tar: a thousand small files are one request. */
static bool send_changes(struct sync *sync, struct error *err)
{
    AUTO_FREE struct remote_entry *changed = memory_array(sync->source.count + 1, sizeof *changed);
    size_t count = 0;
    for (size_t i = 0; i < sync->source.count; i++) {
        if (sync->plan.source_deeds[i] != DEED_NONE)
            changed[count++] = sync->source.entries[i];
    }
    if (count == 0)
        return true;
    files_progress_begin(&sync->session, sync->local, tree_bytes(changed, count));
    bool good = tree_send(sync->session.files, sync->local, sync->remote, changed, count, err);
    files_progress_end(&sync->session);
    return good;
}

static bool fetch_entry(struct sync *sync, int folder, const struct remote_entry *entry, struct error *err)
{
    const char *name;
    if (entry->kind == REMOTE_FILE) {
        AUTO_FREE char *remote = files_name_join(sync->remote, entry->path);
        return local_file_fetch(sync->session.files, remote, entry, folder, entry->path, true, err);
    }
    AUTO_FD int parent = local_file_parent(folder, entry->path, &name, err);
    if (parent < 0)
        return false;
    int failed = entry->kind == REMOTE_FOLDER ? mkdirat(parent, name, (entry->mode & 0777U) | 0700U)
                                              : symlinkat(entry->target, parent, name);
    return failed == 0 || (entry->kind == REMOTE_FOLDER && errno == EEXIST) ||
           error_set_errno(err, ERROR_FORBIDDEN, "%.160s", entry->path);
}

static bool fetch_changes(struct sync *sync, int folder, struct error *err)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < sync->source.count; i++)
        bytes += sync->plan.source_deeds[i] != DEED_NONE ? tree_bytes(&sync->source.entries[i], 1) : 0;
    files_progress_begin(&sync->session, sync->remote, bytes);
    bool good = true;
    for (size_t i = 0; i < sync->source.count && good; i++) {
        if (sync->plan.source_deeds[i] != DEED_NONE)
            good = fetch_entry(sync, folder, &sync->source.entries[i], err);
    }
    files_progress_end(&sync->session);
    return good;
}

static bool carry_out(struct sync *sync, struct error *err)
{
    AUTO_FD int folder = -1;
    files_catch_stop();
    if (!sync->is_up) {
        if (!fd_make_folders(sync->local, 0777, err))
            return false;
        folder = open(sync->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0)
            return error_set_errno(err, ERROR_FORBIDDEN, "%s", sync->local);
    }
    return clear_way(sync, folder, err) && (sync->is_up ? send_changes(sync, err) : fetch_changes(sync, folder, err));
}

/* ---- telling ---- */

static void print_deed(const char *mark, const char *path)
{
    AUTO_FREE char *safe = cli_safe(path);
    printf("%s %s\n", mark, safe);
}

static void print_dry(const struct sync *sync)
{
    for (size_t i = 0; i < sync->target.count; i++) {
        if (sync->plan.target_deeds[i] == DEED_REMOVE)
            print_deed("-", sync->target.entries[i].path);
    }
    for (size_t i = 0; i < sync->source.count; i++) {
        if (sync->plan.source_deeds[i] != DEED_NONE)
            print_deed(sync->plan.source_deeds[i] == DEED_MAKE ? "+" : "~", sync->source.entries[i].path);
    }
}

static void print_sum(const struct sync *sync)
{
    const struct plan *plan = &sync->plan;
    size_t skipped = plan->skipped + sync->source.skipped;
    if (sync->files.common.json)
        cli_print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:b}", "made", (json_int_t)plan->made, "replaced",
                                 (json_int_t)plan->replaced, "removed", (json_int_t)plan->removed, "same",
                                 (json_int_t)plan->same, "skipped", (json_int_t)skipped, "dry_run", sync->is_dry));
    else if (!sync->files.quiet)
        fprintf(stderr, "parley: %zu made, %zu replaced, %zu removed, %zu the same, %zu left out\n", plan->made,
                plan->replaced, plan->removed, plan->same, skipped);
}

/* A folder that is not there yet is an empty one. */
static bool read_trees(struct sync *sync, struct error *err)
{
    struct tree *here = sync->is_up ? &sync->source : &sync->target;
    struct tree *there = sync->is_up ? &sync->target : &sync->source;
    struct error missing = {0};
    if (!tree_read_local(here, sync->local, sync->excluded, &missing) &&
        (sync->is_up || missing.kind != ERROR_NOT_FOUND)) {
        *err = missing;
        return false;
    }
    missing = (struct error){0};
    if (!tree_read_remote(there, sync->session.files, sync->remote, sync->excluded, &missing) &&
        (!sync->is_up || missing.kind != ERROR_NOT_FOUND)) {
        *err = missing;
        return false;
    }
    return true;
}

static int run(struct sync *sync, const char *sandbox)
{
    struct error err = {0};
    if (!files_session_open(&sync->session, &sync->files, sandbox, &err) || !read_trees(sync, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    make_plan(sync);
    bool good = check_clears(sync, &err);
    if (good && sync->is_dry && !sync->files.common.json)
        print_dry(sync);
    else if (good && !sync->is_dry)
        good = carry_out(sync, &err);
    if (!good && files_is_stopped())
        return CLI_FAILED;
    if (!good)
        return cli_fail_usual(&err, CLI_FAILED);
    print_sum(sync);
    return CLI_OK;
}

static void sync_done(struct sync *sync)
{
    tree_done(&sync->source);
    tree_done(&sync->target);
    free(sync->plan.source_deeds);
    free(sync->plan.clears);
    free(sync->plan.target_deeds);
    free(sync->excluded);
    free(sync->local);
    free(sync->remote);
    files_session_close(&sync->session);
}

static void exclude(struct sync *sync, const char *pattern)
{
    sync->excluded = memory_resize(sync->excluded, (sync->excluded_count + 2) * sizeof *sync->excluded);
    sync->excluded[sync->excluded_count++] = pattern;
    sync->excluded[sync->excluded_count] = NULL;
}

static void read_options(struct sync *sync, int argc, char *argv[])
{
    static const struct option LONG[] = {{"delete", no_argument, NULL, 'd'},
                                         {"dry-run", no_argument, NULL, 'n'},
                                         {"exclude", required_argument, NULL, 'x'},
                                         FILES_LONG_OPTIONS};
    int option;
    while ((option = getopt_long(argc, argv, "qn", LONG, NULL)) != -1) {
        if (files_option(&sync->files, option, HELP))
            continue;
        sync->deletes = sync->deletes || option == 'd';
        sync->is_dry = sync->is_dry || option == 'n';
        if (option == 'x')
            exclude(sync, optarg);
    }
}

int sync_main(int argc, char *argv[])
{
    struct sync sync = {0};
    read_options(&sync, argc, argv);
    if (argc - optind != 2) {
        sync_done(&sync);
        return cli_usage("sync", "two folders: DIR :PATH, or :PATH DIR");
    }
    struct error err = {0};
    AUTO_FILES_NAME from = {0};
    AUTO_FILES_NAME to = {0};
    int status;
    if (!files_name_parse(&from, argv[optind], &err) || !files_name_parse(&to, argv[optind + 1], &err)) {
        status = cli_fail(&err, NULL, CLI_USAGE);
    } else if (!from.sandbox == !to.sandbox) {
        status = cli_usage("sync", "one of the two is in the sandbox (:PATH), the other one here");
    } else {
        sync.is_up = to.sandbox != NULL;
        sync.local = TAKE(*(sync.is_up ? &from.path : &to.path));
        sync.remote = TAKE(*(sync.is_up ? &to.path : &from.path));
        status = run(&sync, sync.is_up ? to.sandbox : from.sandbox);
    }
    sync_done(&sync);
    return status;
}
