/** catalog.h - the templates of this node as the launcher knows them: the current version of each, and former ones that
 *  something was made of. Watches their folder (inotify); reads fixed records alone (templates/templates.h). */
#pragma once

#include "sandboxd/templates/templates.h"

/** One version. Owned by the catalog; lives while it is current or kept. */
struct catalog_version {
    struct template facts;
    unsigned uses; /* sandboxes made of it that live, or are to be */
    bool is_current;
    struct catalog_version *next;
};

/** Who else has a version: snapshots. */
struct catalog_users {
    bool (*is_used)(void *context, const char *version);
    void *context;
};

/** Embedded; zero before catalog_open. Private but for reading. */
struct catalog {
    char *folder;
    int notify; /* -1: it cannot be watched, so it is read at each question */
    struct catalog_version *first;
    struct catalog_users users;
    bool must_clean; /* a version may have lost its last user */
};

/** Reads the folder and begins to watch it. `folder` is copied. */
bool catalog_open(struct catalog *catalog, const char *folder, struct catalog_users users, struct error *err) MUST_USE;
void catalog_close(struct catalog *catalog);

/** Readable (poll) when the folder has changed; -1. */
int catalog_fd(const struct catalog *catalog) MUST_USE;

/** Reads the folder again if it has changed; true when other versions are current than before. */
bool catalog_refresh(struct catalog *catalog) MUST_USE;

/** The current version of `name`: as of the last refresh. ERROR_INVALID names those there are. */
struct catalog_version *catalog_find(struct catalog *catalog, const char *name, struct error *err) MUST_USE;

/** This very version, current or not. NOT_FOUND. */
struct catalog_version *catalog_find_version(struct catalog *catalog, const char *version, struct error *err) MUST_USE;

/** Says that something is made of it, until catalog_release. */
struct catalog_version *catalog_keep(struct catalog_version *version);
/** NULL is allowed. */
void catalog_release(struct catalog *catalog, struct catalog_version *version);

/** Removes what nothing is made of any more, if there may be such. The folders go off the caller's path. */
void catalog_clean(struct catalog *catalog);
