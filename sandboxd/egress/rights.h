/** rights.h - the egress process gives up what it does not need: after this it can open no file, listen nowhere, and
 *  signal nobody. */
#pragma once

#include "sandboxd/launcher_egress/launcher_egress.h"

/** User, capabilities, no_new_privs, not dumpable, Landlock without any file, limits, seccomp. Before threads start;
 *  never undone. Where the kernel has no Landlock, that is logged. ERROR_INTERNAL. */
bool rights_give_up(const struct eg_config *config, struct error *err) MUST_USE;
