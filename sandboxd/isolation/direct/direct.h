/** direct.h - no isolation of ours: what stands around already isolates. This process becomes parley-init in place
 *  (init/inherit.h, the "guest" form), without namespaces or cgroups. */
#pragma once

#include "sandboxd/isolation/isolation.h"

/** What init is given. All descriptors are the caller's, and O_CLOEXEC. */
struct direct_init {
    int program; /* parley-init, to be executed */
    int listen;  /* SOCK_SEQPACKET, bound, not listening */
    int control; /* the launcher's dialogue (launcher_init.h) */
    int seccomp; /* seccomp_build */
    int alive;   /* held open while init lives */
};

/** execveat(2); returns only when that failed. */
bool direct_become_init(const struct direct_init *init, struct error *err) MUST_USE;

/** Whether this process may be what a guest must be: root, with the capabilities that init uses. FORBIDDEN names what
 * is missing. */
bool direct_check_rights(struct error *err) MUST_USE;

/** Each layer as `parley-sandboxd --guest --doctor` shows it, with what guest mode cannot limit. */
size_t direct_probe(struct isolation_layer layers[ISOLATION_LAYERS_MAX]);
