/** house.h - what a guest prepares before anything runs: its folder, init's socket, the programs. */
#pragma once

#include "sandboxd/launcher/settings.h"
#include "shared/base/error.h"

/** Below STATE/sandboxd/run: the front finds init there. */
#define GUEST_SOCKET "0/init.sock"

/** All descriptors O_CLOEXEC; guest_house_done closes those that are still there. */
struct guest_house {
    int listen;  /* init's socket, bound, for the front's group */
    int program; /* parley-init */
    int seccomp; /* the commands' program */
};
#define GUEST_HOUSE_NONE ((struct guest_house){-1, -1, -1})

bool guest_house_open(struct guest_house *house, const struct settings *settings, struct error *err) MUST_USE;
void guest_house_done(struct guest_house *house);
#define AUTO_GUEST_HOUSE __attribute__((cleanup(guest_house_done))) struct guest_house
