/** ports_internal.h - what ports.c and ports_watch.c share with the sandbox they belong to. Its loop. */
#pragma once

#include "sandboxd/sandbox/ports/ports.h"
#include "sandboxd/sandbox/sandbox_internal.h"

/** What a sandbox has of this room; made when it is first used. */
struct ports {
    struct sandbox *sandbox;
    unsigned connections; /* open, and being made; counted among the sandbox's descriptors */
    uint64_t last_number;
    struct port_dial *dials; /* being made */
    /* ports_watch.c: */
    struct listeners *listeners; /* NULL: not asked for */
    struct loop_watch *diag;     /* its socket; NULL: none yet */
    bool diag_asked;             /* of init */
    bool asking;                 /* the kernel */
    bool is_known;               /* `list` holds */
    struct port_list list;       /* as told last */
    struct port_watcher *watchers;
    struct loop_timer *timer;    /* of the next look */
    struct loop_timer *patience; /* while diag_asked */
};

struct ports *ports_of(struct sandbox *sandbox) MUST_USE;

/** The verb's work. */
void ports_verb_dial(struct sandbox *sandbox, struct verb *verb);

/** init's words; take what they keep out of `fds`. */
void ports_dialed(struct sandbox *sandbox, const struct fi_dialed *dialed, int *fds);
void ports_told_listeners(struct sandbox *sandbox, const struct fi_listeners *told, int *fds);
/** The link to init broke: what was asked of it is not answered any more. */
void ports_link_lost(struct sandbox *sandbox, const struct error *why);
/** Ends all; the askers get `err`. */
void ports_free(struct sandbox *sandbox, const struct error *err);

/* ---- ports_watch.c ---- */
void ports_watch_lost(struct ports *ports, const struct error *why);
void ports_watch_free(struct ports *ports, const struct error *err);
