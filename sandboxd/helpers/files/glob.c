/* glob.c - FILES_GLOB: what a pattern matches below a folder. Folders that the pattern cannot reach are not read. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/glob_pattern.h"
#include "sandboxd/helpers/files/walk.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define FLUSH_NS 100000000 /* what was found is told after 100 ms, also when a packet is not full */

struct hunt {
    struct helper *helper;
    const struct glob_pattern *pattern;
    struct glob_position *positions; /* [depth]: of the names in the folder at that depth */
    size_t room;
    uint64_t flushed_ns; /* CLOCK_MONOTONIC */
};

static bool tell(struct hunt *hunt, const struct walk_place *place, struct error *err)
{
    struct helper *helper = hunt->helper;
    struct stat status;
    if (fstatat(place->folder, place->name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
        helper->skipped += errno != ENOENT;
        return true;
    }
    helper->count++;
    return helper_entry(helper, &status, place->folder, place->name, place->path, place->path_size, err);
}

static bool flush_at_times(struct hunt *hunt, struct error *err)
{
    uint64_t now = clock_monotonic_ns();
    if (now - hunt->flushed_ns < FLUSH_NS)
        return true;
    hunt->flushed_ns = now;
    return helper_flush(hunt->helper, err);
}

/* What the name at `place` is to the pattern; by its name alone all folders are gone through. */
static struct glob_step judge(struct hunt *hunt, const struct walk_place *place)
{
    uint32_t flags = hunt->helper->request->flags;
    bool is_folder = place->type == FILES_FOLDER;
    struct glob_step step = {.goes_on = is_folder};
    if (flags & FILES_BY_NAME)
        step.is_match = glob_pattern_matches(hunt->pattern, place->name, is_folder);
    else
        step = glob_pattern_step(hunt->pattern, &hunt->positions[place->depth - 1], place->name, is_folder,
                                 &hunt->positions[place->depth]);
    step.is_match = step.is_match && !(is_folder && (flags & FILES_NO_FOLDERS));
    return step;
}

static bool search(struct hunt *hunt, struct walk *walk, struct error *err)
{
    struct helper *helper = hunt->helper;
    struct walk_place place;
    while (walk_next(walk, &place)) {
        if (place.depth >= hunt->room) {
            hunt->room *= 2;
            hunt->positions = memory_resize(hunt->positions, hunt->room * sizeof hunt->positions[0]);
        }
        struct glob_step step = judge(hunt, &place);
        if (step.is_match && helper->request->limit > 0 && helper->count == helper->request->limit) {
            helper->is_truncated = true;
            return true;
        }
        if (step.is_match && !tell(hunt, &place, err))
            return false;
        if (step.goes_on && walk_enter(walk) && !flush_at_times(hunt, err))
            return false;
    }
    return true;
}

bool files_glob(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    enum glob_case letters = request->flags & FILES_IGNORE_CASE ? GLOB_ANY_CASE : GLOB_EXACT;
    AUTO(glob_pattern) *pattern = glob_pattern_parse(request->pattern, letters, err);
    if (pattern == NULL || !helper_end_with_front(helper, err))
        return false;
    if (request->flags & FILES_BY_NAME)
        glob_pattern_show_hidden(pattern);
    AUTO_FD int folder = resolve_open(helper, request->root, request->path, O_RDONLY | O_DIRECTORY, err);
    if (folder < 0)
        return false;
    AUTO(walk) *walk = walk_new(folder, WALK_BEFORE, err);
    if (walk == NULL)
        return false;
    struct hunt hunt = {.helper = helper, .pattern = pattern, .room = 16, .flushed_ns = clock_monotonic_ns()};
    hunt.positions = memory_array(hunt.room, sizeof hunt.positions[0]);
    glob_pattern_begin(pattern, &hunt.positions[0]);
    bool is_done = search(&hunt, walk, err);
    free(hunt.positions);
    helper->skipped += walk_skipped(walk);
    return is_done;
}
