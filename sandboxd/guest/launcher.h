/** launcher.h - the launcher of a guest: has init become the letter's sandbox, keeps a front running and tells it the
 *  little there is to tell (front_launcher.h). One thread; it makes no sandbox and has none of a launcher's other
 * rights to give. */
#pragma once

#include "sandboxd/launcher/settings.h"
#include "sandboxd/launcher_guest/letter.h"

struct guest_launcher_options {
    const struct settings *settings;
    const struct letter *letter;
    int control; /* to init: the dialogue of launcher_init.h, then it tells init's end */
    int alive;   /* ends with init, for fronts to poll */
    pid_t init;
    char *const *argv; /* fronts are started with */
};

/** Runs until init has gone; then the front is stopped. The exit status; what went wrong is logged. */
int guest_launcher_run(const struct guest_launcher_options *options) MUST_USE;
