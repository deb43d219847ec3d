/* registry.c - the backends by their names, and which of them a node offers. */
#include "sandboxd/isolation/isolation.h"

#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

static const struct isolation_backend *const BACKENDS[] = {&isolation_namespaces, &isolation_gvisor,
                                                           &isolation_microvm};

enum { COUNT = sizeof BACKENDS / sizeof BACKENDS[0], NAMES_BYTES = 128 };
_Static_assert(COUNT <= ISOLATION_BACKENDS_MAX, "an offer may hold all of them");

static const char *const LACKS[ISOLATION_LACKS] = {"egress",           "snapshots",     "volumes",
                                                   "commands as root", "an entrypoint", "another memory limit"};

const struct isolation_backend *isolation_each(size_t index)
{
    return index < COUNT ? BACKENDS[index] : NULL;
}

const struct isolation_backend *isolation_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (strcmp(BACKENDS[i]->name, name) == 0)
            return BACKENDS[i];
    }
    return NULL;
}

static void add_word(char *to, size_t size, const char *word)
{
    size_t length = strlen(to);
    (void)snprintf(to + length, size - length, "%s%s", length > 0 ? ", " : "", word);
}

static void name_all(const struct isolation_backend *const *list, size_t count, char to[static NAMES_BYTES])
{
    to[0] = '\0';
    for (size_t i = 0; i < count; i++)
        add_word(to, NAMES_BYTES, list[i]->name);
}

static bool add_offer(struct isolation_offer *offer, const char *word, size_t length, struct error *err)
{
    char name[32] = "", known[NAMES_BYTES];
    const struct isolation_backend *backend = NULL;
    if (length < sizeof name) {
        memcpy(name, word, length);
        backend = isolation_find(name);
    }
    for (size_t i = 0; backend && i < offer->count; i++) {
        if (offer->list[i] == backend)
            return error_set(err, ERROR_INVALID, "isolation: %s stands there twice", backend->name);
    }
    if (backend) {
        offer->list[offer->count++] = backend;
        return true;
    }
    name_all(BACKENDS, COUNT, known);
    return error_set(err, ERROR_INVALID, "isolation: \"%.*s\" is none of %s", (int)(length < 32 ? length : 32), word,
                     known);
}

bool isolation_offer_parse(const char *text, struct isolation_offer *offer, struct error *err)
{
    struct isolation_offer read = {0};
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ", ");
        if (length > 0 && !add_offer(&read, at, length, err))
            return false;
        at += length + (at[length] != '\0');
    }
    if (read.count == 0)
        return error_set(err, ERROR_INVALID, "isolation: a node offers at least one");
    *offer = read;
    return true;
}

const struct isolation_backend *isolation_choose(const struct isolation_offer *offer, const char *name,
                                                 struct error *err)
{
    char offered[NAMES_BYTES];
    if (text_equal(name, "auto") && offer->count > 0)
        return offer->list[0];
    for (size_t i = 0; i < offer->count; i++) {
        if (text_equal(name, offer->list[i]->name))
            return offer->list[i];
    }
    name_all(offer->list, offer->count, offered);
    error_set(err, ERROR_INVALID, "isolation must be auto or one of %s on this node, not \"%.32s\"", offered, name);
    return NULL;
}

void isolation_lacks_format(unsigned lacks, char *to, size_t size)
{
    to[0] = '\0';
    for (size_t i = 0; i < ISOLATION_LACKS; i++) {
        if (lacks & 1U << i)
            add_word(to, size, LACKS[i]);
    }
}
