/* catalog.c - see catalog.h. */
#include "sandboxd/launcher/catalog.h"

#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>

enum { NOTES_BYTES = 4096, NAMES_BYTES = 160 };

static struct catalog_version *find_known(const struct catalog *catalog, const char *version)
{
    for (struct catalog_version *at = catalog->first; at; at = at->next) {
        if (strcmp(at->facts.version, version) == 0)
            return at;
    }
    return NULL;
}

static struct catalog_version *add(struct catalog *catalog, const struct template *facts)
{
    struct catalog_version *version = memory_new(sizeof *version);
    version->facts = *facts;
    version->next = catalog->first;
    catalog->first = version;
    return version;
}

static void forget_unused(struct catalog *catalog)
{
    for (struct catalog_version **at = &catalog->first; *at;) {
        struct catalog_version *version = *at;
        if (version->is_current || version->uses > 0) {
            at = &version->next;
            continue;
        }
        *at = version->next;
        free(version);
    }
}

static bool read_folder(struct catalog *catalog)
{
    bool changed = false;
    struct template *list = NULL;
    size_t count = templates_list(catalog->folder, TEMPLATES_MAX, &list);
    for (size_t i = 0; i < count; i++)
        changed = find_known(catalog, list[i].version) == NULL || changed;
    for (struct catalog_version *at = catalog->first; at; at = at->next) {
        bool was_current = at->is_current;
        at->is_current = false;
        for (size_t i = 0; i < count; i++)
            at->is_current = at->is_current || strcmp(at->facts.version, list[i].version) == 0;
        changed = changed || was_current != at->is_current;
    }
    for (size_t i = 0; i < count; i++) {
        if (!find_known(catalog, list[i].version))
            add(catalog, &list[i])->is_current = true;
    }
    free(list);
    forget_unused(catalog);
    catalog->must_clean = catalog->must_clean || changed;
    return changed;
}

bool catalog_open(struct catalog *catalog, const char *folder, struct catalog_users users, struct error *err)
{
    *catalog = (struct catalog){.folder = memory_string(folder), .notify = -1, .users = users, .must_clean = true};
    catalog->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (catalog->notify < 0 || inotify_add_watch(catalog->notify, folder,
                                                 IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "watch the templates in %s", folder);
    (void)read_folder(catalog);
    return true;
}

void catalog_close(struct catalog *catalog)
{
    while (catalog->first) {
        struct catalog_version *next = catalog->first->next;
        free(catalog->first);
        catalog->first = next;
    }
    if (catalog->folder && catalog->notify >= 0)
        close(catalog->notify);
    free(catalog->folder);
    *catalog = (struct catalog){.notify = -1};
}

int catalog_fd(const struct catalog *catalog)
{
    return catalog->notify;
}

bool catalog_refresh(struct catalog *catalog)
{
    char notes[NOTES_BYTES];
    bool noted = false;
    while (read(catalog->notify, notes, sizeof notes) > 0)
        noted = true;
    return noted && read_folder(catalog);
}

struct catalog_version *catalog_find(struct catalog *catalog, const char *name, struct error *err)
{
    char names[NAMES_BYTES] = "";
    for (struct catalog_version *at = catalog->first; at; at = at->next) {
        if (!at->is_current)
            continue;
        if (strcmp(at->facts.record.name, name) == 0)
            return at;
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", at->facts.record.name);
    }
    error_set(err, ERROR_INVALID, "no template \"%s\" on this node; there is: %s", name, names[0] ? names : "none");
    return NULL;
}

struct catalog_version *catalog_find_version(struct catalog *catalog, const char *version, struct error *err)
{
    struct catalog_version *known = find_known(catalog, version);
    struct template facts = {.version = ""};
    if (known)
        return known;
    return templates_find_version(catalog->folder, version, &facts, err) ? add(catalog, &facts) : NULL;
}

struct catalog_version *catalog_keep(struct catalog_version *version)
{
    version->uses++;
    return version;
}

void catalog_release(struct catalog *catalog, struct catalog_version *version)
{
    if (!version || --version->uses > 0 || version->is_current)
        return;
    forget_unused(catalog);
    catalog->must_clean = true;
}

static bool is_used(void *context, const char *version)
{
    const struct catalog *catalog = context;
    const struct catalog_version *known = find_known(catalog, version);
    return (known && known->uses > 0) || catalog->users.is_used(catalog->users.context, version);
}

void catalog_clean(struct catalog *catalog)
{
    if (!catalog->must_clean)
        return;
    catalog->must_clean = false;
    templates_clean(catalog->folder, is_used, catalog);
}
