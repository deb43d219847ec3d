#include "negotiator/leasing/page_walk.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_ROWS = 100 };

/* The keys of one step; anew each time, as a rule may run again. */
struct step {
    char ids[STEP_ROWS][RANDOM_ID_BYTES];
    size_t count;
};

void page_walk_free(struct page_walk *walk)
{
    if (walk)
        free(walk->found);
    free(walk);
}

static bool note_id(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct step *step = cookie;
    const char *id = strrchr(key, '/');
    if (id && text_copy(step->ids[step->count], RANDOM_ID_BYTES, id + 1))
        step->count++;
    return step->count < STEP_ROWS;
}

static bool read_keys(struct work *work, const struct page_walk *walk, const char *index, const char *owner,
                      struct step *step)
{
    char first[KV_KEY_MAX_BYTES], end[KV_KEY_MAX_BYTES];
    /* '!' follows every id that begins the same; '0' follows '/'. */
    if (!text_format(first, sizeof first, "%s/%s/%s%s", index, owner, walk->after, walk->after[0] ? "!" : "") ||
        !text_format(end, sizeof end, "%s/%s0", index, owner))
        return error_set(work->err, ERROR_INTERNAL, "a key does not fit");
    return kv_range(work->kv, first, end, STEP_ROWS, note_id, step, work->err);
}

static void keep(struct page_walk *walk, const char *id, int64_t created_at)
{
    if (walk->count == LEASING_PAGE_MAX) {
        walk->is_cut = true;
        return;
    }
    if ((walk->count & (walk->count - 1)) == 0)
        walk->found = memory_resize(walk->found, (walk->count ? 2 * walk->count : 1) * sizeof *walk->found);
    struct page_entry *found = &walk->found[walk->count++];
    memcpy(found->id, id, sizeof found->id);
    found->created_at = created_at;
}

/* The newest first; of the same moment, by their ids. */
static int compare(const void *a, const void *b)
{
    const struct page_entry *x = a, *y = b;
    if (x->created_at != y->created_at)
        return x->created_at < y->created_at ? 1 : -1;
    return strcmp(x->id, y->id);
}

bool page_walk_step(struct work *work, struct page_walk *walk, const char *index, const char *owner,
                    page_walk_look *look, void *cookie)
{
    struct step step;
    step.count = 0;
    if (!read_keys(work, walk, index, owner, &step))
        return false;
    for (size_t i = 0; i < step.count; i++) {
        bool is_asked_for = false;
        int64_t created_at = 0;
        if (!look(work, cookie, step.ids[i], &is_asked_for, &created_at))
            return false;
        if (is_asked_for)
            keep(walk, step.ids[i], created_at);
    }
    if (step.count > 0)
        memcpy(walk->after, step.ids[step.count - 1], sizeof walk->after);
    walk->walked = step.count < STEP_ROWS || walk->is_cut;
    if (walk->walked && walk->count > 0)
        qsort(walk->found, walk->count, sizeof *walk->found, compare);
    return true;
}
