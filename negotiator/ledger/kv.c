#include "negotiator/ledger/kv.h"

#include "negotiator/ledger/kv_internal.h"
#include "shared/base/memory.h"

#include <string.h>

void kv_value_done(struct kv_value *value)
{
    free(value->data);
    *value = (struct kv_value){0};
}

static bool check_size(const char *what, size_t size, size_t min, size_t max, struct error *err)
{
    if (size >= min && size <= max)
        return true;
    return error_set(err, ERROR_INVALID, "a %s of the store must have %zu to %zu bytes", what, min, max);
}

static bool check_key(const char *key, struct error *err)
{
    return check_size("key", strnlen(key, KV_KEY_MAX_BYTES + 1), 1, KV_KEY_MAX_BYTES, err);
}

struct kv_change *kv_change_new(void)
{
    return memory_new(sizeof(struct kv_change));
}

void kv_change_free(struct kv_change *change)
{
    if (change == NULL)
        return;
    for (size_t i = 0; i < change->count; i++) {
        free(change->steps[i].key);
        free(change->steps[i].data);
    }
    free(change->steps);
    free(change);
}

static struct kv_step *add_step(struct kv_change *change, enum kv_step_kind kind, const char *key)
{
    if (change->count == change->capacity) {
        change->capacity = change->capacity ? change->capacity * 2 : 8;
        change->steps = memory_resize(change->steps, change->capacity * sizeof *change->steps);
    }
    struct kv_step *step = &change->steps[change->count++];
    *step = (struct kv_step){.kind = kind, .key = memory_string(key)};
    return step;
}

static bool admit(struct kv_change *change, const char *key)
{
    return change->invalid.kind == ERROR_NONE && check_key(key, &change->invalid);
}

void kv_change_expect(struct kv_change *change, const char *key, uint64_t revision)
{
    if (admit(change, key))
        add_step(change, KV_STEP_EXPECT, key)->revision = revision;
}

void kv_change_put(struct kv_change *change, const char *key, const void *data, size_t size)
{
    if (!admit(change, key) || !check_size("value", size, 0, KV_VALUE_MAX_BYTES, &change->invalid))
        return;
    struct kv_step *step = add_step(change, KV_STEP_PUT, key);
    step->data = memory_copy(data, size);
    step->size = size;
}

void kv_change_delete(struct kv_change *change, const char *key)
{
    if (admit(change, key))
        add_step(change, KV_STEP_DELETE, key);
}

const struct kv_step *kv_change_pending(const struct kv_change *change, const char *key)
{
    for (size_t i = change->count; i > 0; i--) {
        const struct kv_step *step = &change->steps[i - 1];
        if (step->kind != KV_STEP_EXPECT && strcmp(step->key, key) == 0)
            return step->kind == KV_STEP_PUT ? step : NULL;
    }
    return NULL;
}

void kv_free(struct kv *kv)
{
    if (kv)
        kv->engine->free(kv);
}

bool kv_get(struct kv *kv, const char *key, struct kv_value *value, struct error *err)
{
    struct kv_value got = {0};
    if (!check_key(key, err) || !kv->engine->get(kv, key, &got, err))
        return false;
    kv_value_done(value);
    *value = got;
    return true;
}

bool kv_range(struct kv *kv, const char *first, const char *end, size_t limit, kv_visit *visit, void *cookie,
              struct error *err)
{
    if (!check_size("range's first key", strnlen(first, KV_KEY_MAX_BYTES + 1), 0, KV_KEY_MAX_BYTES, err))
        return false;
    if (end && !check_size("range's end", strnlen(end, KV_KEY_MAX_BYTES + 1), 0, KV_KEY_MAX_BYTES, err))
        return false;
    bool outer = kv->walking;
    kv->walking = true;
    bool walked = kv->engine->range(kv, first, end, limit, visit, cookie, err);
    kv->walking = outer;
    return walked;
}

enum kv_outcome kv_apply(struct kv *kv, const struct kv_change *change, struct error *err)
{
    if (!kv->in_batch || kv->walking) {
        error_set(err, ERROR_INTERNAL, "a change was applied %s", kv->walking ? "during a walk" : "outside a batch");
        return KV_FAILED;
    }
    if (change->invalid.kind != ERROR_NONE) {
        error_set(err, change->invalid.kind, "%s", change->invalid.message);
        return KV_FAILED;
    }
    return kv->engine->apply(kv, change, err);
}

bool kv_usage(struct kv *kv, unsigned *percent, struct error *err)
{
    return kv->engine->usage(kv, percent, err);
}

bool kv_batch_begin(struct kv *kv, struct error *err)
{
    if (kv->in_batch || kv->walking)
        return error_set(err, ERROR_INTERNAL, "a batch began inside another or during a walk");
    if (!kv->engine->batch_begin(kv, err))
        return false;
    kv->in_batch = true;
    return true;
}

bool kv_batch_end(struct kv *kv, struct error *err)
{
    if (!kv->in_batch || kv->walking)
        return error_set(err, ERROR_INTERNAL, "a batch ended that had not begun, or during a walk");
    kv->in_batch = false;
    return kv->engine->batch_end(kv, err);
}
