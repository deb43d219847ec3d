/** sandboxes_internal.h - what the files of the sandboxes share: sandboxes.c (table, ends), births.c, adoption.c,
 * keeping.c (limits, snapshots), ways.c (the network), warm.c. */
#pragma once

#include "sandboxd/launcher/sandboxes.h"

/** A wish under way: what the sandbox is to become, and its volumes, open. */
struct birth {
    struct sandbox_wish wish;
    struct attachments volumes;
};
void birth_free(struct birth *birth);
/** It never came to live, and has left its place: volumes that were made for it alone go. */
void birth_unmake(const struct sandboxes *all, const struct birth *birth);
DEFINE_AUTO(birth)

/** A new sandbox that is nothing yet, not in the table. */
struct sandbox *sandbox_new(struct sandboxes *all, bool is_pool);
/** Into the table, by its slot. */
void sandbox_place(struct sandboxes *all, struct sandbox *sandbox, uint32_t slot);
void sandbox_enter(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_state state);
/** Out of the table or the queue, and freed. */
void sandbox_drop(struct sandboxes *all, struct sandbox *sandbox);
/** It is nobody's and tells no end. */
void sandbox_forget(struct sandbox *sandbox);
void sandbox_find_reason(struct sandbox *sandbox);
char *sandbox_folder(const struct sandboxes *all, uint32_t slot);
uint64_t sandbox_boot_of_wall(int64_t wall_ms);

/** What the kernel's groups are to hold it to: its own limits, in the tasks of the host that its backend needs for them. */
struct isolation_limits sandboxes_kernel_limits(const struct isolation_backend *backend,
                                                const struct fl_limits *limits);

/** Adds the sandbox to those to be born. Owns `birth`. */
void birth_queue(struct sandboxes *all, struct birth *birth, bool is_first);
/** Begins one for the pool, or notes that it cannot. */
void birth_begin_pool(struct sandboxes *all, struct catalog_version *template);
/** A birth went wrong: its remains are ended, and who asked is told; or it is tried again, cold. */
void birth_fail(struct sandboxes *all, struct sandbox *sandbox, const struct error *why);
/** The descriptors of a birth. */
void birth_event(struct sandboxes *all, struct sandbox *sandbox);
void birth_filled(struct sandboxes *all, struct sandbox *sandbox);
/** Its init is gone before it lived. */
void birth_init_ended(struct sandboxes *all, struct sandbox *sandbox);

/** What a guest is told: its letter, for the sandbox as its record has it; the caller's, an AUTO_GUEST_LETTER. NULL on
 *  failure. */
char *guest_letter_make(const struct sandboxes *all, const struct sandbox *sandbox, struct error *err) MUST_USE;
/** Wipes and frees: it holds a key. */
void guest_letter_done(char *const *letter);
#define AUTO_GUEST_LETTER __attribute__((cleanup(guest_letter_done))) char *

/** Its way out ends, before it does. */
void ways_end(struct sandboxes *all, struct sandbox *sandbox);
/** Takes up that of one which lives on from a former launcher. */
void ways_adopt(struct sandboxes *all, struct sandbox *sandbox);

/** The job or the errand of a snapshot is over. */
void taking_event(struct sandboxes *all, struct sandbox *sandbox);
/** Gives it up; `why` NULL: nobody is told. */
void taking_cancel(struct sandboxes *all, struct sandbox *sandbox, const struct error *why);

/** The child that looks at it for evidence has ended; `looking_fd` (-1: there is none) is readable then. */
void looking_event(struct sandboxes *all, struct sandbox *sandbox);
int looking_fd(const struct sandbox *sandbox) MUST_USE;
/** Gives it up; `why` NULL: nobody is told. */
void looking_cancel(struct sandboxes *all, struct sandbox *sandbox, const struct error *why);
