/** resolver.h - questions to the upstream DNS servers (c-ares): random ids and ports, retries, TCP where an answer was
 *  cut. One loop. */
#pragma once

#include "sandboxd/launcher_egress/launcher_egress.h"
#include "shared/http/loop.h"

struct resolver;

/** c-ares reads files and the environment's settings here: before files are out of reach. ERROR_INTERNAL. The loop is
 *  open by resolver_ask at the latest. */
struct resolver *resolver_new(struct loop *loop, const struct eg_config *config, struct error *err) MUST_USE;

/** Every question still open is answered with nothing. Loop thread, before the loop ends; NULL is allowed. */
void resolver_free(struct resolver *resolver);
DEFINE_AUTO(resolver)

/** Asks for the name's records of a type, class IN. done(cookie, answer, size) is called once, perhaps inside of this
 *  call: a whole DNS message, NULL when none came. Loop thread. */
void resolver_ask(struct resolver *resolver, const char *name, uint16_t type,
                  void (*done)(void *cookie, const void *answer, size_t size), void *cookie);
