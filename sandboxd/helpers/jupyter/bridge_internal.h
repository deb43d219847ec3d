/** bridge_internal.h - what bridge.c (runs, the loop, the end) and bridge_start.c (until the kernel is ready) share. */
#pragma once

#include "sandboxd/helpers/jupyter/bridge.h"
#include "sandboxd/helpers/jupyter/channels.h"
#include "sandboxd/helpers/jupyter/connection.h"
#include "sandboxd/helpers/jupyter/frames.h"
#include "sandboxd/helpers/jupyter/kernel.h"
#include "sandboxd/helpers/jupyter/output.h"
#include "sandboxd/helpers/jupyter/requests.h"
#include "sandboxd/helpers/jupyter/run.h"

#include <stdint.h>

enum stage { STAGE_SOCKETS, STAGE_GREETING, STAGE_READY, STAGE_ENDING };

struct bridge {
    const struct kernelspec *spec;
    struct kernel kernel;
    struct connection connection;
    struct channels channels;
    struct frames frames;
    struct requests requests;
    struct output output;
    struct run run;
    int signals;
    enum stage stage;
    uint64_t since_ns, asked_ns; /* CLOCK_MONOTONIC: of the stage; of the last kernel_info_request */
    uint64_t heard_ns;           /* ... of the last message */
    json_t *info;                /* content of kernel_info_reply */
    bool heard_iopub;
    bool wants_interrupt;
    bool told_to_end; /* by a signal */
    int complaints;
};

/** Since a time of CLOCK_MONOTONIC. */
uint64_t bridge_ms_since(uint64_t then_ns) MUST_USE;
void bridge_enter(struct bridge *bridge, enum stage stage);

/** Sends `content`, which it takes; the msg_id into `id` unless that is NULL. What goes wrong is told on the run's
 *  stderr. */
bool bridge_ask(struct bridge *bridge, enum connection_channel channel, const char *type, json_t *content, char *id);

/** Starts the kernel and meets its sockets over ipc or TCP. */
bool bridge_start(struct bridge *bridge, bool tcp, struct error *err) MUST_USE;
/** Goes on with that, after each turn of the loop; may start it once more over TCP. */
bool bridge_advance_start(struct bridge *bridge, struct error *err) MUST_USE;
/** How long the loop may wait meanwhile; ms. */
long bridge_start_patience(const struct bridge *bridge) MUST_USE;
/** Ends the kernel and forgets what belongs to it. */
void bridge_stop(struct bridge *bridge);
