/** worker.h - the threads of a server, for server.c. */
#pragma once

#include "shared/http/http_internal.h"

/** Makes the descriptors, on the caller's thread, so that failing is an error and not a crash. http_worker_done frees
 *  also what a failure left. */
bool http_worker_prepare(struct http_worker *worker, struct http_server *server, unsigned index,
                         struct error *err) MUST_USE;
bool http_worker_start(struct http_worker *worker, struct error *err) MUST_USE;
/** After its thread was joined, or never started. */
void http_worker_done(struct http_worker *worker);

/** On its loop: as a connection that was accepted. */
void http_worker_serve(struct http_worker *worker, int fd);

/* To be posted to the worker's loop, cookie = worker. */

/** Accepts no more, closes what is idle. */
void http_worker_begin_stop(void *cookie);
/** Closes all connections. */
void http_worker_cut(void *cookie);
/** Closes all connections, then ends the thread; after http_worker_begin_stop. */
void http_worker_end(void *cookie);
