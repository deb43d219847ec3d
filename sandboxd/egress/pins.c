#include "sandboxd/egress/pins.h"

#include "shared/base/memory.h"

#include <string.h>

struct pin {
    char name[HOST_NAME_BYTES];
    uint32_t address;
    uint64_t expires_ns;
};

struct pins {
    struct pin *all;
    size_t count, capacity;
};

struct pins *pins_new(void)
{
    return memory_new(sizeof(struct pins));
}

void pins_free(struct pins *pins)
{
    if (pins != NULL)
        free(pins->all);
    free(pins);
}

static struct pin *find(const struct pins *pins, const char *name, uint32_t address)
{
    for (size_t i = 0; i < pins->count; i++) {
        if (pins->all[i].address == address && strcmp(pins->all[i].name, name) == 0)
            return &pins->all[i];
    }
    return NULL;
}

static struct pin *first_to_end(const struct pins *pins)
{
    struct pin *first = &pins->all[0];
    for (size_t i = 1; i < pins->count; i++)
        first = pins->all[i].expires_ns < first->expires_ns ? &pins->all[i] : first;
    return first;
}

static bool keep_all(void *cookie UNUSED, const char *name UNUSED)
{
    return true;
}

static struct pin *room_for_one(struct pins *pins, uint64_t now_ns)
{
    if (pins->count == pins->capacity)
        pins_keep(pins, keep_all, NULL, now_ns);
    if (pins->count == PINS_MAX)
        return first_to_end(pins);
    if (pins->count == pins->capacity) {
        pins->capacity = pins->capacity == 0 ? 16 : pins->capacity * 2;
        pins->all = memory_resize(pins->all, pins->capacity * sizeof *pins->all);
    }
    return &pins->all[pins->count++];
}

void pins_add(struct pins *pins, const char *name, uint32_t address, uint64_t expires_ns, uint64_t now_ns)
{
    struct pin *pin = find(pins, name, address);
    if (pin != NULL) {
        pin->expires_ns = expires_ns > pin->expires_ns ? expires_ns : pin->expires_ns;
        return;
    }
    size_t length = strlen(name);
    if (length >= sizeof pin->name)
        return;
    pin = room_for_one(pins, now_ns);
    *pin = (struct pin){.address = address, .expires_ns = expires_ns};
    memcpy(pin->name, name, length + 1);
}

uint64_t pins_expiry(const struct pins *pins, const char *name, uint32_t address, uint64_t now_ns)
{
    const struct pin *pin = find(pins, name, address);
    return pin != NULL && pin->expires_ns > now_ns ? pin->expires_ns : 0;
}

void pins_keep(struct pins *pins, bool (*keep)(void *cookie, const char *name), void *cookie, uint64_t now_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < pins->count; i++) {
        if (pins->all[i].expires_ns > now_ns && keep(cookie, pins->all[i].name))
            pins->all[kept++] = pins->all[i];
    }
    pins->count = kept;
}

static int compare(const void *a, const void *b)
{
    const struct pin *left = a;
    const struct pin *right = b;
    return strcmp(left->name, right->name);
}

void pins_each(struct pins *pins, void (*each)(void *cookie, const char *name, uint32_t address, uint64_t expires_ns),
               void *cookie)
{
    if (pins->count > 1)
        qsort(pins->all, pins->count, sizeof *pins->all, compare);
    for (size_t i = 0; i < pins->count; i++)
        each(cookie, pins->all[i].name, pins->all[i].address, pins->all[i].expires_ns);
}
