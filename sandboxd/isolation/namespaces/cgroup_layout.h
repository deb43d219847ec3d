/** cgroup_layout.h - finds where this host keeps its cgroups, and where ours go: pure v2, hybrid, or v1 controllers
 *  with a v2 hierarchy beside them (cgroups(7)). Without a v2 hierarchy there is nothing: kill and freeze need it. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define CGROUP_PATH_BYTES 512

enum cgroup_controller { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_CONTROLLERS };

extern const char *const CGROUP_CONTROLLER_NAMES[CGROUP_CONTROLLERS];

struct cgroup_layout {
    char mount[CGROUP_PATH_BYTES];   /* where v2 is mounted */
    char options[CGROUP_PATH_BYTES]; /* its superblock's options, as they must be repeated in a remount */
    char parent[CGROUP_PATH_BYTES];  /* the v2 folder that ours is made in */
    char unified[CGROUP_PATH_BYTES]; /* ours: parent/parley-<8 hex> */
    char v1[CGROUP_CONTROLLERS][CGROUP_PATH_BYTES]; /* ours in that controller's v1 hierarchy; "" when v2 has it */
    bool is_missing[CGROUP_CONTROLLERS];            /* nobody limits that, by the operator's word */
    bool is_delegated;                              /* parent is a user's, with who else is in it */
};

/** Reads root/proc/self/mountinfo and root/proc/self/cgroup ("" the real ones) and chooses for each controller: v2
 * where a usable parent has it (the own cgroup when no strangers are in it, else the mount's top), else v1 below the
 * own path. `kept` (NULL: none) is the path of a v2 cgroup, as /proc/PID/cgroup tells it, that is the parent instead:
 * somebody keeps it for us (cgroup_keep.h). Makes nothing. ERROR_NOT_FOUND names the controller, or the cgroup, that is
 * missing and how to get it. */
bool cgroup_layout_find(const char *root, const char *name, const char *kept, struct cgroup_layout *layout,
                        struct error *err) MUST_USE;

/** The same for an ordinary user: all of it lies in the own cgroups, v2 and v1, where they are this user's to write
 *  (cgroups(7), "Delegation"). A controller that is not is ERROR_FORBIDDEN, which says how to get it, or with
 * `may_miss` is_missing; the v2 folder must be there. */
bool cgroup_layout_find_delegated(const char *root, const char *name, bool may_miss, struct cgroup_layout *layout,
                                  struct error *err) MUST_USE;

/** The folder of this process's own v2 cgroup. ERROR_NOT_FOUND without a v2 hierarchy. */
bool cgroup_layout_find_own(const char *root, char own[static CGROUP_PATH_BYTES], struct error *err) MUST_USE;

/** Makes our folders and enables the controllers for them, moving this process into parent/daemon where the rule "no
 *  processes in inner cgroups" demands it. Safe to repeat. */
bool cgroup_layout_make(const struct cgroup_layout *layout, struct error *err) MUST_USE;

/** Removes our folders when they are empty. */
void cgroup_layout_remove(const struct cgroup_layout *layout);

/** Asks for favordynmods (mount option of cgroup2, Linux 6.0): without it a process that joins a cgroup waits for an
 * RCU grace period, some 7 ms. Host-wide, until the next boot. False, and no harm done, where the kernel will not. */
bool cgroup_layout_favor_moves(const struct cgroup_layout *layout, struct error *err) MUST_USE;

/** Whether any controller is on v1, so that each command must join it by writing its pid. */
bool cgroup_layout_has_v1(const struct cgroup_layout *layout) MUST_USE;

/** Keeps the choice in `file` for a later launcher of this boot, which may be started from another cgroup. */
bool cgroup_layout_save(const struct cgroup_layout *layout, const char *file, struct error *err) MUST_USE;

/** Reads it back, but for is_delegated; false when it is missing, malformed, of another boot or not there any more. */
bool cgroup_layout_load(struct cgroup_layout *layout, const char *file) MUST_USE;
