/** probe.h - which layers of isolation this host gives, for `parley doctor`. */
#pragma once

#include "sandboxd/isolation/isolation.h"

/** Fills `layers`, returns how many. Tries each in a throw-away process; a cgroup folder is made and removed. */
size_t probe_layers(struct isolation_layer layers[ISOLATION_LAYERS_MAX]);
